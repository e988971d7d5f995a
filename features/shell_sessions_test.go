package features

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/soakreport"
)

var shellSessionsPage = soakreport.Page{
	File: "shell-sessions.md", Title: "Sessions of shells side by side",
	Text: `Each session gets commands at random: cd, export, unset, a function, an exit code, a subshell, a
background job, a shell that is killed or replaced, and a timeout. Each command begins by
printing the directory, the variables and the function that the one before has left, which the
test compares with a model. All sessions of all rows run at once. While they do, the engine
restarts the containers with SIGKILL: a call that this ends may fail, and changes nothing of its
session's state then. *Lost* counts the commands whose changes could not be kept and whose
result says so, *interrupted* the calls that failed because of a restart. *Wrong* counts
commands with another directory, variable, function or exit code than the model's, or with a
loss that was not reported or not due. *Left* counts processes and result directories after the
last call, as the engine and the kernel list them.`,
	Target: "nothing is wrong, nothing is left",
	Columns: []string{
		"environment", "shell", "sessions", "commands", "restarts", "lost", "interrupted", "wrong", "left",
	},
	Key: 2,
}

// shellPlace is where sessions run.
type shellPlace struct {
	environment, shell string
	container          string // name in the configuration; empty on the host
	id                 string // of the container
	dir                string // of the sessions
	functions          bool   // the shell's functions are kept
	sessions           int

	mu                                               sync.Mutex
	commands, restarts, lost, interrupted, bad, left int
}

func (p *shellPlace) cells() []soakreport.Cell {
	return []soakreport.Cell{
		soakreport.Value(p.sessions), soakreport.Value(p.commands), soakreport.Value(p.restarts),
		soakreport.Value(p.lost), soakreport.Value(p.interrupted), soakreport.Exactly(p.bad, 0),
		soakreport.Exactly(p.left, 0),
	}
}

func (p *shellPlace) add(counter *int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*counter++
}

// Sessions of shells keep their directory, variables and functions or report the loss, whatever
// their commands and their container do, and leave nothing (SS-01).
func TestSoakShellSessions(t *testing.T) {
	needsEngine(t)
	r := soakreport.Rand(t)
	root := newDir(t)
	job := fmt.Sprint(900_000_000 + r.IntN(90_000_000)) // seconds of a background job of this test
	all := soakreport.Count(200, 20)
	places := []*shellPlace{
		{environment: "host", shell: "/bin/sh", dir: root, sessions: all / 5},
		{environment: "container", shell: "sh", container: "busybox", dir: "/tmp", sessions: all * 2 / 5},
		{
			environment: "container", shell: "bash", container: "debian", dir: "/tmp", functions: true,
			sessions: all * 2 / 5,
		},
	}
	places[1].id = plainContainer(t)
	places[2].id = debianContainer(t)
	d := startDaemon(t, fmt.Sprintf("host: {roots: [%s]}\ncontainers: {busybox: {id: %s}, debian: {id: %s}}\n"+
		"breaker: {open: 500ms}\n", // else it refuses calls for 30 s after each restart
		root, places[1].id, places[2].id))
	var group sync.WaitGroup
	for _, p := range places {
		shellSessionsPage.Row(t, []string{p.environment, p.shell}, p.cells)
		for i := range p.sessions {
			s := &soakedSession{
				daemon: d, t: t, place: p, name: fmt.Sprint("s", i), job: job,
				r: rand.New(rand.NewPCG(r.Uint64(), 0)),
			}
			group.Go(func() { s.run(soakreport.Count(50, 15)) })
		}
	}
	done := make(chan struct{})
	restarts := sync.WaitGroup{}
	for _, p := range places[1:] {
		restarts.Go(func() { p.restart(t, soakreport.Count(50, 15), soakreport.Count(5, 1), done) })
	}
	group.Wait()
	close(done)
	restarts.Wait()
	for _, p := range places {
		p.checkNothingLeft(t, job)
		if p.id != "" && p.restarts == 0 {
			t.Errorf("%s was not restarted: the test shows less than it says", p.container)
		}
	}
	if names, err := os.ReadFile(filepath.Join(d.state, "shell-sessions.jsonl")); err != nil || len(names) > 0 {
		t.Errorf("the list of sessions: %q, %v", names, err)
	}
}

func debianContainer(t *testing.T) string {
	t.Helper()
	id, err := docker(t.Context(), "run", "--detach", "--init", debian, "sleep", "1000000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = docker(context.WithoutCancel(t.Context()), "rm", "--force", id) })
	return id
}

// restart restarts the container as often as times, each after its share of the commands.
func (p *shellPlace) restart(t *testing.T, commands, times int, done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n := range times {
		for {
			p.mu.Lock()
			reached := p.commands >= p.sessions*commands*(n+1)/(times+1)
			p.mu.Unlock()
			if reached {
				break
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
		if _, err := docker(t.Context(), "restart", "--time", "0", p.id); err != nil {
			t.Error(err)
			return
		}
		p.add(&p.restarts)
	}
}

// commandLines returns the command lines of the kernel's processes that contain a text.
func commandLines(t *testing.T, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if args, _ := os.ReadFile(file); strings.Contains(string(args), text) {
			found = append(found, string(args))
		}
	}
	return found
}

// checkNothingLeft asks the kernel for the host's processes, and the engine for the container's.
func (p *shellPlace) checkNothingLeft(t *testing.T, job string) {
	t.Helper()
	var left []string
	if p.id == "" {
		left = commandLines(t, job)
	} else {
		top, err := docker(t.Context(), "top", p.id, "-eo", "pid,args")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(top) {
			if strings.Contains(line, job) || strings.Contains(line, "__dray_state") {
				left = append(left, line)
			}
		}
		saved, err := docker(t.Context(), "exec", p.id, "find", "/", "-xdev", "-name", ".dray-session")
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, strings.Fields(saved)...)
	}
	p.left = len(left)
	if p.left > 0 {
		t.Errorf("%s: left are %q", p.environment, left)
	}
}

// soakedSession is one session, and the state that it must have.
type soakedSession struct {
	*daemon
	t     *testing.T
	place *shellPlace
	name  string
	job   string
	r     *rand.Rand

	root      string // its directory
	depth     []string
	variables [3]string // "" is unset
	function  string    // what it prints
}

// soakedCommand is a command and what must come of it.
type soakedCommand struct {
	text    string
	reason  string // exited, signalled or timeout
	code    int
	lost    bool
	timeout float64
	change  func() // of the model, if nothing is lost
}

func (s *soakedSession) run(commands int) {
	s.root = fmt.Sprintf("%s/%s", s.place.dir, s.name)
	s.try(s.begin(), false)
	for range commands - 2 {
		s.try(s.next(), false)
	}
	s.try(soakedCommand{reason: "exited"}, true)
}

// begin makes the session's directory. It begins the session itself.
func (s *soakedSession) begin() soakedCommand {
	return soakedCommand{
		text: fmt.Sprintf("mkdir -p %[1]s && cd %[1]s && unset V0 V1 V2", s.root), reason: "exited",
		change: func() { s.depth = []string{} },
	}
}

// next returns a command at random.
func (s *soakedSession) next() soakedCommand {
	n, value := s.r.IntN(len(s.variables)), fmt.Sprintf("%d 'a\"$b\\\n\t*", s.r.IntN(1000))
	quoted := "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	set := func() { s.variables[n] = value }
	kinds := []func() soakedCommand{
		func() soakedCommand {
			if len(s.depth) > 5 {
				return soakedCommand{text: "cd ..", change: func() { s.depth = s.depth[:len(s.depth)-1] }}
			}
			name := fmt.Sprintf("d %d", s.r.IntN(3))
			return soakedCommand{
				text:   fmt.Sprintf("mkdir -p '%[1]s'; cd '%[1]s'", name),
				change: func() { s.depth = append(slices.Clone(s.depth), name) },
			}
		},
		func() soakedCommand {
			return soakedCommand{text: fmt.Sprintf("export V%d=%s", n, quoted), change: set}
		},
		func() soakedCommand {
			return soakedCommand{
				text: fmt.Sprintf("export V%d=%s; exit %d", n, quoted, 10+n), code: 10 + n, change: set,
			}
		},
		func() soakedCommand {
			return soakedCommand{
				text: fmt.Sprintf("unset V%d", n), change: func() { s.variables[n] = "" },
			}
		},
		func() soakedCommand {
			text := fmt.Sprint("function ", s.r.IntN(1000))
			return soakedCommand{
				text: fmt.Sprintf("f() { printf '%%s' '%s'; }", text),
				change: func() {
					if s.place.functions {
						s.function = text
					}
				},
			}
		},
		func() soakedCommand { return soakedCommand{text: "(cd /; export V0=no; exit 7)", code: 7} },
		func() soakedCommand { return soakedCommand{text: "no-such-program 2>/dev/null", code: 127} },
		func() soakedCommand { return soakedCommand{text: "sleep " + s.job + " & :"} },
		func() soakedCommand {
			return soakedCommand{text: "(sleep " + s.job + " &); export V0=" + quoted, change: func() {
				s.variables[0] = value
			}}
		},
		func() soakedCommand {
			return soakedCommand{text: "cd /; export V1=no; kill -9 $$", reason: "signalled", lost: true}
		},
		func() soakedCommand {
			return soakedCommand{text: "cd /; export V1=no; exec true", lost: true}
		},
	}
	c := kinds[s.r.IntN(len(kinds))]()
	if s.r.IntN(30) == 0 {
		c = soakedCommand{
			text: "cd /; export V2=no; sleep " + s.job, reason: "timeout", lost: true, timeout: 0.5,
		}
	}
	if c.reason == "" {
		c.reason = "exited"
	}
	return c
}

// probe prints the state that the command finds, and wants what it must print.
func (s *soakedSession) probe() (text, wants string) {
	if s.depth == nil {
		return "", ""
	}
	text = `printf '%s\036' "$PWD" "${V0-unset}" "${V1-unset}" "${V2-unset}"; ` +
		"{ f || printf none; } 2>/dev/null\n"
	parts := []string{strings.Join(append([]string{s.root}, s.depth...), "/")}
	for _, v := range s.variables {
		if v == "" {
			v = "unset"
		}
		parts = append(parts, v)
	}
	function := s.function
	if function == "" {
		function = "none"
	}
	return text, strings.Join(append(parts, function), "\036")
}

// try runs a command until the container is there for it, and checks what came of it.
func (s *soakedSession) try(c soakedCommand, end bool) {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		if s.once(c, end) {
			s.place.add(&s.place.commands)
			return
		}
		if s.place.id == "" || time.Now().After(deadline) {
			s.wrong("%q does not run", c.text)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// once runs a command and reports whether it ran to its end. One that a restart has ended changes
// nothing of the session, so it can be repeated.
func (s *soakedSession) once(c soakedCommand, end bool) bool {
	probe, wants := s.probe()
	body := map[string]any{
		"tool": "shell", "environment": s.place.environment, "timeout_seconds": 110,
		"input": map[string]any{
			"command": probe + c.text, "shell": s.place.shell, "session": s.name, "end": end,
		},
	}
	if s.place.container == "" {
		body["workspace"] = s.place.dir
	} else {
		body["container"] = s.place.container
	}
	if c.timeout > 0 {
		body["timeout_seconds"] = c.timeout
	}
	a, err := s.call(s.t.Context(), "", body)
	switch {
	case err != nil:
		s.wrong("%q: %v", c.text, err)
		return true
	case a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable:
		return false
	case a.status != http.StatusOK:
		s.wrong("%q: %d %s", c.text, a.status, a.raw)
		return true
	}
	reason, lost := a.at("/reason"), a.at("/metadata/session/lost")
	if s.place.id != "" && (reason == "unavailable" || reason != c.reason && a.at("/error/code") != nil) {
		s.place.add(&s.place.interrupted)
		return false
	}
	got := fmt.Sprint(a.at("/stdout/text"))
	started := a.at("/metadata/kill") != nil // else its time was up while it waited
	switch {
	case reason != c.reason,
		reason == "exited" && a.at("/exit_code") != json.Number(fmt.Sprint(c.code)):
		s.wrong("%q ends with %s", c.text, a.raw)
	case started && (lost != nil) != c.lost:
		s.wrong("%q lost %v", c.text, lost)
	case c.timeout == 0 && got != wants:
		s.wrong("%q found %q, want %q", c.text, got, wants)
	}
	switch {
	case lost != nil:
		s.place.add(&s.place.lost)
	case reason == "exited" && c.change != nil:
		c.change()
	}
	return true
}

func (s *soakedSession) wrong(format string, args ...any) {
	s.place.add(&s.place.bad)
	s.t.Errorf("%s %s, session %s: %.1500s", s.place.environment, s.place.shell, s.name,
		fmt.Sprintf(format, args...))
}

// Commands that wait for their session hold no slot, and are cancelled at once (SS-01, EX-13).
func TestShellSession_WaitsWithoutSlot(t *testing.T) {
	root := newDir(t)
	d := startDaemon(t, "host: {roots: ["+root+"]}\nlimits: {concurrent: 2}\n")
	start := func(command string) string {
		t.Helper()
		a, err := d.call(t.Context(), "?wait_ms=0", map[string]any{
			"tool": "shell", "cwd": root, "timeout_seconds": 60,
			"input": map[string]any{"command": command, "session": "s"},
		})
		if err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%d %s, %v", a.status, a.raw, err)
		}
		return a.id()
	}
	first := start("export N=1; sleep 600")
	var waiting []string
	for range 6 {
		waiting = append(waiting, start("echo $N"))
	}
	free, err := d.call(t.Context(), "", map[string]any{
		"tool": "exec", "cwd": root, "input": map[string]any{"argv": []string{"true"}},
	})
	if err != nil || free.at("/status") != "succeeded" {
		t.Errorf("a call beside a session with waiting calls: %v, %s", err, free.raw)
	}
	for _, id := range waiting {
		if a := getFrom(t, d, "/v1/invocations/"+id); a.at("/status") != "queued" {
			t.Errorf("a waiting call: %s", a.raw)
		}
	}
	cancel := func(id string) {
		t.Helper()
		a, err := d.ask(t.Context(), http.MethodPost, "/v1/invocations/"+id+"/cancel", nil)
		if err != nil || a.at("/reason") != "cancelled" || a.at("/error/code") != nil {
			t.Errorf("cancel: %v, %s", err, a.raw)
		}
	}
	cancel(waiting[0])
	cancel(first)
	for _, id := range waiting[1:] {
		a := getFrom(t, d, "/v1/invocations/"+id+"?wait_ms=60000")
		if a.at("/status") != "succeeded" || a.at("/stdout/text") != "\n" {
			t.Errorf("after the cancelled one: %s", a.raw)
		}
	}
}
