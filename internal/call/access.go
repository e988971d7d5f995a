package call

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/linux"
)

// Access decides what a principal may see and use (SE-06). Principals are uid:N, the peers of the
// socket, and token:NAME, the clients over TCP.
type Access struct {
	// UID is the user of the daemon.
	UID int
}

// Viewer returns whose calls a principal may see: the empty string, which stands for all, for root
// and the daemon's own user, and else the principal itself. Without a principal it is one that has
// no calls.
func (a Access) Viewer(principal string) string {
	switch principal {
	case "uid:0", fmt.Sprintf("uid:%d", a.UID):
		return ""
	case "":
		return "nobody"
	}
	return principal
}

// isOtherUser reports whether a principal is a user who was let in by server.users.
func (a Access) isOtherUser(principal string) bool {
	return strings.HasPrefix(a.Viewer(principal), "uid:")
}

// CheckWorkspace fails with workspace_not_found if a principal is another user who does not own the
// workspace. An empty workspace is one of nobody.
func (a Access) CheckWorkspace(ctx context.Context, principal, folder string) error {
	if !a.isOtherUser(principal) || owns(ctx, principal, folder) {
		return nil
	}
	return dray.Errorf(dray.CodeWorkspaceNotFound, "no such workspace of %s: %q", principal, folder).
		WithHint("use a directory that you own; another user's workspace cannot be used")
}

func owns(ctx context.Context, principal, folder string) bool {
	if folder == "" {
		return false
	}
	info, err := linux.UntrustedDir(folder).StatDir(ctx)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && principal == fmt.Sprintf("uid:%d", stat.Uid)
}

// CheckOperator fails with denied unless a principal sees the calls of all. action is what was
// requested, as in "reload the configuration".
func (a Access) CheckOperator(principal, action string) error {
	if a.Viewer(principal) == "" {
		return nil
	}
	return dray.Errorf(dray.CodeDenied, "%s may not %s", principal, action).
		WithHint("only the daemon's user, uid:%d, and root may", a.UID)
}

// CheckTrust fails with denied if a principal may not decide about trust: what a trusted workspace
// runs on the host, it runs as the daemon's user.
func (a Access) CheckTrust(principal string) error {
	if !a.isOtherUser(principal) {
		return nil
	}
	return dray.Errorf(dray.CodeDenied, "%s may not trust a workspace", principal).
		WithHint("ask the user who runs the daemon")
}

// Decider is who decides about an approval.
type Decider struct {
	Principal string
	// InCall reports whether a process of a call makes the request. It also returns true if that is
	// unknown.
	InCall func() bool
	// Elicited reports whether an MCP client has asked its user. Then a token may decide too.
	Elicited bool
}

// Check fails with denied unless a human decides, as far as that can be known: agents hold tokens
// and run the processes of calls (SE-05).
func (d Decider) Check() error {
	who := "a process of a call"
	switch {
	case strings.HasPrefix(d.Principal, "token:"):
		if d.Elicited {
			return nil
		}
		who = d.Principal
	case !d.InCall():
		return nil
	}
	return dray.Errorf(dray.CodeDenied, "%s may not decide about approvals", who).
		WithHint("a user of this machine decides, outside of a call: dray approvals show ID")
}

// checkCall checks the workspaces of a call: that of the request, that of its working directory,
// and that of the route, unless there is none.
func (a Access) checkCall(ctx context.Context, inv dray.Invocation, route dray.Route,
	routeErr error,
) error {
	inv = onHost(inv)
	if !a.isOtherUser(inv.Principal) {
		return nil
	}
	var dirs []string
	for _, dir := range []string{inv.Workspace, route.Workspace} {
		if dir != "" {
			dirs = append(dirs, dir)
		}
	}
	if filepath.IsAbs(inv.Cwd) {
		dirs = append(dirs, inv.Cwd)
	}
	if routeErr == nil && route.Environment == dray.KindContainer && route.Workspace == "" ||
		len(dirs) == 0 {
		dirs = append(dirs, "") // a container, or the host, without a workspace
	}
	for _, dir := range dirs {
		if err := a.CheckWorkspace(ctx, inv.Principal, dir); err != nil {
			return err
		}
	}
	return nil
}
