package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// close ends the engine and removes all that it made.
func (e *Engine) close(tb testing.TB) {
	if tb.Failed() {
		tb.Logf("the engine of the test said:\n%s", e.logTail())
	}
	if e.cmd != nil && e.cmd.Process != nil {
		e.removeContainers()
		_ = e.cmd.Process.Signal(syscall.SIGTERM)
		e.waitExit(15 * time.Second)
	}
	err := remove(e.dir)
	if e.exited != nil {
		<-e.exited // remove has killed it if nothing else did
	}
	if e.lock != nil {
		err = errors.Join(err, e.lock.Close())
	}
	if err != nil {
		tb.Errorf("removing the engine of the test: %v", err)
	}
}

// removeContainers lets the engine tidy up itself, as far as it answers.
func (e *Engine) removeContainers() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for _, id := range containersOf(e.dir) {
		_, _ = e.ask(ctx, http.MethodDelete, "/containers/"+id+"?force=1&v=1", nil)
	}
}

// sweep removes engines whose tests were killed.
func sweep(tb testing.TB) {
	tb.Helper()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, dir := range left {
		lock, err := os.OpenFile(lockOf(dir), os.O_RDWR, 0)
		if err != nil {
			continue // new, or nobody's
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			if err := remove(dir); err != nil {
				tb.Logf("an engine that another test left in %s: %v", dir, err)
			}
		}
		_ = lock.Close()
	}
}

// remove takes away everything of an engine, from the processes to the folder, however it got to
// where it is.
func remove(dir string) error {
	ids := containersOf(dir)
	groups := groupsOf(ids)
	for range 3 { // what is killed may have started something meanwhile
		for _, p := range append(processesOf(dir), processesIn(groups)...) {
			p.kill()
		}
	}
	for _, g := range groups {
		_ = os.Remove(g) // the engine did it, as a rule
	}
	if err := errors.Join(unmount(dir), removeBridge(dir)); err != nil {
		// the folder stays: removing it would remove what is mounted there, and it names the bridge
		return err
	}
	return os.RemoveAll(dir)
}

func removeBridge(dir string) error {
	if _, err := os.Lstat("/sys/class/net/" + bridgeOf(dir)); err != nil {
		return nil //nolint:nilerr // the engine never came so far
	}
	return run("ip", "link", "delete", bridgeOf(dir))
}

// containersOf gives the full ids of an engine's containers, remapped users or not.
func containersOf(dir string) []string {
	var ids []string
	for _, pattern := range []string{"data/containers/*", "data/*/containers/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		for _, path := range found {
			if id := filepath.Base(path); len(id) == 64 {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// groupsOf gives the control groups of containers, the deepest first.
func groupsOf(ids []string) []string {
	var groups []string
	for _, id := range ids {
		for _, pattern := range []string{"docker/" + id, "*/docker/" + id, "system.slice/docker-" + id +
			".scope"} {
			tops, _ := filepath.Glob("/sys/fs/cgroup/" + pattern)
			for _, top := range tops {
				_ = filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
					if err == nil && entry.IsDir() {
						groups = append(groups, path)
					}
					return nil
				})
			}
		}
	}
	slices.SortFunc(groups, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return groups
}

// unmount detaches what is mounted beneath a folder, the last first.
func unmount(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, line := range slices.Backward(slices.Collect(strings.Lines(string(text)))) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], dir+"/") {
			continue
		}
		if err := syscall.Unmount(fields[4], syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", fields[4], err))
		}
	}
	return errors.Join(errs...)
}

// running is a process, told from a later one of the same number by its start.
type running struct {
	pid         int
	name, start string
}

// processesOf gives the engine's processes: those whose command line names its folder.
func processesOf(dir string) []running {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var list []running
	for _, path := range found {
		line, err := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() || !bytes.Contains(line, []byte(dir+"/")) {
			continue
		}
		if p, ok := look(pid); ok && slices.Contains([]string{
			"dockerd", "containerd", "containerd-shim",
			"docker-proxy", "sh", "unshare",
		}, p.name) {
			list = append(list, p)
		}
	}
	return list
}

func processesIn(groups []string) []running {
	var list []running
	for _, g := range groups {
		text, _ := os.ReadFile(filepath.Join(g, "cgroup.procs")) // gone is empty
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			if p, ok := look(pid); err == nil && ok {
				list = append(list, p)
			}
		}
	}
	return list
}

// look gives a process that is there and is no zombie.
func look(pid int) (running, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return running{}, false
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if open < 0 || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return running{}, false
	}
	return running{pid: pid, name: string(stat[open+1 : end]), start: fields[19]}, true
}

// kill ends a process and waits until it is gone.
func (p running) kill() {
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(poll) {
		if now, ok := look(p.pid); !ok || now.start != p.start {
			return
		}
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}
