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
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/dray-dev/dray"
)

// treeSize is the number of processes of a tree beside its leader.
const treeSize = 50

func treeArgs() []string { return []string{"./" + toolName, "tree", strconv.Itoa(treeSize)} }

// killRun is one way to end a tree of processes that have left their session and parent.
type killRun struct {
	name string
	run  func(ctx context.Context) (took time.Duration, left int, err error)

	sample

	left []int // processes that were there afterwards, by round
}

const killDocker = "`docker exec`, its client killed"

// newKillRuns returns all ways in the order of the table.
func newKillRuns(b *testbed) []*killRun {
	var all []*killRun
	for _, e := range b.environments {
		all = append(all, &killRun{
			name: e.name,
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
	return append(all, &killRun{name: killDocker, run: b.killDockerExec})
}

// measureKills runs every way in each round, the docker CLI, which is slow, in three.
func measureKills(ctx context.Context, all []*killRun, rounds int) error {
	progress("kill")
	for round, order := range shuffled(rounds, len(all)) {
		for _, i := range order {
			if all[i].name == killDocker && round >= 3 {
				continue
			}
			took, left, err := all[i].run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			all[i].add(took)
			all[i].left = append(all[i].left, left)
		}
	}
	return nil
}

// killTree ends a tree without a grace and returns the time from KILL to the verified end.
func killTree(ctx context.Context, env dray.Environment) (took time.Duration, err error) {
	proc, err := env.Start(ctx, dray.ProcessSpec{Argv: treeArgs()})
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
		return 0, fmt.Errorf("the end is not verified: %+v", exit.Survivors)
	}
	return took, nil
}

func ready(out *bufio.Reader) error {
	line, err := out.ReadString('\n')
	if err != nil || line != "ready\n" {
		return errors.Join(fmt.Errorf("the tree printed %q", line), err)
	}
	return nil
}

// killDockerExec kills the client of `docker exec`, as a timeout around it does.
func (b *testbed) killDockerExec(ctx context.Context) (took time.Duration, left int, err error) {
	argv := slices.Concat(b.dockerExec(), treeArgs())
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

// endAll kills processes and waits until they have ended.
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
			return fmt.Errorf("%d processes have not ended", len(left))
		}
	}
}

// trees returns the pids of the processes that run the bench's own program, on the host or in a
// container, from the host's /proc.
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

// isTree parses the text of /proc/PID/stat: pid, name in parentheses, state. Zombies do not count.
func isTree(stat []byte) bool {
	_, rest, _ := bytes.Cut(stat, []byte("("))
	name, state, found := bytes.Cut(rest, []byte(") "))
	return found && string(name) == toolName && len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}

// toolName is also the name of the program's processes in /proc.
const toolName = "benchtool"

//go:embed tool/tool.c
var toolSource string

// compileTool compiles the bench's own program into a directory, without any library.
func compileTool(ctx context.Context, dir string) error {
	path := filepath.Join(dir, toolName)
	if err := compile(ctx, toolSource, path, "-static", "-nostdlib", "-ffreestanding",
		"-fno-stack-protector", "-fno-pie", "-no-pie", "-O2"); err != nil {
		return err
	}
	return os.Chmod(path, 0o755) //nolint:gosec // the container's user runs it
}

func killTable(all []*killRun) string {
	var rows [][]string
	for _, k := range all {
		rows = append(rows, []string{
			k.name, fmt.Sprint(k.count()), millis(k.quantile(0.5)), millis(k.quantile(0.99)),
			fmt.Sprint(slices.Max(k.left)),
		})
	}
	return table([]string{"method", "trees", "p50", "p99", "processes left at most"}, rows)
}

func killP50(name string) value {
	return func(m *measurements) (float64, bool) {
		for _, k := range m.kills {
			if k.name == name {
				return float64(k.quantile(0.5)), k.count() > 0
			}
		}
		return 0, false
	}
}
