package process

import (
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// DefaultPath is the PATH that engines give a process in an image that sets none. Tools on the host
// have it, and a name is looked up in it if PATH is not set.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start takes the permit, which is the last of the four fds, forks and executes. The new process
// leads a session and a process group, and has the three other fds and no others.
func start(spec Spec, fds []int) (pid, pidfd int, err *StartError) {
	attr := &syscall.ProcAttr{
		Dir: spec.Dir, Env: spec.Env,
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
	}
	if spec.RealDir != "" {
		fd, err := openRealDir(spec)
		if err != 0 {
			return 0, -1, &StartError{Step: StepRealDir, Path: spec.Dir, Err: err}
		}
		defer func() { _ = unix.Close(fd) }()
		attr.Dir = fdPath(fd) // entered before the fds of the new process are arranged
	}
	pidfd = -1
	// Setctty uses fd 0
	attr.Sys = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd, Setctty: spec.Terminal != nil}
	if u := spec.User; u != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	failure, permitted := error(unix.ENOENT), false
	for path := range candidates(spec) {
		if permitted = permitted || takePermit(fds[3]); !permitted {
			return 0, -1, &StartError{Step: StepPermit, Err: unix.ECANCELED}
		}
		restore := limitStack(spec.Stack)
		pid, err := syscall.ForkExec(path, spec.Argv, attr)
		restore()
		if err == nil {
			limitMemory(pid, unix.RLIMIT_AS, spec.Memory)
			limitMemory(pid, unix.RLIMIT_DATA, spec.Data)
			return pid, pidfd, nil
		}
		failure = err
		if err != unix.EACCES && err != unix.ENOENT { //nolint:errorlint // the bare number
			break
		}
	}
	return 0, -1, classifyStartError(spec, failure)
}

// limitMemory bounds the memory of a process that has just begun, and of those that it will start.
// It cannot be bounded before: package syscall has no attribute for that.
func limitMemory(pid, resource int, bytes uint64) {
	if bytes > 0 {
		limit := unix.Rlimit{Cur: bytes, Max: bytes}
		_ = unix.Prlimit(pid, resource, &limit, nil) // it fails if the process has ended
	}
}

// limitStack sets the soft limit of this process for the stack, which a new process inherits, and
// returns what restores it. The limit cannot be set afterwards: the kernel copies it when an exec
// begins and stores the copy when the exec ends, after ForkExec may have returned.
func limitStack(bytes uint64) (restore func()) {
	var old unix.Rlimit
	if bytes == 0 || unix.Getrlimit(unix.RLIMIT_STACK, &old) != nil {
		return func() {}
	}
	limit := unix.Rlimit{Cur: min(bytes, old.Max), Max: old.Max}
	_ = unix.Setrlimit(unix.RLIMIT_STACK, &limit) // it cannot fail below the hard limit
	return func() { _ = unix.Setrlimit(unix.RLIMIT_STACK, &old) }
}

// candidates returns the files to try, as execvp(3) does: a name without a slash is looked up in
// PATH. Files without an executable bit come last, for their error. It does not look beyond the
// file that the caller is trying.
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
		for _, dir := range filepath.SplitList(lookup(spec.Env, "PATH", DefaultPath)) {
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

// lookup returns the value of a variable. The last one counts, as in the tool itself.
func lookup(env []string, name, otherwise string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return otherwise
}

// classifyStartError finds the step that failed. ForkExec returns one errno for all of them, so it
// tries the working directory again.
func classifyStartError(spec Spec, err error) *StartError {
	errno, _ := err.(syscall.Errno) //nolint:errorlint // ForkExec returns the bare number
	if errno == unix.EAGAIN || errno == unix.ENOMEM {
		return &StartError{Step: StepFork, Err: errno}
	}
	if dirErr := checkWorkDir(spec); dirErr != 0 {
		return &StartError{Step: StepDir, Path: spec.Dir, Err: dirErr}
	}
	if spec.User != nil && (errno == unix.EPERM || errno == unix.EINVAL) {
		return &StartError{Step: StepUser, Err: errno}
	}
	return &StartError{Step: StepExec, Path: spec.Argv[0], Err: errno}
}

// checkWorkDir enters the working directory as the user.
func checkWorkDir(spec Spec) syscall.Errno {
	return asUser(spec.User, func() error {
		var st unix.Stat_t
		return unix.Stat(spec.Dir+"/.", &st)
	})
}

// openRealDir opens the working directory as the user, and fails if it is not RealDir. What is
// entered is the open directory: a symlink that is exchanged afterwards changes nothing.
func openRealDir(spec Spec) (fd int, errno syscall.Errno) {
	errno = asUser(spec.User, func() (err error) {
		fd, err = unix.Open(spec.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if errno != 0 {
		return -1, errno
	}
	if path, err := os.Readlink(fdPath(fd)); err != nil || path != spec.RealDir {
		_ = unix.Close(fd)
		return -1, unix.ESTALE
	}
	return fd, 0
}

// fdPath returns a path by which this process, and one that it forks, finds a file by its fd.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// asUser runs a function of package unix with the file system credentials of a user, on a thread
// that ends afterwards. Nil is the user of this process.
func asUser(u *Credential, do func() error) syscall.Errno {
	result := make(chan syscall.Errno, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if u != nil {
			setThreadFSCredentials(*u)
		}
		errno, _ := do().(syscall.Errno) //nolint:errorlint // package unix returns the bare number
		result <- errno
	}()
	return <-result
}

// setThreadFSCredentials changes the file system credentials of this thread. These functions of
// package unix, unlike those of package syscall, do not change the other threads.
func setThreadFSCredentials(u Credential) {
	groups := make([]int, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = int(g)
	}
	_ = unix.Setgroups(groups)
	_ = unix.Setfsgid(int(u.GID))
	_ = unix.Setfsuid(int(u.UID))
}
