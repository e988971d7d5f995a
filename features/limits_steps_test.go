package features

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cucumber/godog"
)

func TestLimits(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	runFeature(t, "limits.feature", &fixture{root: root, names: map[string]string{"root": root}})
}

func (w *world) limitsSteps(sc *godog.ScenarioContext) {
	sc.Given(`^calls ([\w ]+) in the container that wait for the file "(\w+)"$`, w.beginWaiting)
	sc.When(`^I call the tool (\w+) in the background with (\{.*\})$`, w.beginTool)
	sc.When(`^the file "(\w+)" is created in the container$`, w.touch)
	sc.When(`^the file (\S+) is created on the host$`, func(path string) error { return writeFile(w.named(path), "") })
	sc.When(`^half a second has passed$`, func() { <-time.After(500 * time.Millisecond) })
	sc.Step(`^the calls? ([\w ]+) (?:is|are) (queued|running)$`, w.haveStatus)
	sc.Step(`^the list of (queued|running) calls is ([\w ]+)$`, w.listIs)
	sc.Then(`^the response has Retry-After$`, w.hasRetryAfter)
	sc.Then(`^the audit log contains (\d+) calls$`, w.countRecorded)
	sc.Then(`^the calls ([\w ]+) succeed$`, w.allSucceeded)
	sc.Then(`^the calls ([\w ]+) succeed in this order$`, w.succeededInOrder)
	sc.Then(`^the call (\w+) was queued for more than (\d+) ms$`, w.wasQueuedFor)
	sc.When(`^I cancel the call (\w+)$`, w.cancelNamed)
	sc.When(`^the client of (\w+) disconnects$`, w.disconnect)
	sc.Then(`^the call (\w+) ends with (\w+)$`, w.endedWith)
	sc.Then(`^the kept process still runs on the (host|container)$`, w.keptStillRuns)
	sc.Then(`^the process "(.*)" (runs|does not run) in that container$`, w.processIs)
}

// backgroundCall is a call whose events are read in the background.
type backgroundCall struct {
	id    string
	leave context.CancelFunc
	done  chan struct{} // closed at the end of the events
	end   any           // the invocation, nil if the events did not contain it
}

// begin starts a call and waits until it runs or is queued.
func (w *world) begin(ctx context.Context, name string, body map[string]any) error {
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	resp, err := w.daemon.send(ctx, http.MethodPost, "/v1/invocations", body, "application/x-ndjson")
	if err != nil {
		leave()
		return err
	}
	b := &backgroundCall{leave: leave, done: make(chan struct{})}
	var reading sync.WaitGroup
	w.later(func(context.Context) error { leave(); reading.Wait(); return nil })
	lines := bufio.NewScanner(resp.Body)
	for b.id == "" && lines.Scan() {
		var ev struct{ Event, Status, Phase string }
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			return err
		}
		if ev.Status == "queued" || ev.Phase == "started" {
			_, b.id, _ = strings.Cut(resp.Header.Get("Location"), "/v1/invocations/")
		}
	}
	if w.background == nil {
		w.background = map[string]*backgroundCall{}
	}
	w.background[name] = b
	reading.Go(func() { defer resp.Body.Close(); b.read(lines) })
	if b.id == "" {
		return fmt.Errorf("call %s is neither running nor queued: %s %s", name, resp.Status, lines.Text())
	}
	return nil
}

func (b *backgroundCall) read(lines *bufio.Scanner) {
	defer close(b.done)
	for lines.Scan() {
		if ev, err := decode(lines.Bytes()); err == nil {
			if inv := (answer{value: ev}).at("/invocation"); inv != nil {
				b.end = inv
			}
		}
	}
}

func (w *world) beginWaiting(ctx context.Context, names, file string) error {
	for name := range strings.FieldsSeq(names) {
		script := fmt.Sprintf("until [ -e /tmp/%s ]; do sleep 0.05; done", file)
		input, err := json.Marshal(map[string]any{"argv": []string{"sh", "-c", script}})
		if err != nil {
			return err
		}
		if err := w.begin(ctx, name, w.request("exec", string(input))); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) beginTool(ctx context.Context, tool, input string) error {
	return w.begin(ctx, tool, w.request(tool, input))
}

func (w *world) touch(ctx context.Context, file string) error {
	_, err := docker(ctx, "exec", w.names["own container"], "touch", "/tmp/"+file)
	return err
}

func (w *world) haveStatus(ctx context.Context, names, status string) error {
	for name := range strings.FieldsSeq(names) {
		a, err := w.daemon.ask(ctx, http.MethodGet, "/v1/invocations/"+w.background[name].id, nil)
		if err != nil {
			return err
		}
		if a.at("/status") != status {
			return fmt.Errorf("%s is not %s: %s", name, status, a.raw)
		}
	}
	return nil
}

func (w *world) listIs(ctx context.Context, status, names string) error {
	a, err := w.daemon.ask(ctx, http.MethodGet, "/v1/invocations?status="+status, nil)
	if err != nil {
		return err
	}
	items, _ := a.at("/items").([]any)
	var got []string
	for i := range items {
		if a.at(fmt.Sprintf("/items/%d/status", i)) != status {
			return fmt.Errorf("the list contains a call that is not %s: %s", status, a.raw)
		}
		for name, b := range w.background {
			if a.at(fmt.Sprintf("/items/%d/id", i)) == b.id {
				got = append(got, name)
			}
		}
	}
	return differ(strings.Join(got, " "), names)
}

func (w *world) hasRetryAfter() error {
	after := w.answer.header.Get("Retry-After")
	if n, err := strconv.Atoi(after); err != nil || n < 1 {
		return fmt.Errorf("Retry-After is %q", after)
	}
	return nil
}

func (w *world) countRecorded(ctx context.Context, want int) error {
	var n int
	err := w.trail(func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT count(*) FROM "+
			"invocations").Scan(&n)
	})
	if err == nil && n != want {
		err = fmt.Errorf("the audit log contains %d calls, not %d", n, want)
	}
	return err
}

// endOf waits for the end of a call and returns its invocation.
func (w *world) endOf(name string) (answer, error) {
	b := w.background[name]
	select {
	case <-b.done:
	case <-time.After(20 * time.Second):
		return answer{}, fmt.Errorf("call %s does not end", name)
	}
	raw, err := json.Marshal(b.end)
	return answer{status: http.StatusOK, raw: raw, value: b.end}, err
}

func (w *world) allSucceeded(names string) error {
	_, err := w.endTimes(names)
	return err
}

// succeededInOrder compares the times at which the calls ended. A slot is released a moment before
// the end of its call is recorded, so the order is certain only for calls that start a process.
func (w *world) succeededInOrder(names string) error {
	ended, err := w.endTimes(names)
	if err == nil && !slices.IsSortedFunc(ended, byTime) {
		err = fmt.Errorf("the calls ended at %v", ended)
	}
	return err
}

// endTimes waits for the calls, which must succeed, and returns when they ended.
func (w *world) endTimes(names string) (ended []string, err error) {
	for name := range strings.FieldsSeq(names) {
		a, err := w.endOf(name)
		if err != nil {
			return nil, err
		}
		if a.at("/status") != "succeeded" {
			return nil, fmt.Errorf("%s: %s", name, a.raw)
		}
		ended = append(ended, fmt.Sprint(a.at("/ended_at")))
	}
	return ended, nil
}

func byTime(a, b string) int {
	x, err1 := time.Parse(time.RFC3339Nano, a)
	y, err2 := time.Parse(time.RFC3339Nano, b)
	if errors.Join(err1, err2) != nil {
		return 1
	}
	return x.Compare(y)
}

func (w *world) wasQueuedFor(name, ms string) (err error) {
	if w.answer, err = w.endOf(name); err != nil {
		return err
	}
	return w.compared("/metadata/queued_ms", "above", ms)
}

func (w *world) cancelNamed(ctx context.Context, name string) (err error) {
	w.answer, err = w.daemon.ask(ctx, http.MethodPost,
		"/v1/invocations/"+w.background[name].id+"/cancel", nil)
	return err
}

func (w *world) disconnect(name string) { w.background[name].leave() }

// endedWith compares the reason and the code of the error; one of them must be word.
func (w *world) endedWith(ctx context.Context, name, word string) error {
	a, err := w.endOf(name)
	if err == nil && a.value == nil { // its client has disconnected
		a, err = w.daemon.ask(ctx, http.MethodGet,
			"/v1/invocations/"+w.background[name].id+"?wait_ms=20000", nil)
	}
	if err == nil && a.at("/reason") != word && a.at("/error/code") != word {
		err = fmt.Errorf("the call did not end with %s: %s", word, a.raw)
	}
	return err
}

// keptStillRuns compares the recorded pid with the one that the tool printed, which is a pid of its
// environment, and kills that process.
func (w *world) keptStillRuns(ctx context.Context, where string) error {
	pid := strings.TrimSpace(w.output("stdout"))
	if kept := fmt.Sprint(w.answer.at("/metadata/kill/kept/0")); kept != pid {
		return fmt.Errorf("the tool left process %s running, and the record names %s", pid, kept)
	}
	if where == "container" {
		_, err := docker(ctx, "exec", w.names["own container"], "kill", "-9", pid)
		return err
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	return syscall.Kill(n, syscall.SIGKILL)
}

func (w *world) processIs(ctx context.Context, command, where string) error {
	out, err := docker(ctx, "top", w.names["own container"], "-eo", "pid,args")
	if err == nil && strings.Contains(out, command) != (where == "in") {
		err = fmt.Errorf("the processes are:\n%s", out)
	}
	return err
}
