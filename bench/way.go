package main

import (
	"context"
	"fmt"
)

// command is what every way runs.
type command struct {
	argv   []string
	stdout string
}

var commands = []command{
	{argv: []string{"true"}},
	{argv: []string{"echo", "hi"}, stdout: "hi\n"},
}

// way is one way to run a command. A call that did not print what it should, or did not end with 0, is an error, and ends the bench:
// a time of something that did not happen is no time.
type way struct {
	name string
	// calls is how many calls of one command a round has. It follows from the cost of one, so that no way takes most of the run.
	calls int
	// together is how many calls are made in all by several callers at once. A way with fewer calls than callers is left out there.
	together int
	run      func(ctx context.Context, c command) error
}

// wayDray is what everything else is compared with.
const (
	wayDray         = "dray, HTTP"
	wayDockerExec   = "`docker exec`"
	wayDevcontainer = "`devcontainer exec`"
)

// expect proves that a call did what it should.
func expect(c command, code int, stdout string) error {
	if code != 0 || stdout != c.stdout {
		return fmt.Errorf("%q ended with %d and printed %q, and should have ended with 0 and printed %q", c.argv, code, stdout, c.stdout)
	}
	return nil
}
