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
	root := newFolder(t)
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
	sc.Then(`^the response has Retry-After$`, w.saysWhen)
	sc.Then(`^the audit log contains (\d+) calls$`, w.countTrail)
	sc.Then(`^the calls ([\w ]+) succeed in this order$`, w.succeededInOrder)
	sc.Then(`^the call (\w+) reports its time in the queue$`, w.saysWaited)
	sc.When(`^I cancel the call (\w+)$`, w.giveUp)
	sc.When(`^the client of (\w+) disconnects$`, w.goAway)
	sc.Then(`^the call (\w+) ends with (\w+)$`, w.endedWith)
	sc.Then(`^the kept process still runs on the (host|container)$`, w.keptIsThere)
	sc.Then(`^the process "(.*)" (runs|does not run) in that container$`, w.processIs)
}

// backgroundCall is a call whose events are read as they come.
type backgroundCall struct {
	id    string
	leave context.CancelFunc
	over  chan struct{} // closed when end is set, or nothing more comes
	end   any           // the invocation
}

// begin starts a call and waits until it runs or is queued.
func (w *world) begin(ctx context.Context, name string, body map[string]any) error {
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	resp, err := w.daemon.send(ctx, http.MethodPost, "/v1/invocations", body, "application/x-ndjson")
	if err != nil {
		leave()
		return err
	}
	b := &backgroundCall{leave: leave, over: make(chan struct{})}
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
		return fmt.Errorf("call %s neither runs nor waits: %s %s", name, resp.Status, lines.Text())
	}
	return nil
}

func (b *backgroundCall) read(lines *bufio.Scanner) {
	defer close(b.over)
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
			return fmt.Errorf("%s is not: %s", name, a.raw)
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
			return fmt.Errorf("it holds what is not %s: %s", status, a.raw)
		}
		for name, b := range w.background {
			if a.at(fmt.Sprintf("/items/%d/id", i)) == b.id {
				got = append(got, name)
			}
		}
	}
	return differ(strings.Join(got, " "), names)
}

func (w *world) saysWhen() error {
	after := w.answer.header.Get("Retry-After")
	if n, err := strconv.Atoi(after); err != nil || n < 1 {
		return fmt.Errorf("Retry-After is %q", after)
	}
	return nil
}

func (w *world) countTrail(ctx context.Context, want int) error {
	var n int
	err := w.trail(func(db *sql.DB) error { return db.QueryRowContext(ctx, "SELECT count(*) FROM invocations").Scan(&n) })
	if err == nil && n != want {
		err = fmt.Errorf("it has %d", n)
	}
	return err
}

// endOf waits for the end of a call and gives its invocation.
func (w *world) endOf(name string) (answer, error) {
	b := w.background[name]
	select {
	case <-b.over:
	case <-time.After(20 * time.Second):
		return answer{}, fmt.Errorf("call %s does not end", name)
	}
	raw, err := json.Marshal(b.end)
	return answer{status: http.StatusOK, raw: raw, value: b.end}, err
}

func (w *world) succeededInOrder(names string) error {
	var ended []string
	for name := range strings.FieldsSeq(names) {
		a, err := w.endOf(name)
		if err != nil {
			return err
		}
		if a.at("/status") != "succeeded" {
			return fmt.Errorf("%s: %s", name, a.raw)
		}
		ended = append(ended, fmt.Sprint(a.at("/ended_at")))
	}
	if !slices.IsSortedFunc(ended, byTime) {
		return fmt.Errorf("they ended at %v", ended)
	}
	return nil
}

func byTime(a, b string) int {
	x, err1 := time.Parse(time.RFC3339Nano, a)
	y, err2 := time.Parse(time.RFC3339Nano, b)
	if errors.Join(err1, err2) != nil {
		return 1
	}
	return x.Compare(y)
}

func (w *world) saysWaited(name string) (err error) {
	if w.answer, err = w.endOf(name); err != nil {
		return err
	}
	return w.compared("/metadata/queued_ms", "above", "0")
}

func (w *world) giveUp(ctx context.Context, name string) (err error) {
	w.answer, err = w.daemon.ask(ctx, http.MethodPost,
		"/v1/invocations/"+w.background[name].id+"/cancel", nil)
	return err
}

func (w *world) goAway(name string) { w.background[name].leave() }

// endedWith looks for a reason, or for a code of the error.
func (w *world) endedWith(ctx context.Context, name, word string) error {
	a, err := w.endOf(name)
	if err == nil && a.value == nil { // its client does not know
		a, err = w.daemon.ask(ctx, http.MethodGet,
			"/v1/invocations/"+w.background[name].id+"?wait_ms=20000", nil)
	}
	if err == nil && a.at("/reason") != word && a.at("/error/code") != word {
		err = fmt.Errorf("it has not: %s", a.raw)
	}
	return err
}

// keptIsThere looks for the pid that the tool printed, which is one of its environment's own, and
// ends that process.
func (w *world) keptIsThere(ctx context.Context, where string) error {
	pid := strings.TrimSpace(w.output("stdout"))
	if kept := fmt.Sprint(w.answer.at("/metadata/kill/kept/0")); kept != pid {
		return fmt.Errorf("the tool left %s running, and %s is told", pid, kept)
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
		err = fmt.Errorf("there are:\n%s", out)
	}
	return err
}
