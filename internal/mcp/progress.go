package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/call/eventlog"
	"github.com/dray-dev/dray/internal/textview"
)

const (
	// progressInterval is the minimum time between two notifications, and heartbeat the maximum
	// (MC-04): some clients give up after a minute of silence.
	progressInterval = 250 * time.Millisecond
	heartbeat        = 10 * time.Second
	// maxProgress bounds the text of a notification in bytes.
	maxProgress = 200
)

// reportProgress notifies the client of the progress of a call until stop is called, if the request
// has a progress token. A client that reads slowly misses notifications and delays nothing.
func reportProgress(ctx context.Context, req *sdk.CallToolRequest, c *call.Call) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	latest := make(chan string, 1)
	var group sync.WaitGroup
	group.Go(func() { followCall(ctx, c, latest) })
	go notifyProgress(ctx, req, token, latest) // it may block on the client longer than the call lasts
	return func() {
		cancel()
		group.Wait()
	}
}

// followCall keeps the last line that a call has reported or written in latest.
func followCall(ctx context.Context, c *call.Call, latest chan string) {
	reader := c.Events().Reader(0)
	defer reader.Close()
	for {
		ev, err := reader.Next(ctx)
		if err != nil {
			return
		}
		line := progressLine(ev)
		if line == "" {
			continue
		}
		select {
		case <-latest:
		default:
		}
		latest <- line
	}
}

// progressLine returns the text of an event in one line, "" for an event without one.
func progressLine(ev eventlog.Event) string {
	var body struct {
		Phase   string `json:"phase"`
		Message string `json:"message"`
		Text    string `json:"text"`
	}
	switch ev.Name {
	case eventlog.Progress, eventlog.Stdout, eventlog.Stderr:
	default:
		return ""
	}
	if json.Unmarshal(ev.Body, &body) != nil {
		return ""
	}
	if ev.Name == eventlog.Progress {
		return shorten(body.Phase + ": " + body.Message)
	}
	text := bytes.TrimSpace([]byte(textview.Plain(body.Text)))
	return shorten(string(text[bytes.LastIndexByte(text, '\n')+1:]))
}

func shorten(s string) string {
	if len(s) <= maxProgress {
		return s
	}
	return textview.Prefix(s, maxProgress) + "..."
}

// notifyProgress sends the latest line, and a heartbeat if there is none. The number of a
// notification is the time since the first one in seconds, because it must grow.
func notifyProgress(ctx context.Context, req *sdk.CallToolRequest, token any,
	latest <-chan string,
) {
	started := time.Now()
	silence := time.NewTimer(heartbeat)
	defer silence.Stop()
	last := 0.0
	for {
		message := "running"
		select {
		case <-ctx.Done():
			return
		case message = <-latest:
		case <-silence.C:
		}
		silence.Reset(heartbeat)
		last = max(last+0.001, time.Since(started).Seconds())
		err := req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
			ProgressToken: token, Progress: last, Message: message,
		})
		if err != nil {
			return // the client has disconnected
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(progressInterval):
		}
	}
}
