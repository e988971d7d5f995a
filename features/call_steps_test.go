package features

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/cucumber/godog"
)

func (w *world) callSteps(sc *godog.ScenarioContext) {
	sc.Step(`^the call request includes (\{.*\})$`, w.alsoSays)
	sc.Given(`^the call request includes (\d+) bytes of stdin$`, w.hasStdin)
	sc.Given(`^a new call request$`, w.anotherCall)
	sc.When(`^I call the tool (\S+) with (\{.*\})$`, w.callTool)
	sc.When(`^I call the tool (\S+) with an input of (\d+) nested levels$`, w.callDeep)
	sc.When(`^I send the call request (.*)$`, w.askRaw)
	sc.When(`^I make (\d+) concurrent calls of (\S+) with (\{.*\})$`, w.callMany)
	sc.Given(`^a running call of (\S+) has printed "([^"]*)", with (\{.*\})$`, w.callAndWait)
	sc.When(`^the client of (\S+) disconnects after "([^"]*)", with (\{.*\})$`, w.callAndLeave)
	sc.When(`^I cancel the call$`, w.cancelCall)
}

func (w *world) alsoSays(text string) error {
	return json.Unmarshal([]byte(w.named(text)), &w.body)
}

func (w *world) hasStdin(n int) {
	w.body["stdin_base64"] = base64.StdEncoding.EncodeToString(make([]byte, n))
}

func (w *world) anotherCall() {
	w.answer, w.body = answer{}, map[string]any{"workspace": w.names["workspace"]}
	if id, ok := w.names["own container"]; ok {
		w.body = map[string]any{"container": id}
	}
}

// request is the body of the next call.
func (w *world) request(tool, input string) map[string]any {
	body := map[string]any{"tool": tool, "input": json.RawMessage(w.named(input))}
	maps.Copy(body, w.body)
	return body
}

func (w *world) callTool(ctx context.Context, tool, input string) (err error) {
	w.answer, err = w.daemon.call(ctx, "", w.request(tool, input))
	return err
}

// callDeep nests a path in levels objects below the top one.
func (w *world) callDeep(ctx context.Context, tool string, levels int) error {
	inner := `{"a":`
	return w.callTool(ctx, tool, strings.Repeat(inner, levels+1)+`"{workspace}/deepest"`+strings.Repeat("}", levels+1))
}

func (w *world) askRaw(ctx context.Context, body string) (err error) {
	w.answer, err = w.daemon.ask(ctx, http.MethodPost, "/v1/invocations", w.named(body))
	return err
}

func (w *world) callMany(ctx context.Context, n int, tool, input string) error {
	var mu sync.Mutex
	var all sync.WaitGroup
	var failures []error
	w.many = map[int]answer{}
	for i := range n {
		body := w.request(tool, input)
		body["stdin"] = strconv.Itoa(i) + "\n"
		all.Go(func() {
			a, err := w.daemon.call(ctx, "", body)
			mu.Lock()
			defer mu.Unlock()
			w.many[i] = a
			failures = append(failures, err)
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// runningCall is a call whose events are followed.
type runningCall struct {
	events *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// leave closes the events. It may be called on nil.
func (r *runningCall) leave() {
	if r == nil || r.events == nil {
		return
	}
	r.cancel()
	_ = r.events.Body.Close()
	r.events = nil
}

// until reads events until stdout contains a text.
func (r *runningCall) until(text string) error {
	var printed strings.Builder
	for r.lines.Scan() {
		var event struct{ Event, Text string }
		if err := json.Unmarshal(r.lines.Bytes(), &event); err != nil {
			return err
		}
		if event.Event == "stdout" {
			printed.WriteString(event.Text)
		}
		if strings.Contains(printed.String(), text) {
			return nil
		}
		if event.Event == "end" {
			return fmt.Errorf("the call ended before it printed %q: %s", text, r.lines.Text())
		}
	}
	return fmt.Errorf("the events ended before %q was printed: %w", text, r.lines.Err())
}

// follow opens a stream of events.
func (w *world) follow(ctx context.Context, method, path string, body any) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	resp, err := w.daemon.send(ctx, method, path, body, "application/x-ndjson") //nolint:bodyclose // leave closes it
	if err != nil {
		cancel()
		return err
	}
	w.running = &runningCall{events: resp, lines: bufio.NewScanner(resp.Body), cancel: cancel}
	w.running.lines.Buffer(nil, 1<<20)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the response to the request for events is %s", resp.Status)
	}
	return nil
}

func (w *world) callAndWait(ctx context.Context, tool, text, input string) (err error) {
	if w.answer, err = w.daemon.call(ctx, "?wait_ms=0", w.request(tool, input)); err != nil {
		return err
	}
	if w.answer.status != http.StatusAccepted ||
		w.answer.header.Get("Location") != "/v1/invocations/"+w.answer.id() {
		return fmt.Errorf("answered with %d, Location %q: %s", w.answer.status,
			w.answer.header.Get("Location"), w.answer.raw)
	}
	if err := w.follow(ctx, http.MethodGet, "/v1/invocations/"+w.answer.id()+"/events",
		nil); err != nil {
		return err
	}
	return w.running.until(text)
}

func (w *world) callAndLeave(ctx context.Context, tool, text, input string) error {
	if err := w.follow(ctx, http.MethodPost, "/v1/invocations", w.request(tool, input)); err != nil {
		return err
	}
	location := w.running.events.Header.Get("Location")
	if err := w.running.until(text); err != nil {
		return err
	}
	w.running.leave()
	return w.await(ctx, location)
}

// await reads the record of a call after its end.
func (w *world) await(ctx context.Context, location string) (err error) {
	w.answer, err = w.daemon.ask(ctx, http.MethodGet, location+"?wait_ms=20000", nil)
	return err
}

func (w *world) cancelCall(ctx context.Context) (err error) {
	w.answer, err = w.daemon.ask(ctx, http.MethodPost, "/v1/invocations/"+w.answer.id()+"/cancel", nil)
	return err
}
