package command

import (
	"context"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/client"
)

// completionTimeout bounds how long a completion waits for the daemon. Tests raise it.
var completionTimeout = time.Second

// names returns the values that a completion offers, with a description after a tab.
type names func(ctx context.Context, c *client.Client) ([]string, error)

// addCompletions adds the completion of arguments and of flags to all commands.
func (a *app) addCompletions(root *cobra.Command) {
	arguments := map[string]cobra.CompletionFunc{
		"dray call":           a.completeOne(toolNames),
		"dray tools":          a.completeOne(toolNames),
		"dray route explain":  a.completeOne(toolNames),
		"dray policy explain": a.completeOne(toolNames),
		"dray cancel":         a.completeOne(activeIDs),
		"dray audit show":     a.completeOne(recentIDs),
	}
	for _, name := range []string{"show", "approve", "deny"} {
		arguments["dray approvals "+name] = a.completeOne(pendingApprovals)
	}
	for _, name := range []string{"up", "stop", "rebuild", "rm", "trust"} {
		arguments["dray workspace "+name] = a.completeOne(workspaceFolders)
	}
	flags := map[string]cobra.CompletionFunc{
		"container":   a.complete(containerNames),
		"workspace":   a.complete(workspaceFolders),
		"tool":        a.complete(toolNames),
		"environment": fixed(string(dray.KindHost), string(dray.KindContainer)),
		"leftovers":   fixed(string(dray.KillLeftovers), string(dray.KeepLeftovers)),
		"output":      fixed("stdout", "stderr"),
		"kind":        fixed(each(audit.Kinds(), func(k audit.Kind) string { return k.Name })...),
		"status": fixed(string(dray.StatusQueued), string(dray.StatusRunning),
			string(dray.StatusSucceeded), string(dray.StatusFailed)),
		"reason": fixed(string(dray.ReasonExited), string(dray.ReasonSignalled),
			string(dray.ReasonTimeout), string(dray.ReasonIdleTimeout), string(dray.ReasonCancelled),
			string(dray.ReasonOutputLimit), string(dray.ReasonOOM), string(dray.ReasonStartFailed),
			string(dray.ReasonDenied), string(dray.ReasonInvalid), string(dray.ReasonUnavailable),
			string(dray.ReasonInterrupted)),
	}
	eachCommand(root, func(cmd *cobra.Command) {
		if f := arguments[cmd.CommandPath()]; f != nil {
			cmd.ValidArgsFunction = f
		}
		for name, f := range flags {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, f) // the flag exists, and has no other one
			}
		}
	})
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, do)
	}
}

func fixed(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// completeOne completes the first argument.
func (a *app) completeOne(list names) cobra.CompletionFunc {
	first := a.complete(list)
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion,
		cobra.ShellCompDirective,
	) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, toComplete)
	}
}

// complete asks the running daemon. Without one, or without a response in time, there are no
// values, and the shell offers files. Nothing is printed: it would disturb the command line.
func (a *app) complete(list names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion,
		cobra.ShellCompDirective,
	) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		quiet := *a
		quiet.err = io.Discard
		var found []cobra.Completion
		_ = quiet.withRunningDaemon(ctx, func(c *client.Client) error {
			all, err := list(ctx, c)
			for _, value := range all {
				if strings.HasPrefix(value, toComplete) && isOneLine(value) {
					found = append(found, value)
				}
			}
			return err
		})
		return found, cobra.ShellCompDirectiveDefault
	}
}

// isOneLine reports whether a value can be offered: a line feed would make two of it.
func isOneLine(value string) bool {
	value, _, _ = strings.Cut(value, "\t")
	return !strings.ContainsFunc(value, isControlRune)
}

func toolNames(ctx context.Context, c *client.Client) ([]string, error) {
	current, _ := currentDir() // empty: the tools of all known workspaces
	reply, err := c.Tools(ctx, nearestWorkspace(ctx, current))
	return each(reply.Value.Items, func(t client.Tool) string {
		return t.Name + "\t" + escapeLine(firstSentence(t.Description))
	}), err
}

func containerNames(ctx context.Context, c *client.Client) ([]string, error) {
	reply, err := c.Containers(ctx)
	return each(reply.Value.Items, func(c client.Container) string {
		return c.Name + "\t" + c.State
	}), err
}

func workspaceFolders(ctx context.Context, c *client.Client) ([]string, error) {
	reply, err := c.Workspaces(ctx)
	return each(reply.Value.Items, func(w client.Workspace) string {
		return w.Folder + "\t" + w.State
	}), err
}

func activeIDs(ctx context.Context, c *client.Client) ([]string, error) {
	calls, err := c.Active(ctx, "")
	return each(calls, func(r client.Reply[dray.Record]) string {
		return r.Value.ID + "\t" + r.Value.Tool
	}), err
}

func recentIDs(ctx context.Context, c *client.Client) ([]string, error) {
	page, err := c.Invocations(ctx, url.Values{"limit": {"50"}})
	return each(page.Items, func(r dray.Record) string {
		return r.ID + "\t" + r.Tool + ", " + endOf(r)
	}), err
}

func each[T any](items []T, text func(T) string) []string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = text(item)
	}
	return texts
}
