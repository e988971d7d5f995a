package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/workspace"
)

// onDaemon completes a command that uses the running daemon and does not start one.
func (a *app) onDaemon(cmd *cobra.Command,
	do func(ctx context.Context, c *client.Client, args []string) error,
) *cobra.Command {
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.withRunningDaemon(ctx, func(c *client.Client) error { return do(ctx, c, args) })
	})
	return cmd
}

func newStatus(a *app) *cobra.Command {
	return a.onDaemon(&cobra.Command{
		Use:   "status",
		Short: "Show the state of the daemon",
		Long: `status shows the daemon of the state directory: its process, its configuration, its
calls, and whether the audit log and the container engine work. It does not start a
daemon: if none is running, it exits with 3.`,
		Args: noArgs,
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		reply, err := c.Status(ctx)
		return printReply(a, reply, err, a.printStatus)
	})
}

func (a *app) printStatus(st client.Status) error {
	var s section
	state := "running"
	if st.Draining {
		state = "shutting down"
	}
	s.add("daemon", fmt.Sprintf("%s, pid %d, version %s", state, st.PID, st.Version))
	s.add("since", sinceText(st.StartedAt))
	s.add("socket", st.Socket)
	s.add("state", st.State)
	s.add("config", fmt.Sprintf("%s, loaded %s", cmp.Or(st.Config.File, "no file"),
		localTime(st.Config.LoadedAt)))
	s.add("calls", fmt.Sprintf("%d running, %d queued", st.Calls.Running, st.Calls.Queued))
	s.add("workspaces", fmt.Sprintf("%d known, %d running", st.Workspaces.Known,
		st.Workspaces.Running))
	s.add("audit log", withError(st.Audit.Path, st.Audit.Error))
	for _, warning := range st.Audit.Warnings {
		s.add("warning", warning.Message)
	}
	s.add("engine", withError(st.Engine.Host+" ("+st.Engine.Source+")", st.Engine.Error))
	return writeSections(a.out, []section{s})
}

// sinceText returns a time and how long ago it is.
func sinceText(t time.Time) string {
	return fmt.Sprintf("%s (%s)", localTime(t), time.Since(t).Round(time.Second))
}

// sinceCell is sinceText for a table: on a narrow terminal only how long ago it is.
func (a *app) sinceCell(t time.Time) string {
	if a.isNarrow() {
		return time.Since(t).Round(time.Second).String()
	}
	return sinceText(t)
}

// withError adds the error of a part of the daemon to its name.
func withError(name string, err *dray.Error) string {
	if err == nil {
		return name
	}
	return fmt.Sprintf("%s: %s (%s)", name, err.Message, err.Code)
}

func newPs(a *app) *cobra.Command {
	var session string
	cmd := a.onDaemon(&cobra.Command{
		Use:   "ps",
		Short: "List the calls that run or wait",
		Long: `ps lists the calls that run, wait for a slot (queued) or wait for an approval
(see dray approvals), with --session those of a session. For calls that have ended see
dray audit list. ps does not start a daemon: if none is running, it exits with 3.`,
		Args: noArgsBySession,
	}, func(ctx context.Context, c *client.Client, _ []string) error {
		calls, err := c.Active(ctx, session)
		if err != nil {
			return err
		}
		return a.printActive(calls)
	})
	cmd.Flags().StringVar(&session, "session", "", "only calls of the session with this `id`")
	return cmd
}

func (a *app) printActive(calls []client.Reply[dray.Record]) error {
	if a.json {
		items := make([]jsontext.Value, len(calls))
		for i, c := range calls {
			items[i] = c.JSON
		}
		return a.printJSON(client.Page[jsontext.Value]{Items: items})
	}
	t := a.table("ID", "TOOL", "STATUS", "WHERE", "SINCE", "WHO", "COMMAND").leaveOut("WHO")
	for _, c := range calls {
		rec := c.Value
		status := string(rec.Status)
		if rec.Approval != "" {
			status = "approval"
		}
		t.add(a.idCell(rec.ID), rec.Tool, status, where(rec), a.sinceCell(rec.StartedAt),
			rec.Principal, commandLine(rec.Input))
	}
	return t.write(a.out)
}

func newCancel(a *app) *cobra.Command {
	var session string
	oneID := oneArg("the id of a call", "run dray ps to find it")
	cmd := a.onDaemon(&cobra.Command{
		Use:   "cancel ID | --session S",
		Short: "Cancel a call, or those of a session, and wait for the end",
		Long: `cancel cancels a call, waits until everything that it started has ended, and prints
how it ended. ID may be the beginning of an id, of at least 8 characters. A call that
has ended already does not change. With --session it cancels all your calls of that
session which run or are queued. cancel does not start a daemon: if none is running,
it exits with 3.`,
		Example: "  dray ps\n  dray cancel 01980f2e-5b1c-7c3a-9d2e-0123456789ab\n" +
			"  dray cancel --session build",
		Args: func(cmd *cobra.Command, args []string) error {
			switch ofSession := cmd.Flags().Changed("session"); {
			case ofSession && len(args) > 0:
				return dray.Errorf(dray.CodeInvalidRequest, "name a call or a session, not both").
					WithHint("see dray cancel --help")
			case ofSession:
				return nil
			default:
				return oneID(cmd, args)
			}
		},
	}, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 0 {
			return a.cancelSession(ctx, c, session)
		}
		id, err := fullID(ctx, c, args[0])
		if err != nil {
			return err
		}
		reply, err := c.CancelAndWait(ctx, id)
		if dray.CodeOf(err) == dray.CodeNotFound {
			err = dray.AsError(err).WithHint("run dray ps to find the id")
		}
		return printReply(a, reply, err, func(rec dray.Record) error {
			_, err := fmt.Fprintf(a.out, "%s: %s\n", rec.ID, endOf(rec))
			return outputError(err)
		})
	})
	cmd.Flags().StringVar(&session, "session", "", "cancel the calls of the session with this `id`")
	return cmd
}

func (a *app) cancelSession(ctx context.Context, c *client.Client, session string) error {
	reply, err := c.CancelSession(ctx, session)
	return printReply(a, reply, err, func(page client.Page[dray.Record]) error {
		for _, rec := range page.Items {
			if _, err := fmt.Fprintf(a.out, "%s: %s\n", rec.ID, endOf(rec)); err != nil {
				return outputError(err)
			}
		}
		if len(page.Items) == 0 {
			_, err := fmt.Fprintf(a.out, "no call of session %s runs\n", session)
			return outputError(err)
		}
		return nil
	})
}

// engineTimeout bounds how long the status waits for the engine.
const engineTimeout = 3 * time.Second

// Status implements [api.Daemon].
func (d *daemon) Status(ctx context.Context) api.Status {
	current := d.current.Load()
	st := api.Status{
		Version: thisBuild().Version, PID: os.Getpid(), StartedAt: d.startedAt,
		State: string(current.cfg.State), Socket: current.cfg.Server.Socket, Draining: d.calls.Draining(),
		Config: current.status(),
		Audit: api.AuditStatus{
			Path: current.cfg.State.AuditDB(), Error: errorOrNil(d.audit.Ready(ctx)),
			Warnings: d.audit.Warnings(ctx),
		},
		Engine: api.EngineStatus{Host: d.engine.Host(), Source: d.engine.Source()},
	}
	st.Calls.Running, st.Calls.Queued = d.calls.Counts()
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	list, err := d.workspaces.List(ctx)
	st.Engine.Error = errorOrNil(err)
	st.Workspaces.Known = len(list)
	for _, w := range list {
		if w.State == workspace.Running {
			st.Workspaces.Running++
		}
	}
	return st
}

func errorOrNil(err error) *dray.Error {
	if err == nil {
		return nil
	}
	return dray.AsError(err)
}
