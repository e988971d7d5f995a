package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dray-dev/dray"
)

// The rows of the part sessions: a command of a shell with and without a session.
const (
	shellFresh   = "dray, HTTP, `shell`"
	shellExec    = "dray, HTTP, `exec`"
	shellSession = "dray, HTTP, `shell` in a session"
	shellMany    = "dray, HTTP, `shell` in a session with 100 variables and 10 functions"
	shellCLI     = "`dray exec`"
	shellCLIKept = "`dray exec --session NAME`"
	shellDocker  = "`docker exec bash -c`"
	shellRex     = "SWE-ReX, session"
)

var (
	// runShell is a command of its own, so that its rows are those of this part.
	runShell   = command{name: "`true` of a shell", argv: []string{"true"}}
	shellLoads = []load{{1, &runShell}, {16, &runShell}}
	shellCalls = map[int]int{1: 50, 16: 160}
)

// fillSession sets what the session of shellMany keeps.
const fillSession = `i=0; while [ $i -lt 100 ]; do i=$((i+1)); export "BENCH_$i=value $i"; done
for i in 1 2 3 4 5 6 7 8 9 10; do eval "bench_$i() { echo $i; }"; done`

// newShellMethods starts the sessions of the rows. Commands of one session run one after the
// other, so each caller has a session of its own.
func newShellMethods(ctx context.Context, b *testbed) ([]method, error) {
	shell := func(session, text string) runner {
		return b.daemon.counted(func(ctx context.Context, c *command) error {
			return b.daemon.http.shell(ctx, b.workspace, session, text, c)
		})
	}
	inSession := func(session string) runner { return shell(session, runShell.argv[0]) }
	prepare := func(context.Context, string) error { return nil }
	kept, err := perCaller(ctx, "kept", prepare, inSession)
	if err != nil {
		return nil, err
	}
	prepare = func(ctx context.Context, session string) error {
		return shell(session, fillSession)(ctx, &runShell)
	}
	many, err := perCaller(ctx, "many", prepare, inSession)
	if err != nil {
		return nil, err
	}
	cli := []string{b.dray, "exec", "--state", b.daemon.state, "--workspace", b.workspace}
	all := []method{
		{name: shellExec, calls: shellCalls, run: b.daemon.call(b.workspace, dray.ChooseContainer)},
		{name: shellFresh, calls: shellCalls, run: inSession("")},
		{name: shellSession, calls: shellCalls, run: kept},
		{name: shellMany, calls: shellCalls, run: many},
		{
			name: shellCLI, calls: five,
			run: b.daemon.counted(b.program(slices.Concat(cli, []string{"--"})...)),
		},
		{
			name: shellCLIKept, calls: five,
			run: b.daemon.counted(b.program(slices.Concat(cli, []string{"--session", "cli", "--"})...)),
		},
		{name: shellDocker, calls: five, run: b.program(append(b.dockerExec(), "bash", "-c")...)},
	}
	if b.rex == nil {
		return all, nil
	}
	rex, err := perCaller(ctx, "bench", b.rex.createSession, b.rex.inSession)
	return append(all, method{name: shellRex, calls: shellCalls, run: rex}), err
}

// perCaller prepares a session for each caller and returns a runner whose callers each take one.
func perCaller(ctx context.Context, name string, prepare func(context.Context, string) error,
	run func(session string) runner,
) (runner, error) {
	sessions := make(chan runner, shellLoads[1].callers)
	for i := range cap(sessions) {
		session := fmt.Sprintf("%s-%d", name, i)
		if err := prepare(ctx, session); err != nil {
			return nil, fmt.Errorf("session %s: %w", session, err)
		}
		sessions <- run(session)
	}
	return func(ctx context.Context, c *command) error {
		one := <-sessions
		defer func() { sessions <- one }()
		return one(ctx, c)
	}, nil
}

// shell makes a call of the tool shell, in a session if it has a name. It fails if the session lost
// its state.
func (h *httpClient) shell(ctx context.Context, workspace, session, text string, c *command) error {
	input := map[string]any{"command": text, "shell": "bash"}
	if session != "" {
		input["session"] = session
	}
	body, err := json.Marshal(map[string]any{
		"tool": "shell", "workspace": workspace, "environment": dray.ChooseContainer, "input": input,
	})
	if err != nil {
		return err
	}
	record, err := h.post(ctx, body)
	if err != nil {
		return err
	}
	if record.Error != nil {
		return fmt.Errorf("call %s in session %q: %w", record.ID, session, record.Error)
	}
	if record.ExitCode == nil || len(record.Metadata.Warnings) > 0 {
		return fmt.Errorf("call %s in session %q: %s, %v", record.ID, session, record.Reason,
			record.Metadata.Warnings)
	}
	return expect(c, *record.ExitCode, record.Stdout.Text)
}

// createSession starts a shell that SWE-ReX keeps.
func (x *rex) createSession(ctx context.Context, session string) error {
	_, err := x.post(ctx, "/create_session", map[string]any{
		"session": session, "session_type": "bash", "startup_timeout": rexTimeout.Seconds(),
	})
	return err
}

// inSession returns a runner of commands in such a shell.
func (x *rex) inSession(session string) runner {
	return func(ctx context.Context, c *command) error {
		text, err := x.post(ctx, "/run_in_session", map[string]any{
			"session": session, "action_type": "bash", "command": c.argv[0],
		})
		if err != nil {
			return err
		}
		var response struct {
			Output string
			Code   *int `json:"exit_code"`
		}
		if err := json.Unmarshal(text, &response); err != nil || response.Code == nil {
			return fmt.Errorf("SWE-ReX responded without an exit code: %s", text)
		}
		return expect(c, *response.Code, response.Output)
	}
}

// shellTable has the rows of a load.
func shellTable(m *measurements, l load) string {
	var rows [][]string
	session := float64(m.runs.of(l, shellSession).quantile(0.5))
	for _, name := range []string{
		shellExec, shellFresh, shellSession, shellMany, shellCLI, shellCLIKept, shellDocker, shellRex,
	} {
		if r := m.runs.of(l, name); r.count() > 0 {
			rows = append(rows, []string{
				name, fmt.Sprint(r.count()), millis(r.quantile(0.5)), millis(r.quantile(0.99)),
				spreadText(&r.sample), ratio(float64(r.quantile(0.5)), session),
			})
		}
	}
	return table([]string{
		"`true`", "calls", "p50", "p99", "p50 of the rounds", "p50 / a session's",
	}, rows)
}

// shellTargets compare a command of a session with those of SWE-ReX's.
func shellTargets() (all []target) {
	for _, l := range shellLoads {
		all = append(all, target{
			text:  fmt.Sprintf("SWE-ReX, session, p50 of %d at once, over dray's in a session", l.callers),
			limit: 1, atLeast: true, value: over(p50Of(l, shellRex), p50Of(l, shellSession)),
		})
	}
	return all
}
