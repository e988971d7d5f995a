package logging_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dray-dev/dray/internal/logging"
)

// event decodes the only line of a log.
func event(t *testing.T, log *bytes.Buffer) map[string]any {
	t.Helper()
	line, ok := strings.CutSuffix(log.String(), "\n")
	if !ok || strings.Contains(line, "\n") {
		t.Fatalf("not one line: %q", log)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// Each event is one line. Programs that start the daemon wait for the ready line (OP-01).
func TestReadyLine(t *testing.T) {
	var log bytes.Buffer
	before := time.Now()
	logging.New(&log, zapcore.InfoLevel).Info("ready", zap.String("socket", "/run/dray.sock"))
	got := event(t, &log)
	if got["event"] != "ready" || got["socket"] != "/run/dray.sock" || got["level"] != "info" ||
		len(got) != 4 {
		t.Errorf("the line is %v", got)
	}
	text := fmt.Sprint(got["time"])
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !strings.HasSuffix(text, "Z") {
		t.Fatalf("time is %s, %v", text, err)
	}
	if at.Before(before.Add(-time.Second)) || at.After(time.Now()) {
		t.Errorf("time is %v", at)
	}
}

// Line breaks and invalid UTF-8 make neither a second line nor an invalid one.
func TestHostileText(t *testing.T) {
	var log bytes.Buffer
	hostile := "a\n{\"event\":\"ready\"}\x00\xff\x1b[31m"
	logging.New(&log, zapcore.InfoLevel).
		Error("call failed", zap.String("tool", hostile), zap.Error(errors.New(hostile)))
	got := event(t, &log)
	if got["event"] != "call failed" || !strings.HasPrefix(fmt.Sprint(got["error"]), "a\n{") {
		t.Errorf("the line is %v", got)
	}
}

func TestLevel(t *testing.T) {
	var log bytes.Buffer
	logger := logging.New(&log, zapcore.WarnLevel)
	logger.Info("not written")
	if log.Len() > 0 {
		t.Errorf("below the level: %s", &log)
	}
	logger.Named("audit").Warn("written", zap.Duration("after", 1500*time.Millisecond))
	if got := event(t, &log); got["level"] != "warn" || got["component"] != "audit" ||
		got["after"] != "1.5s" {
		t.Errorf("the line is %v", got)
	}
}

// AU-07: texts in the fields of a redacted logger have no secrets.
func TestRedacted(t *testing.T) {
	var log bytes.Buffer
	logger := logging.Redacted(logging.New(&log, zapcore.InfoLevel), func(s string) string {
		return strings.ReplaceAll(s, "secret", "***")
	})
	logger.With(zap.String("a", "secret")).Info("logged", zap.Error(errors.New("a secret")),
		zap.ByteString("bytes", []byte("secret")), zap.Strings("list", []string{"x", "secret"}),
		zap.Stringer("url", &url.URL{Path: "secret"}), zap.Int("n", 1), zap.Error(nil))
	if text := log.String(); strings.Count(text, "***") != 5 || strings.Contains(text, "secret") ||
		!strings.Contains(text, `"n":1`) {
		t.Errorf("the line is %s", text)
	}
}

// Lines of several goroutines do not mix, on a writer without locks.
func TestConcurrentLines(t *testing.T) {
	var log bytes.Buffer
	logger := logging.New(&log, zapcore.InfoLevel)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				logger.Info("tick", zap.String("filler", strings.Repeat("x", 500)))
			}
		})
	}
	wg.Wait()
	lines := 0
	for scanner := bufio.NewScanner(&log); scanner.Scan(); lines++ {
		if !json.Valid(scanner.Bytes()) {
			t.Fatalf("line %d is %q", lines, scanner.Text())
		}
	}
	if lines != 400 {
		t.Errorf("%d lines, want 400", lines)
	}
}

// failing is a writer that always fails.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

// A failing writer has no effect on the caller.
func TestFailingWriter(t *testing.T) {
	logger := logging.New(failing{}, zapcore.InfoLevel)
	logger.Info("lost")
	if err := logger.Sync(); err != nil {
		t.Errorf("Sync gives %v", err)
	}
}
