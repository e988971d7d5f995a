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

// client returns an HTTP client of the engine's socket. It keeps no connections: they would outlive
// the engine.
func (e *Engine) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket())
		},
	}}
}

// request makes one request of the engine's API and returns the body of the response.
func (e *Engine) request(ctx context.Context, method, path string, body io.Reader) (string, error) {
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
	_, err := e.request(ctx, http.MethodGet, "/_ping", nil)
	return err
}

// load copies images from the machine's engine.
func (e *Engine) load(tb testing.TB, images []string) {
	tb.Helper()
	if len(images) == 0 {
		return
	}
	save := exec.CommandContext(tb.Context(), "docker", append([]string{"save"}, images...)...) //nolint:gosec // the images are constants of the test
	var stderr strings.Builder
	save.Stderr = &stderr
	archive, err := save.StdoutPipe()
	if err == nil {
		err = save.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	reply, err := e.request(tb.Context(), http.MethodPost, "/images/load?quiet=1", archive)
	if saveErr := save.Wait(); saveErr != nil {
		tb.Fatalf("docker save %q: %v: %s", images, saveErr, &stderr)
	}
	if err != nil || strings.Contains(reply, `"error"`) {
		tb.Fatalf("load the test images: %v: %s", err, reply)
	}
}
