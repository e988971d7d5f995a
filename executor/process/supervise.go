package process

import (
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray/internal/linux"
	"github.com/dray-dev/dray/internal/pack"
)

// Supervise is the main function of a supervisor. It serves the pool at the other end of the socket
// conn, one call at a time, and returns when the pool has closed the socket and nothing is left of
// the last call. It must be called from the main goroutine.
func Supervise(conn int) error {
	// The kernel delivers SIGCHLD to the main thread, and tools inherit the timer slack of the thread
	// that starts them.
	runtime.LockOSThread()
	setTimerSlack(ownTimerSlack())
	if err := becomeSubreaper(); err != nil {
		return err
	}
	ReserveThreads(spareThreads)
	unix.Umask(0o022) // what an engine gives a fresh exec
	closeOnExecAbove(conn)
	resetIgnoredSignals()
	children, err := newChildSignals()
	if err != nil {
		return err
	}
	s := &supervisorLoop{pool: newPoolConn(conn), children: children, memory: openOOMCounter()}
	for {
		kind, body, fds, err := s.pool.receive()
		if err != nil {
			linux.CloseAll(fds)
			return nil //nolint:nilerr // the pool was closed, and no call runs
		}
		switch kind {
		case msgStart:
			if clean, err := s.serveCall(body, fds); err != nil || !clean {
				return err
			}
		case msgCgroup:
			s.cgroup = newCgroupFDs(fds)
		default: // a signal or stop that was sent while its call ended
		}
	}
}

// supervisorLoop is the state of a supervisor that outlives a call.
type supervisorLoop struct {
	pool     *poolConn
	children *childSignals
	cgroup   *cgroupFDs // nil for none
	memory   oomCounter
}

// serveCall runs one call until none of its processes is left. It reports false if the supervisor
// must not serve another one.
func (s *supervisorLoop) serveCall(body []byte, fds []int) (clean bool, err error) {
	defer linux.CloseAll(fds)
	var spec Spec
	if err := pack.Decode(body, &spec, packSpec); err != nil || len(fds) != maxPassed {
		return false, errMalformed
	}
	ooms := s.memory.read()
	leader, pidfd, failure := s.start(spec, fds)
	if failure != nil {
		sendErr := s.pool.send(msgFailed, pack.Append(nil, failure, packStartError))
		return sendErr == nil, nil // a pool that was closed meanwhile is no error
	}
	linux.CloseAll(fds) // the streams end with the processes of the tool
	defer linux.Close(pidfd)
	defer s.children.stop()
	r := newSupervisedCall(s, spec, leader, pidfd, ooms)
	if err := s.pool.send(msgStarted, pack.Append(nil, &leader, pack.Int)); err != nil {
		r.killAllNow()
	}
	r.loop()
	if r.orphaned {
		return false, nil
	}
	exit := r.exit()
	if err := s.pool.send(msgExited, pack.Append(nil, &exit, packExit)); err != nil {
		return false, nil
	}
	switch {
	case len(r.kept) > 0:
		r.superviseDetached()
	case len(r.survivors) > 0 || r.tracerBlocked:
		r.keepKilling()
	default:
		return true, nil
	}
	return false, nil
}

func (s *supervisorLoop) start(spec Spec, fds []int) (pid, pidfd int, failure *StartError) {
	if err := s.cgroup.enter(); err != nil {
		return 0, -1, &StartError{Step: StepFork, Err: err}
	}
	return start(spec, fds)
}

// childSignals makes an fd readable when a child has ended. It is started only for calls that need
// it, because each signal wakes two threads of the runtime: the end of the leader makes its pidfd
// readable, and most calls have no other child. Other signals that end a Go program are received
// and ignored by a handler. SIG_IGN would be inherited by the tools.
type childSignals struct {
	fd, writeFD int
	ended       chan os.Signal
	started     bool
	forwarding  sync.Once
}

func newChildSignals() (*childSignals, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("create the wake pipe: %w", err)
	}
	// nothing reads this channel: a signal is dropped when it is full
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE)
	return &childSignals{fd: p[0], writeFD: p[1], ended: make(chan os.Signal, 1)}, nil
}

func (c *childSignals) start() {
	c.started = true
	signal.Notify(c.ended, unix.SIGCHLD)
	c.forwarding.Do(func() {
		go func() { // until the program exits
			for range c.ended {
				_, _ = unix.Write(c.writeFD, []byte{0}) // a full pipe is readable already
			}
		}()
	})
}

func (c *childSignals) stop() {
	if c.started {
		c.started = false
		signal.Stop(c.ended)
	}
}

// drain makes the fd unreadable.
func (c *childSignals) drain() {
	var b [64]byte
	_, _ = unix.Read(c.fd, b[:])
}

// spareThreads is the number of threads that a supervisor creates at its start. When the kernel
// refuses a thread, the runtime ends the program: a tool that fills the container's limit of
// processes would kill its supervisor. The runtime keeps threads that exist.
const spareThreads = 4

// ReserveThreads makes the runtime create n threads, which it uses before it creates others.
func ReserveThreads(n int) {
	var all, done sync.WaitGroup
	all.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread() // each goroutine has a thread of its own until all exist
			all.Done()
			all.Wait()
			runtime.UnlockOSThread()
		})
	}
	done.Wait()
}

// becomeSubreaper makes this program the parent of all orphaned descendants.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a child subreaper: %w", err)
	}
	return nil
}

// closeOnExecAbove keeps the fds that the daemon inherited from its own parent from the tools
// (EX-16).
func closeOnExecAbove(fd int) {
	first := uint(fd)
	if unix.CloseRange(first, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	var limit unix.Rlimit // before Linux 5.11
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	for i := fd; i < int(min(limit.Max, 1<<16)); i++ {
		syscall.CloseOnExec(i)
	}
}

// resetIgnoredSignals sets the signals that this program inherited as ignored to their default, so
// that tools do not inherit them (EX-16). make(1), for one, ignores 32 and 33. Package os/signal
// cannot reset those.
func resetIgnoredSignals() {
	const lastSignal, sigIgn = 64, 1
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var now, byDefault [4]uint64 // the kernel's struct sigaction: handler, flags, restorer, mask
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0,
			uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if errno == 0 && now[0] == sigIgn {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig,
				uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
		}
	}
}

// oomCounter is the fd of a file with the number of processes that the kernel killed because the
// memory of this program's cgroup ran out: oom_kill in memory.oom_control (cgroup v1) or in
// memory.events (cgroup v2, which includes the cgroups below). It is -1 if there is none.
type oomCounter struct{ fd int }

// openOOMCounter finds the file by /proc/self/cgroup and the mounts.
func openOOMCounter() oomCounter {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return oomCounter{-1}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return oomCounter{-1}
	}
	for _, name := range oomFiles(string(groups), mounts) {
		if fd, err := linux.Openat(unix.AT_FDCWD, name, unix.O_RDONLY, 0); err == nil {
			return oomCounter{fd}
		}
	}
	return oomCounter{-1}
}

// read returns the count. Without a file it is always 0.
func (c oomCounter) read() int {
	if c.fd < 0 {
		return 0
	}
	b, err := linux.ReadAll(c.fd)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(linux.Field(b, "oom_kill "))) // 0 if the file has no count
	return n
}

// oomFiles returns the files that may have the count, the most specific first. In cgroup v2 only
// cgroups whose memory is accounted have one, so those above are included.
func oomFiles(groups string, mounts []byte) (files []string) {
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch controllers, group := ","+fields[1]+",", fields[2]; {
		case strings.Contains(controllers, ",memory,"):
			if point, below, ok := mountOf(mounts, "cgroup", "memory", group); ok {
				files = append([]string{path.Join(point, below, "memory.oom_control")}, files...)
			}
		case fields[1] == "":
			point, below, ok := mountOf(mounts, "cgroup2", "", group)
			for ; ok; below = path.Dir(below) {
				files = append(files, path.Join(point, below, "memory.events"))
				if below == "/" {
					break
				}
			}
		}
	}
	return files
}

// mountOf returns the mount point of the hierarchy in which a cgroup is visible, and its path below
// that, which starts with a slash. The mount must have the option, unless that is empty.
func mountOf(mounts []byte, fsType, option, group string) (point, below string, ok bool) {
	for m := range linux.Mounts(mounts) {
		if m.FSType != fsType || option != "" && !slices.Contains(m.Options, option) {
			continue
		}
		if below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.Root, "/")); ok {
			return m.Point, path.Clean("/" + below), true
		}
	}
	return "", "", false
}
