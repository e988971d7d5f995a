package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/api"
)

// trivial is a tool without cost.
func trivial(_ context.Context, _ dray.Call, sink dray.Sink) (dray.Result, error) {
	sink.Started()
	sink.Output(dray.Stdout, []byte("hi\n"))
	return exited(0), nil
}

func benchmarkStart(b *testing.B, accept string) {
	d := start(b, func(p *fakeDeps) { p.run = trivial })
	const body = `{"tool":"exec","input":{"argv":["echo","hi"]},"workspace":"/home/me/app"}`
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), "POST", "http://localhost/v1/invocations",
			strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", accept)
		resp, err := d.client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
			b.Fatal(resp.Status, err)
		}
		resp.Body.Close()
	}
}

// BenchmarkCall measures a call over the socket, client included, with an audit log in memory.
func BenchmarkCall(b *testing.B)       { benchmarkStart(b, "application/json") }
func BenchmarkCallEvents(b *testing.B) { benchmarkStart(b, "application/x-ndjson") }

// BenchmarkHealth measures HTTP over the socket without a call.
func BenchmarkHealth(b *testing.B) {
	d := start(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := d.client.Get("http://localhost/healthz")
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// BenchmarkHandler measures a call without socket and client.
func BenchmarkHandler(b *testing.B) {
	d := start(b, func(p *fakeDeps) { p.run = trivial })
	ctx := api.AsPrincipal(b.Context(), selfPrincipal)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		d.server.ServeHTTP(w, d.request("POST", "/v1/invocations", callBody).WithContext(ctx))
		if w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
