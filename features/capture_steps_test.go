package features

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cucumber/godog"
)

func (w *world) captureSteps(sc *godog.ScenarioContext) {
	sc.Given(`^a daemon on a captures disk of (\S+) with the configuration$`, w.startOnDisk)
	sc.When(`^the file (\S+) is created$`, func(path string) error { return writeFile(w.named(path), "") })
	sc.When(`^I repeat the call and remember its first result$`, w.callSame)
	sc.When(`^I request its (std(?:out|err))$`, w.askOutput)
	sc.Then(`^the bytes (\S+) of its (std(?:out|err)) are (".*")$`, w.rangeIs)
	sc.Then(`^the request for the bytes (\S+) of its (std(?:out|err)) fails with status (\d+)$`, w.rangeRefused)
	sc.Then(`^eventually the bytes (\S+) of its (std(?:out|err)) are (".*")$`, func(ctx context.Context, at, stream, text string) error {
		return inTime(ctx, func() error { return w.rangeIs(ctx, at, stream, text) })
	})
	sc.Then(`^eventually the request for the bytes (\S+) of its (std(?:out|err)) fails with status (\d+)$`, func(ctx context.Context, at, stream string, status int) error {
		return inTime(ctx, func() error { return w.rangeRefused(ctx, at, stream, status) })
	})
}

// startOnDisk starts a daemon whose captures are on a small disk of their own.
func (w *world) startOnDisk(size string, doc *godog.DocString) error {
	captures := filepath.Join(newDir(w.t), "state", "captures")
	if err := os.MkdirAll(captures, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Dir(captures), 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", captures, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		return godog.ErrSkip // only root may
	}
	w.later(func(context.Context) error { return syscall.Unmount(captures, syscall.MNT_DETACH) })
	return w.startIn(filepath.Dir(captures), doc)
}

func (w *world) callSame(ctx context.Context) error {
	first := w.answer
	again := w.request(fmt.Sprint(first.at("/tool")), "{}")
	again["input"] = first.at("/input")
	second, err := w.daemon.call(ctx, "", again)
	if err == nil && second.at("/status") != "succeeded" {
		err = fmt.Errorf("the call did not succeed: %s", second.raw)
	}
	return err
}

// askOutput requests a stream. The response replaces that of the call.
func (w *world) askOutput(ctx context.Context, stream string) (err error) {
	w.answer, err = w.daemon.ask(ctx, http.MethodGet,
		"/v1/invocations/"+w.answer.id()+"/output/"+stream, nil)
	return err
}

// rangeOf requests a range of a stream.
func (w *world) rangeOf(ctx context.Context, at, stream string) (status int, body []byte,
	err error,
) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://dray/v1/invocations/"+w.answer.id()+"/output/"+stream, nil)
	if err != nil {
		return 0, nil, err
	}
	if at != "0-" { // an empty stream has no range
		req.Header.Set("Range", "bytes="+at)
	}
	resp, err := w.daemon.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

func (w *world) rangeIs(ctx context.Context, at, stream, text string) error {
	want, err := w.quoted(text)
	if err != nil {
		return err
	}
	status, got, err := w.rangeOf(ctx, at, stream)
	if err == nil && status != http.StatusPartialContent && status != http.StatusOK {
		err = fmt.Errorf("answered with %d: %s", status, got)
	}
	return errors.Join(err, differ(string(got), want))
}

func (w *world) rangeRefused(ctx context.Context, at, stream string, want int) error {
	status, body, err := w.rangeOf(ctx, at, stream)
	if err == nil && (status != want || !strings.Contains(string(body), `"code":`)) {
		err = fmt.Errorf("answered with %d: %.300s", status, body)
	}
	return err
}

// inTime repeats a request until its check succeeds.
func inTime(ctx context.Context, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
