package process

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// defaultPath is where execvp(3) looks when there is no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start forks and executes. The new process leads its own session and group, has the three
// descriptors and no other.
func start(spec Spec, fds []int) (pid, pidfd int, err error) {
	attr := &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env,
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
	}
	pidfd = -1
	// Ctty is descriptor 0
	attr.Sys = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd, Setctty: spec.Terminal != nil}
	if u := spec.User; u != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	failure := error(syscall.ENOENT)
	for path := range candidates(spec) {
		pid, err = syscall.ForkExec(path, spec.Argv, attr)
		if err == nil {
			return pid, pidfd, nil
		}
		failure = err
		if err != syscall.EACCES && err != syscall.ENOENT {
			break
		}
	}
	return 0, -1, classifyStartError(spec, failure)
}

// candidates are the files that may be meant. As in execvp(3), a name without a slash is looked up
// in PATH, and a file that may not be executed is passed over, but remembered by being tried last.
// Nothing is looked at beyond the one that can be executed.
func candidates(spec Spec) iter.Seq[string] {
	return func(yield func(string) bool) {
		name := spec.Argv[0]
		if strings.Contains(name, "/") {
			yield(name)
			return
		}
		if name == "" {
			return
		}
		var unusable []string
		for _, dir := range filepath.SplitList(lookup(spec.Env, "PATH", defaultPath)) {
			path := filepath.Join(absolute(dir, spec.Dir), name)
			info, err := os.Stat(path)
			switch {
			case err != nil || info.IsDir():
			case info.Mode()&0o111 == 0:
				unusable = append(unusable, path)
			case !yield(path):
				return
			}
		}
		for _, path := range unusable {
			if !yield(path) {
				return
			}
		}
	}
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// lookup finds a variable; the last setting wins, as in the tool itself.
func lookup(env []string, name, otherwise string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return otherwise
}

// classifyStartError finds out which step failed. The kernel gives one number for all of them, so
// the folder is tried again, with the user's rights.
func classifyStartError(spec Spec, err error) error {
	errno, _ := err.(syscall.Errno) //nolint:errorlint // ForkExec gives the bare number
	if errno == syscall.EAGAIN || errno == syscall.ENOMEM {
		return &StartError{Step: StepFork, Err: errno}
	}
	if dirErr := checkWorkDir(spec); dirErr != 0 {
		return &StartError{Step: StepDir, Path: spec.Dir, Err: dirErr}
	}
	if spec.User != nil && (errno == syscall.EPERM || errno == syscall.EINVAL) {
		return &StartError{Step: StepUser, Err: errno}
	}
	return &StartError{Step: StepExec, Path: spec.Argv[0], Err: errno}
}

// checkWorkDir tries the working folder with the file-system rights of the user, on a thread that
// is thrown away afterwards.
func checkWorkDir(spec Spec) syscall.Errno {
	result := make(chan syscall.Errno, 1)
	go func() {
		// never unlocked: the thread ends with the goroutine, and the borrowed rights with it
		runtime.LockOSThread()
		if spec.User != nil {
			setThreadFSCredentials(*spec.User)
		}
		var st syscall.Stat_t
		err := syscall.Stat(spec.Dir+"/.", &st)
		errno, _ := err.(syscall.Errno) //nolint:errorlint // Stat gives the bare number
		result <- errno
	}()
	return <-result
}

// setThreadFSCredentials changes the file-system identity of this thread alone, by raw calls:
// package syscall would change all threads.
func setThreadFSCredentials(u Credential) {
	var list *uint32
	if len(u.Groups) > 0 {
		list = &u.Groups[0]
	}
	rawSetgroups(len(u.Groups), list)
	_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSGID, uintptr(u.GID), 0, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(u.UID), 0, 0)
}

func asStartError(err error) *StartError {
	if e, ok := errors.AsType[*StartError](err); ok {
		return e
	}
	return &StartError{Step: StepFork, Err: err}
}
