package enginetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// client speaks HTTP over the engine's socket. Connections are not kept: they would outlive the
// engine.
func (e *Engine) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket())
		},
	}}
}

// ask makes one request of the engine's API and gives its answer's body.
func (e *Engine) ask(ctx context.Context, method, path string, body io.Reader) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, body)
	if err != nil {
		return "", err
	}
	res, err := e.client().Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	return string(text), err
}

func (e *Engine) ping(ctx context.Context) error {
	_, err := e.ask(ctx, http.MethodGet, "/_ping", nil)
	return err
}

// load copies images from the machine's engine.
func (e *Engine) load(tb testing.TB, images []string) {
	tb.Helper()
	if len(images) == 0 {
		return
	}
	// a test's own words
	save := exec.CommandContext(tb.Context(), "docker", append([]string{"save"}, images...)...) //nolint:gosec
	var said strings.Builder
	save.Stderr = &said
	archive, err := save.StdoutPipe()
	if err == nil {
		err = save.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	answer, err := e.ask(tb.Context(), http.MethodPost, "/images/load?quiet=1", archive)
	if saveErr := save.Wait(); saveErr != nil {
		tb.Fatalf("docker save %q: %v: %s", images, saveErr, &said)
	}
	if err != nil || strings.Contains(answer, `"error"`) {
		tb.Fatalf("loading the test images: %v: %s", err, answer)
	}
}
