package command

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 5 << 29: "2.5 GiB", 1 << 62: "4194304.0 TiB",
	} {
		if got := formatBytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// Without a terminal, transfer messages are not shown; other progress is.
func TestSyncProgress_NoTerminal(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, 0)
	p.show("sync", "500 files and directories, 16.8 MB, 9.1 MB/s")
	p.show("build", "step 1 \x1b[2J")
	if got, want := out.String(), "dray: build: step 1 \\x1b[2J\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// On a terminal, one line shows the progress and is removed at the end.
func TestSyncProgress_Terminal(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, 0)
	p.terminal = true
	p.show("sync", "500 files")
	p.show("sync", "1000 files")
	p.clear()
	const want = "dray: sync: 500 files\r\x1b[Kdray: sync: 1000 files\r\x1b[K"
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

func TestSyncPaths(t *testing.T) {
	for name, c := range map[string]struct {
		f                syncFlags
		given, workspace string
		want             string
	}{
		"within the workspace": {syncFlags{}, "out/", "/home/me", "/home/me/app/out"},
		"the directory itself": {syncFlags{}, ".", "/home/me/app", "/home/me/app"},
		"from elsewhere":       {syncFlags{workspace: "/srv/w"}, "out", "/srv/w", "/srv/w/out"},
		"of the host, to elsewhere": {
			syncFlags{workspace: "/srv/w", push: true},
			"out", "/srv/w",
			"/home/me/app/out",
		},
		"of the host to a container": {
			syncFlags{container: "c", push: true}, "out", "", "/home/me/app/out",
		},
		"absolute, unchanged": {syncFlags{}, "/tmp//a/../b/", "/home/me", "/tmp//a/../b/"},
		"of no one's folder":  {syncFlags{container: "c"}, "out", "", ""},
		"empty":               {syncFlags{}, "", "/home/me", ""},
		"not UTF-8":           {syncFlags{}, "/a\xff", "/home/me", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.f.paths([]string{c.given}, "/home/me/app", c.workspace)
			if (err == nil) != (c.want != "") || err == nil && got[0] != c.want {
				t.Errorf("%q became %q, %v; want %q", c.given, got, err, c.want)
			}
		})
	}
}

// The error of a sync decides the exit code, by the table of all commands.
func TestSyncExitCodes(t *testing.T) {
	for _, c := range []struct {
		reason dray.Reason
		code   dray.Code
		want   int
	}{
		{dray.ReasonInvalid, dray.CodeSyncRefused, 1},
		{dray.ReasonInvalid, dray.CodeLimitExceeded, 1},
		{dray.ReasonUnavailable, dray.CodeTransferFailed, 1},
		{dray.ReasonTimeout, "", 1},
		{dray.ReasonCancelled, "", 130},
		{dray.ReasonDenied, dray.CodeDenied, 4},
		{dray.ReasonDenied, dray.CodeWorkspaceUntrusted, 4},
		{dray.ReasonUnavailable, dray.CodeContainerNotFound, 5},
		{dray.ReasonUnavailable, dray.CodeNoDevcontainer, 5},
		{dray.ReasonInvalid, dray.CodeInvalidInput, 2},
	} {
		rec := dray.Record{Status: dray.StatusFailed, Reason: c.reason, Error: &dray.Error{Code: c.code}}
		if got := syncExitCode(rec); got != c.want {
			t.Errorf("%s with %q is %d, want %d", c.reason, c.code, got, c.want)
		}
	}
	if got := syncExitCode(dray.Record{Status: dray.StatusSucceeded}); got != 0 {
		t.Errorf("success is %d", got)
	}
}
