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

// close stops the engine and removes everything that it made.
func (e *Engine) close(tb testing.TB) {
	if tb.Failed() {
		tb.Logf("log of the engine:\n%s", e.logTail())
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
		tb.Errorf("remove the engine: %v", err)
	}
}

// removeContainers removes the containers through the engine, if it responds.
func (e *Engine) removeContainers() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for _, id := range containersOf(e.dir) {
		_, _ = e.request(ctx, http.MethodDelete, "/containers/"+id+"?force=1&v=1", nil)
	}
}

// sweep removes engines whose tests were killed.
func sweep(tb testing.TB) {
	tb.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, dir := range dirs {
		lock, err := os.OpenFile(lockOf(dir), os.O_RDWR, 0)
		if err != nil {
			continue // new, or not an engine's
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			if err := remove(dir); err != nil {
				tb.Logf("remove the leftover engine in %s: %v", dir, err)
			}
		}
		_ = lock.Close()
	}
}

// remove removes everything of an engine, from the processes to the directory, in whatever state it
// is.
func remove(dir string) error {
	ids := containersOf(dir)
	groups := groupsOf(ids)
	for range 3 { // a killed process may have started another one meanwhile
		for _, p := range append(processesOf(dir), processesIn(groups)...) {
			p.kill()
		}
	}
	for _, g := range groups {
		_ = os.Remove(g) // usually the engine has removed it
	}
	if err := errors.Join(unmount(dir), removeBridge(dir)); err != nil {
		// the directory stays: removing it would remove mounted files, and it names the bridge
		return err
	}
	return os.RemoveAll(dir)
}

func removeBridge(dir string) error {
	if _, err := os.Lstat("/sys/class/net/" + bridgeOf(dir)); err != nil {
		return nil //nolint:nilerr // the engine did not get that far
	}
	return run("ip", "link", "delete", bridgeOf(dir))
}

// containersOf returns the full ids of an engine's containers: of dockerd with and without remapped
// users, and of Podman.
func containersOf(dir string) []string {
	var ids []string
	for _, pattern := range []string{
		"data/containers/*", "data/*/containers/*", "root/overlay-containers/*",
	} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		for _, path := range found {
			if id := filepath.Base(path); len(id) == 64 {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// groupsOf returns the cgroups of containers, the deepest first.
func groupsOf(ids []string) []string {
	var groups []string
	for _, id := range ids {
		scope, podman := "system.slice/docker-"+id+".scope", "*/libpod_parent/libpod-"+id+"*"
		for _, pattern := range []string{"docker/" + id, "*/docker/" + id, scope, podman} {
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

// unmount detaches the mounts beneath a directory, the last first.
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
			errs = append(errs, fmt.Errorf("unmount %s: %w", fields[4], err))
		}
	}
	return errors.Join(errs...)
}

// running is a process. Its start time distinguishes it from a later one with the same pid.
type running struct {
	pid         int
	name, start string
}

// processesOf returns the engine's processes: those whose command line contains its directory.
func processesOf(dir string) []running {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	programs := []string{
		"dockerd", "containerd", "containerd-shim", "docker-proxy", "sh", "unshare",
		"podman", "conmon", "catatonit",
	}
	var list []running
	for _, path := range found {
		line, err := os.ReadFile(path)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == os.Getpid() || !bytes.Contains(line, []byte(dir+"/")) {
			continue
		}
		if p, ok := findProcess(pid); ok && slices.Contains(programs, p.name) {
			list = append(list, p)
		}
	}
	return list
}

func processesIn(groups []string) []running {
	var list []running
	for _, g := range groups {
		text, _ := os.ReadFile(filepath.Join(g, "cgroup.procs")) // empty if it was removed
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if p, ok := findProcess(pid); err == nil && ok {
				list = append(list, p)
			}
		}
	}
	return list
}

// findProcess returns a process that exists and is not a zombie.
func findProcess(pid int) (running, bool) {
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

// kill kills a process and waits until it has exited.
func (p running) kill() {
	for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(pollInterval) {
		if now, ok := findProcess(p.pid); !ok || now.start != p.start {
			return
		}
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}
