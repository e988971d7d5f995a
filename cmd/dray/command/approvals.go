package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/client"
	"github.com/dray-dev/dray/internal/policy/approval"
)

func newApprovals(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "approvals", Short: "See and decide the calls that policy asks about",
		Long: `A call that policy asks about does not run before a human approves exactly this call:
its tool, input, environment, working directory, variables and stdin. An approval lets
one call run, and expires after policy.approval_lifetime.`,
	}
	cmd.AddCommand(newApprovalsList(a), newApprovalsShow(a),
		newDecision(a, "approve", "Let the call of an approval run, once",
			"  dray approvals show 01a2082c\n  dray approvals approve 01a2082c"),
		newDecision(a, "deny", "Refuse the call of an approval",
			"  dray approvals deny 01a2082c --reason \"not on a Friday\""))
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
		r, err := requestOf(p)
		if err != nil {
			return err
		}
		place := strings.TrimPrefix(r.Place(), "container of ") // as dray ps shows it
		t.add(a.idCell(p.ID), p.State, expiry(p), p.Principal, place, oneLine(r))
	}
	return t.write(a.out)
}

// expiry returns how long an approval can still be decided or used, "-" if it cannot.
func expiry(p client.Approval) string {
	if !audit.ApprovalState(p.State).IsOpen() {
		return "-"
	}
	return "in " + max(time.Until(p.ExpiresAt), 0).Round(time.Second).String()
}

// requestOf returns the call of an approval.
func requestOf(p client.Approval) (r approval.Request, err error) {
	if err := json.Unmarshal(p.Request, &r); err != nil {
		return r, dray.Errorf(dray.CodeInternal, "decode approval %s: %w", p.ID, err).
			WithHint("the daemon may be of another version: stop it and try again")
	}
	return r, nil
}

// oneLine returns what a call runs in a line.
func oneLine(r approval.Request) string {
	if command := r.Command(); command != "" {
		return command
	}
	return r.Tool + " " + string(r.Input)
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

// findApproval returns the id of the only approval whose id begins with text. It fails with
// not_found and with invalid_request if there are none or several.
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
	r, err := requestOf(p)
	if err != nil {
		return err
	}
	s := section{}
	s.add("approval", p.ID)
	s.add("state", p.State)
	s.add("asked by", p.Principal+", call "+p.Invocation)
	call, _ := r.Lines()
	for _, line := range call {
		s.add(line.Name, line.Text)
	}
	s.add("expires", expiry(p))
	if p.DecidedBy != "" {
		s.add("decided by", p.DecidedBy+", "+p.DecidedAt.Format(time.RFC3339))
	}
	s.add("reason", p.Reason)
	s.add("used by", p.UsedBy)
	if err := writeSections(a.out, []section{s}); err != nil || p.State != "pending" {
		return err
	}
	_, err = fmt.Fprintf(a.out, "\ndecide: dray approvals approve %s, or deny\n", p.ID)
	return outputError(err)
}

func newDecision(a *app, decision, short, example string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: decision + " ID", Short: short, Example: example,
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
					next = "; the call runs now if it waits, else once when it is repeated, until " +
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
		if r, err := requestOf(p); err == nil {
			ids = append(ids, p.ID+"\t"+escapeLine(oneLine(r)))
		}
	}
	return ids, err
}
