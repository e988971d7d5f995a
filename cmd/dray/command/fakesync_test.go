package command

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/dray-dev/dray"
)

// fakeSync is the tool sync without containers. It reports three files, or fails if the first path
// is named after an error.
func fakeSync(next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		if call.Invocation.Tool != "sync" {
			return next.Execute(ctx, call, sink)
		}
		var in struct {
			Paths     []string
			DryRun    bool   `json:"dry_run"`
			OnRefused string `json:"on_refused"`
		}
		if err := json.Unmarshal(call.Invocation.Input, &in); err != nil {
			return dray.Result{}, err
		}
		sink.Started()
		sink.Progress("sync", "500 files and directories, 16.8 MB, 9.1 MB/s")
		return syncNamed(filepath.Base(in.Paths[0]), in.DryRun, in.OnRefused == "skip")
	})
}

func syncNamed(name string, dryRun, skip bool) (dray.Result, error) {
	report := &dray.SyncReport{
		State: dray.SyncComplete, Files: []dray.SyncedFile{},
		Refused: []dray.RefusedPath{}, DryRun: dryRun,
	}
	code := map[string]dray.Code{
		"untrusted": dray.CodeWorkspaceUntrusted, "full": dray.CodeDiskFull,
		"refuse": dray.CodeSyncRefused,
	}[name]
	if name == "refuse" {
		report.Refused = append(report.Refused,
			dray.RefusedPath{Path: "/w/l\x1b[2Jnk", Code: dray.CodePathInvalid, Message: "is a symlink"})
	}
	if skip && name == "refuse" {
		code = ""
	}
	if code != "" {
		report.State = dray.SyncRefused
		return dray.Result{Metadata: dray.Metadata{Sync: report}},
			dray.Errorf(code, "nothing was written, because %s", name).
				WithHint("omit the refused paths, or set on_refused to skip")
	}
	digest := func(digit string) string { return strings.Repeat(digit, 64) }
	report.Bytes = 1536
	report.Files = []dray.SyncedFile{
		{
			Path: "/root/a\x1b[2J", Source: "/w/a", Size: 512, SHA256: digest("1"), Mode: "0600",
			Action: dray.FileCreated,
		},
		{
			Path: "/root/b", Source: "/w/b", Size: 1024, SHA256: digest("3"), SHA256Before: digest("2"),
			Mode: "0600", Action: dray.FileReplaced,
		},
		{
			Path: "/root/c", Source: "/w/c", SHA256: digest("4"), SHA256Before: digest("4"), Mode: "0700",
			Action: dray.FileUnchanged,
		},
	}
	if name == "same" {
		report.Bytes, report.Files = 0, report.Files[2:]
	}
	return dray.Result{
		Reason: dray.ReasonExited, ExitCode: new(int),
		Metadata: dray.Metadata{Sync: report},
	}, nil
}
