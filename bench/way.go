package main

import (
	"context"
	"fmt"
)

// command is what every way runs. Its working folder is the workspace.
type command struct {
	name   string // as Markdown
	argv   []string
	stdout string
}

// The commands. The tool of the bench is the same file on the host and in the container, and as small as a program can be.
var (
	runTrue  = command{name: "`true`", argv: []string{"true"}}
	runTool  = command{name: "a static program", argv: []string{"./" + toolName}, stdout: "hi\n"}
	runSleep = command{name: "`sleep 0.05; echo`", argv: []string{"sh", "-c", "sleep 0.05; echo"}, stdout: "\n"}
)

// runner runs a command to its end and proves that it did run.
type runner func(ctx context.Context, c command) error

// method is one way to run a command. A call that did not print what it should, or did not end with 0, is an error, and ends the bench:
// a time of something that did not happen is no time.
type method struct {
	name string
	// calls is how many calls of one command a round has. It follows from the cost of one, so that no way takes most of the run.
	calls int
	// concurrentCalls is how many calls a round has in all that are made by so many callers at once. A way takes no part where it names none.
	concurrentCalls map[int]int
	// singleRound keeps a slow way to one round of calls at once.
	singleRound bool
	run         runner
}

// The names by which targets and tables know the ways.
const (
	wayDray         = "dray, HTTP"
	waySocket       = "dray, executor, socket"
	wayStdio        = "dray, executor, stdio"
	wayPool         = "dray, executor, host"
	wayCLI          = "dray, `dray exec`"
	wayEngine       = "engine API"
	wayDockerExec   = "`docker exec`"
	wayDevcontainer = "`devcontainer exec`"
	wayRex          = "SWE-ReX"
	wayHost         = "host, os/exec"
	wayHostHTTP     = "host, dray, HTTP"
)

// expect proves that a call did what it should.
func expect(c command, code int, stdout string) error {
	if code != 0 || stdout != c.stdout {
		return fmt.Errorf("%q ended with %d and printed %q, and should have ended with 0 and printed %q", c.argv, code, stdout, c.stdout)
	}
	return nil
}
