package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/textview"
)

// callResult is the structured content of a result. It has all that the text has.
type callResult struct {
	ID         string          `json:"id"`
	Tool       string          `json:"tool"`
	Status     dray.Status     `json:"status"`
	Reason     dray.Reason     `json:"reason,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Signal     *dray.Signal    `json:"signal,omitempty"`
	Stdout     string          `json:"stdout"`
	Stderr     string          `json:"stderr"`
	Truncated  bool            `json:"truncated"`
	Output     json.RawMessage `json:"output,omitempty"`
	Error      *dray.Error     `json:"error,omitempty"`
	DurationMS float64         `json:"duration_ms"`
	Container  string          `json:"container,omitempty"`
	Warnings   []string        `json:"warnings,omitempty"`
	Synced     []string        `json:"synced,omitempty"`
	// Session is the session of a shell in which the call ran, nil for none.
	Session *dray.SessionReport `json:"session,omitempty"`
	// Approval is the id of the approval that the call waits for, empty if it waits for none.
	Approval string `json:"approval,omitempty"`
}

// endResult returns the result of a call that has ended.
func endResult(rec dray.Record, view int) *sdk.CallToolResult {
	return newCallResult(rec, view).result(isError(rec))
}

// isError reports whether a call did not run to its end (MC-03).
func isError(rec dray.Record) bool {
	return rec.Reason != dray.ReasonExited || rec.Error != nil && rec.Error.Code != ""
}

func newCallResult(rec dray.Record, view int) callResult {
	r := callResult{
		ID: rec.ID, Tool: rec.Tool, Status: rec.Status, Reason: rec.Reason, ExitCode: rec.ExitCode,
		Signal: rec.Signal, Warnings: rec.Metadata.Warnings, Session: rec.Metadata.Session,
	}
	if rec.Error != nil && (rec.Error.Code != "" || rec.Error.Message != "") {
		r.Error = rec.Error
	}
	if rec.DurationMS != nil {
		r.DurationMS = *rec.DurationMS
	}
	if c := rec.Metadata.Container; c != nil {
		r.Container = c.Name
	}
	if sync := rec.Metadata.Sync; sync != nil {
		for _, f := range sync.Files {
			r.Synced = append(r.Synced, f.Path)
		}
	}
	r.setStreams(rec.Stdout.Text, rec.Stderr.Text, view)
	r.Truncated = r.Truncated || rec.Stdout.OmittedBytes+rec.Stderr.OmittedBytes > 0
	r.setOutput(rec.Output, view)
	return r
}

// setStreams sets the views of the streams, and whether one of them is shortened.
func (r *callResult) setStreams(stdout, stderr string, view int) {
	var cut [2]bool
	r.Stdout, cut[0] = textview.View(stdout, view, r.ID)
	r.Stderr, cut[1] = textview.View(stderr, view, r.ID)
	r.Truncated = cut[0] || cut[1]
}

// setOutput sets the output of the tool. A large one becomes a text with its head and its tail.
func (r *callResult) setOutput(output json.RawMessage, view int) {
	switch {
	case string(output) == "null":
	case len(output) <= 4*view:
		r.Output = output
	default:
		r.Truncated = true
		text, _ := textview.Bound(string(output), 4*view, r.ID)
		r.Output, _ = json.Marshal(text) // a text always has a JSON form
	}
}

func (r callResult) result(isError bool) *sdk.CallToolResult {
	return &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: r.text()}},
		StructuredContent: r, IsError: isError,
	}
}

// text returns the result as text. Its first line says how the call ended.
func (r callResult) text() string {
	var b strings.Builder
	b.WriteString("[" + strings.Join(r.header(), " · ") + "]\n")
	if r.Error != nil && r.Error.Message != "" {
		b.WriteString("error: " + r.Error.Message + "\n")
		if r.Error.Hint != "" {
			b.WriteString("hint: " + r.Error.Hint + "\n")
		}
	}
	if r.Approval != "" {
		b.WriteString("the call " + approvalMessage(r.Approval) + "\n")
	}
	for _, w := range r.Warnings {
		b.WriteString("warning: " + w + "\n")
	}
	for _, path := range r.Synced {
		b.WriteString("fetched: " + path + "\n")
	}
	b.WriteString(r.Stdout)
	if r.Stderr != "" {
		if !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString("[stderr]\n" + r.Stderr)
	}
	if r.Output != nil {
		b.Write(r.Output)
	}
	if r.Reason == "" {
		fmt.Fprintf(&b, "\n[the call has not ended: wait for it with read_output and id %s, or end it "+
			"with cancel_call]", r.ID)
	}
	return b.String()
}

func (r callResult) header() []string {
	words := []string{r.outcome()}
	if r.DurationMS > 0 {
		d := time.Duration(r.DurationMS * float64(time.Millisecond))
		words = append(words, d.Round(time.Millisecond).String())
	}
	words = append(words, "id "+r.ID)
	if r.Truncated {
		words = append(words, "output truncated")
	}
	return words
}

func (r callResult) outcome() string {
	switch {
	case r.ExitCode != nil:
		return fmt.Sprintf("exit %d", *r.ExitCode)
	case r.Signal != nil:
		return "killed by " + r.Signal.Name
	case r.Error != nil && r.Error.Code != "":
		return fmt.Sprintf("%s (%s)", r.Reason, r.Error.Code)
	case r.Reason != "":
		return string(r.Reason)
	default:
		return string(r.Status)
	}
}

// runningResult returns the result of a call that still runs, with its output so far.
func runningResult(c *call.Call, view int) *sdk.CallToolResult {
	rec := c.Record()
	r := callResult{
		ID: rec.ID, Tool: rec.Tool, Status: rec.Status, Approval: rec.Approval,
		DurationMS: float64(time.Since(rec.StartedAt).Milliseconds()),
	}
	r.setStreams(soFar(c, dray.Stdout), soFar(c, dray.Stderr), view)
	return r.result(false)
}

// soFar returns the output of a call that runs, as far as its events retain it.
func soFar(c *call.Call, stream dray.Stream) string {
	text, _ := c.Events().BufferedOutput(stream)
	return strings.ToValidUTF8(string(text), "\uFFFD")
}
