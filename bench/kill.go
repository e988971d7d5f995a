package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // the tool's source
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// treeSize is how many processes a tree has, beside its leader.
const treeSize = 50

func treeOf(n int) []string { return []string{"./" + toolName, "tree", strconv.Itoa(n)} }

// killRun is one way to end a tree of processes that do all to escape.
type killRun struct {
	name string
	run  func(ctx context.Context) (took time.Duration, left int, err error)

	sample

	left []int // processes that were there afterwards, by round
}

// The names of the ways to end a tree that are no environment's.
const killDocker = "`docker exec`, its client killed"

func killOf(name string) string { return name + ", a tree of 50" }

// killings are all ways to end a tree, in the order of the table.
func killings(r *testbed) []*killRun {
	var all []*killRun
	for _, e := range r.environments {
		all = append(all, &killRun{
			name: killOf(e.name),
			run: func(ctx context.Context) (time.Duration, int, error) {
				took, err := killTree(ctx, e.Environment)
				if err != nil {
					return 0, 0, err
				}
				left, err := trees()
				return took, len(left), err
			},
		})
	}
	return append(all, &killRun{name: killDocker, run: r.fellDocker})
}

// kill runs every way in every round. The client of the CLI is slow, and what it leaves does not
// change: a few rounds of it are enough.
func kill(ctx context.Context, all []*killRun, rounds int, progress func(string)) error {
	const dockerRounds = 3
	for round, order := range shuffled(rounds, len(all)) {
		if round%10 == 0 {
			progress(fmt.Sprintf("kill: round %d of %d", round+1, rounds))
		}
		for _, i := range order {
			if all[i].name == killDocker && round >= dockerRounds {
				continue
			}
			took, left, err := all[i].run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			all[i].add([]time.Duration{took})
			all[i].left = append(all[i].left, left)
		}
	}
	return nil
}

// killTree ends a tree without any grace: from the word KILL until the end was proved.
func killTree(ctx context.Context, env dray.Environment) (took time.Duration, err error) {
	proc, err := env.Start(ctx, dray.ProcessSpec{Argv: treeOf(treeSize)})
	if err != nil {
		return 0, err
	}
	out := bufio.NewReader(proc.Output(dray.Stdout))
	go func() { _, _ = io.Copy(io.Discard, proc.Output(dray.Stderr)) }() // ends with the process
	if err := ready(out); err != nil {
		proc.Stop(0)
		_, _ = proc.Wait()
		return 0, err
	}
	begun := time.Now()
	proc.Stop(0)
	exit, err := proc.Wait()
	took = time.Since(begun)
	_, _ = io.Copy(io.Discard, out)
	switch {
	case err != nil:
		return 0, err
	case !exit.Survivors.Proven || len(exit.Survivors.PIDs) > 0:
		return 0, fmt.Errorf("the end is not proved: %+v", exit.Survivors)
	}
	return took, nil
}

func ready(out *bufio.Reader) error {
	line, err := out.ReadString('\n')
	if err != nil || line != "ready\n" {
		return errors.Join(fmt.Errorf("the tree said %q", line), err)
	}
	return nil
}

// fellDocker kills the client of the docker CLI, which is what a timeout around it does.
func (r *testbed) fellDocker(ctx context.Context) (took time.Duration, left int, err error) {
	argv := append(r.dockerExec(), treeOf(treeSize)...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // what is compared
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	err = ready(bufio.NewReader(out))
	begun := time.Now()
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	took = time.Since(begun)
	if err != nil {
		return 0, 0, err
	}
	pids, err := trees()
	return took, len(pids), errors.Join(err, endAll(pids))
}

// endAll ends what a way that is compared left behind, and waits until it is gone.
func endAll(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		left, err := trees()
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not end", len(left))
		}
	}
}

// trees gives the living processes of the bench's own program, wherever they run: the kernel's
// word, not that of what is measured.
func trees() (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err == nil && isTree(stat) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isTree reads a line of proc(5)'s stat: pid, name in parentheses, state. A zombie is no living
// process.
func isTree(stat []byte) bool {
	_, rest, _ := bytes.Cut(stat, []byte("("))
	name, state, found := bytes.Cut(rest, []byte(") "))
	return found && string(name) == toolName && len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}

// toolName is also what the kernel shows as the name of its processes: nothing else on a machine is
// called so.
const toolName = "benchtool"

//go:embed tool/tool.c
var toolSource string

// compileTool puts the bench's own program into a folder. It needs the C compiler that dray itself
// is built with, and none of its libraries.
func compileTool(ctx context.Context, folder string) error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	argv := append(strings.Fields(compiler),
		"-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-pie", "-no-pie", "-O2",
		"-x", "c", "-o", filepath.Join(folder, toolName), "-")
	// the compiler that the operator names
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec
	cmd.Stdin = strings.NewReader(toolSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the bench's own program: %w: %s (run `scripts/setup compiler`)", err, out)
	}
	// the container's user runs it
	return os.Chmod(filepath.Join(folder, toolName), 0o755) //nolint:gosec
}
