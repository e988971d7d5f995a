package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/client"
)

const (
	// stopMargin is what a shutdown may take after limits.drain: the grace of cancelled calls, their
	// end records and the end of the agents.
	stopMargin = 45 * time.Second
	// stopNoticeInterval is the time between two lines of progress.
	stopNoticeInterval = 2 * time.Second
	// statusTimeout bounds the requests to a daemon that may be stopped.
	statusTimeout = 2 * time.Second
)

func newStop(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop the daemon",
		Long: `stop shuts the daemon down and waits for its exit. The daemon refuses new calls, waits
up to limits.drain for running calls, and cancels the rest. While stop waits, it
prints how many calls still run. It exits with 3 if no daemon is running, and with 1
if the daemon does not exit in time; it then names the process. Containers keep
running: see dray workspace stop.`,
		Args: noArgs,
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		return a.runStop(ctx, cfg)
	})
	return cmd
}

func (a *app) runStop(ctx context.Context, cfg *config.Config) error {
	process, err := openDaemonProcess(cfg)
	if err != nil {
		return err
	}
	defer process.close()
	c := client.New(cfg.Server.Socket, nil)
	defer c.Close()
	if st, err := status(ctx, c); err != nil || !st.Draining { // a second signal would not drain
		if err := process.terminate(); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(cfg.Limits.Drain + stopMargin)
	for !process.exited(stopNoticeInterval) {
		if st, err := status(ctx, c); err == nil {
			fmt.Fprintf(a.err, "dray: waiting for the daemon: running calls: %d, queued: %d\n",
				st.Calls.Running, st.Calls.Queued)
		}
		if time.Now().After(deadline) {
			return dray.Errorf(dray.CodeInternal, "the daemon (pid %d) has not exited", process.pid).
				WithHint("`kill -9 %d` ends it at once; its calls are then recorded as interrupted",
					process.pid)
		}
	}
	if a.json {
		return a.printJSON(struct {
			PID int `json:"pid"`
		}{process.pid})
	}
	_, err = fmt.Fprintf(a.out, "the daemon (pid %d) has exited\n", process.pid)
	return outputError(err)
}

// status returns the state of a daemon that may not respond.
func status(ctx context.Context, c *client.Client) (client.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	reply, err := c.Status(ctx)
	return reply.Value, err
}

// daemonProcess is the process of the daemon of a state directory. The pidfd refers to this process
// also if the pid is used again.
type daemonProcess struct{ pid, pidfd int }

// openDaemonProcess fails with [client.ErrNoDaemon] if no daemon is running.
func openDaemonProcess(cfg *config.Config) (*daemonProcess, error) {
	lock := filepath.Join(string(cfg.State), daemonLock)
	if held, err := locked(lock); err != nil || !held {
		return nil, errors.Join(err, noDaemonError(cfg).
			WithHint("there is nothing to stop: the next command, such as dray exec, starts one"))
	}
	pid, err := holderPID(lock)
	if err != nil {
		return nil, err
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		if hasOpen(pid, lock) {
			return &daemonProcess{pid, fd}, nil
		}
		_ = unix.Close(fd)
	}
	return nil, dray.Errorf(dray.CodeInternal, "the process that has locked %s was not found", lock).
		WithHint("it may be exiting, run in another container, or be an older version: see `fuser %s`",
			lock)
}

// hasOpen reports whether a process has a file open: a pid of another pid namespace, or one that is
// used again, is that of a process that has not.
func hasOpen(pid int, path string) bool {
	want, err := os.Stat(path)
	if err != nil {
		return false
	}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is valid
	for _, fd := range fds {
		if info, err := os.Stat(fd); err == nil && os.SameFile(info, want) {
			return true
		}
	}
	return false
}

// terminate makes the daemon shut down, also if it is stopped.
func (p *daemonProcess) terminate() error {
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGCONT} {
		err := unix.PidfdSendSignal(p.pidfd, s, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("send %s to the daemon (pid %d): %w", unix.SignalName(s), p.pid, err)
		}
	}
	return nil
}

// exited waits up to a time for the exit of the process and reports whether it has exited.
func (p *daemonProcess) exited(within time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}} //nolint:gosec // an fd fits
	n, err := unix.Poll(fds, int(within.Milliseconds()))
	return err == nil && n == 1
}

func (p *daemonProcess) close() { _ = unix.Close(p.pidfd) }
