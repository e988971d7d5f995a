package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func newApprovals(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "approvals", Short: "See and decide the calls that policy asks about",
		Long: `A call that policy asks about does not run before a human approves exactly this call:
its tool, input, environment, working directory, variables and stdin. An approval lets
one call run, and expires after policy.approval_lifetime.`,
	}
	cmd.AddCommand(newApprovalsList(a), newApprovalsShow(a),
		newDecision(a, "approve", "Let the call of an approval run, once"),
		newDecision(a, "deny", "Refuse the call of an approval"))
	return group(cmd)
}

func newApprovalsList(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the approvals that wait for a decision", Args: noArgs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are decided, used or expired")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		return a.withClient(func(c *client.Client) error {
			state := ""
			if all {
				state = "all"
			}
			reply, err := c.Approvals(ctx, state)
			return printReply(a, reply, err, a.printApprovals)
		})
	})
	return cmd
}

func (a *app) printApprovals(page client.Page[client.Approval]) error {
	t := a.table("ID", "STATE", "EXPIRES", "WHO", "RUNS", "CALL")
	t = t.leaveOut("WHO", "RUNS")
	for _, p := range page.Items {
		t.add(p.ID, p.State, expiry(p), p.Principal, place(p.Request), commandOf(p.Request))
	}
	return t.write(a.out)
}

// expiry returns how long an approval can be decided or used.
func expiry(p client.Approval) string {
	if p.State != "pending" && p.State != "approved" {
		return "-"
	}
	return "in " + max(time.Until(p.ExpiresAt), 0).Round(time.Second).String()
}

func place(r client.ApprovalRequest) string {
	switch {
	case r.Environment == string(dray.KindHost):
		return "host"
	case r.Container != "":
		return r.Container
	default:
		return "container of " + r.Workspace
	}
}

// commandOf returns what a call runs, quoted for a shell, or its tool with its input.
func commandOf(r client.ApprovalRequest) string {
	var input struct {
		Argv    []string `json:"argv"`
		Command string   `json:"command"`
	}
	err := json.Unmarshal(r.Input, &input)
	switch {
	case err == nil && r.Tool == "exec" && len(input.Argv) > 0:
		return shellQuote(input.Argv)
	case err == nil && r.Tool == "shell" && input.Command != "":
		return "sh -c " + shellQuote([]string{input.Command})
	default:
		return r.Tool + " " + string(r.Input)
	}
}

// shellQuote returns arguments as a shell reads them back.
func shellQuote(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		plain := arg != "" && strings.IndexFunc(arg, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"+
				"@%+=:,./-_", r)
		}) < 0
		if plain {
			quoted[i] = arg
		} else {
			quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

func newApprovalsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show the call of an approval, and why policy asks",
		Args: oneArg("one id, or its beginning", "dray approvals ls lists the ids"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.withClient(func(c *client.Client) error {
			id, err := findApproval(ctx, c, args[0])
			if err != nil {
				return err
			}
			reply, err := c.Approval(ctx, id)
			return printReply(a, reply, err, a.printApproval)
		})
	})
	return cmd
}

// findApproval returns the id that begins with a text.
func findApproval(ctx context.Context, c *client.Client, text string) (string, error) {
	all, err := c.Approvals(ctx, "all")
	if err != nil {
		return "", err
	}
	var found []string
	for _, p := range all.Value.Items {
		if strings.HasPrefix(p.ID, text) {
			found = append(found, p.ID)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return "", dray.Errorf(dray.CodeNotFound, "no such approval: %q", text).
			WithHint("dray approvals ls lists those that wait, with --all every one")
	default:
		return "", usagef("%d approvals begin with %q", len(found), text).
			WithHint("use more of the id: %s", strings.Join(found[:min(len(found), 5)], ", "))
	}
}

func (a *app) printApproval(p client.Approval) error {
	r := p.Request
	lines := [][2]string{
		{"approval", p.ID},
		{"state", p.State},
		{"asked by", p.Principal + ", call " + p.Invocation},
		{"runs", place(r) + " (" + r.Rule + ")"},
		{"call", commandOf(r)},
		{"directory", r.Cwd},
		{"workspace", r.Workspace},
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		lines = append(lines, [2]string{"variable", name + "=" + r.Env[name]})
	}
	if s := r.Stdin; s != nil {
		text := fmt.Sprintf("%d bytes: %s", s.Bytes, s.Text)
		if s.Open {
			text = "open: the caller writes it while the call runs"
		}
		lines = append(lines, [2]string{"stdin", text})
	}
	for _, path := range r.Sync {
		lines = append(lines, [2]string{"fetches", path})
	}
	if r.Leftovers == string(dray.KeepLeftovers) {
		lines = append(lines, [2]string{"leftovers", "processes may go on when the call has ended"})
	}
	for _, why := range r.Reasons {
		lines = append(lines, [2]string{"why", why})
	}
	for _, id := range r.Policies {
		lines = append(lines, [2]string{"policy", id})
	}
	lines = append(lines, [2]string{"expires", expiry(p)})
	if p.DecidedBy != "" {
		lines = append(lines, [2]string{"decided by", p.DecidedBy + ", " +
			p.DecidedAt.Format(time.RFC3339)})
	}
	lines = append(lines, [2]string{"reason", p.Reason}, [2]string{"used by", p.UsedBy})
	for _, line := range lines {
		if line[1] == "" || line[1] == "-" {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "%-11s %s\n", line[0], escapeLine(line[1])); err != nil {
			return outputError(err)
		}
	}
	if p.State != "pending" {
		return nil
	}
	_, err := fmt.Fprintf(a.out, "\ndecide: dray approvals approve %s, or deny\n", p.ID)
	return outputError(err)
}

func newDecision(a *app, decision, short string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: decision + " ID", Short: short,
		Args: oneArg("one id, or its beginning", "dray approvals ls lists the ids"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for the caller and the audit log")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.withClient(func(c *client.Client) error {
			id, err := findApproval(ctx, c, args[0])
			if err != nil {
				return err
			}
			reply, err := c.Decide(ctx, id, client.Decision{Decision: decision, Reason: reason})
			return printReply(a, reply, err, func(p client.Approval) error {
				next := ""
				if p.State == "approved" {
					next = "; the same call runs when it is repeated, until " +
						p.ExpiresAt.Local().Format(time.TimeOnly)
				}
				_, err := fmt.Fprintf(a.out, "%s is %s%s\n", p.ID, escapeLine(p.State), next)
				return outputError(err)
			})
		})
	})
	return cmd
}

// pendingApprovals completes the ids of the approvals that wait for a decision.
func pendingApprovals(ctx context.Context, c *client.Client) ([]string, error) {
	reply, err := c.Approvals(ctx, "")
	var ids []string
	for _, p := range reply.Value.Items {
		ids = append(ids, p.ID+"\t"+commandOf(p.Request))
	}
	return ids, err
}
