package command

import (
	"fmt"
	"os"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/client"
)

// withClient runs what needs the daemon, and closes the connections afterwards.
func (a *app) withClient(do func(*client.Client) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if err := cfg.MakeState(); err != nil {
		return err
	}
	s := daemonStarter{state: string(cfg.State), socket: cfg.Server.Socket, args: serveArgs(cfg), status: a.err}
	c := client.New(cfg.Server.Socket, s.start)
	defer c.Close()
	c.OnSlow = func() { fmt.Fprintln(a.err, "dray: waiting for the daemon's answer ...") }
	c.Version = version
	c.OnVersionMismatch = a.warnVersion
	return do(c)
}

// warnVersion says that the daemon was built from something else, to people: what it does not know it refuses, and a rebuilt program is not used as
// long as it runs.
func (a *app) warnVersion(daemon string, pid int) {
	if !isTerminal(a.err) {
		return
	}
	fmt.Fprintln(a.err, versionMismatch(daemon, pid))
}

func versionMismatch(daemon string, pid int) string {
	end := "end it"
	if pid != 0 {
		end = fmt.Sprintf("end it with kill %d", pid)
	}
	return fmt.Sprintf("dray: the daemon is of version %s, this command of %s; %s, and the next command starts its own", escapeLine(daemon), version, end)
}

// load reads the configuration, as the daemon does. A command needs the socket only, but one that says nothing of a mistake would talk to a
// daemon that still runs with the configuration before it.
func (a *app) load() (*config.Config, error) {
	return config.Load(config.Options{State: a.state, ConfigFile: a.config, Environ: os.Environ()})
}

// serveArgs are the arguments of a daemon in the background that has this configuration. It runs in another folder, so paths are absolute.
func serveArgs(cfg *config.Config) []string {
	args := []string{"serve", "--state", string(cfg.State), "--idle-exit", idleExit.String()}
	if cfg.File != "" {
		args = append(args, "--config", cfg.File)
	}
	return args
}
