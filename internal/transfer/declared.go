package transfer

import (
	"context"
	"errors"
	"slices"

	"github.com/dray-dev/dray"
)

// FetchDeclared brings home what a tool or a call declared as its outputs (SY-11), when the call has ended. What the host sees through a mount, or
// because the call ran there, is named with the action "mounted" and not copied. What is refused, or was never written, is listed,
// and does not keep the rest. The report tells how it went: there is no error beside it.
func (s *Syncer) FetchDeclared(ctx context.Context, env dray.Environment, req Request) dray.SyncReport {
	req.SkipRefused = true
	report, _ := s.run(ctx, env, req, (*syncJob).fetchDeclared) // whose error the report has, too
	return report
}

func (j *syncJob) fetchDeclared(ctx context.Context, env dray.Environment) (dray.SyncReport, error) {
	j.declared = true
	j.findSources(j.req.Paths)
	j.dedupe()
	seen, err := j.mounted(ctx, env)
	report := j.empty(dray.SyncComplete)
	for _, f := range seen {
		report.Files, report.Bytes = append(report.Files, f), report.Bytes+f.Size
	}
	if err != nil || len(j.sources) == 0 {
		report.Refused = append([]dray.RefusedPath{}, j.refused...)
		return report, err
	}
	if err := j.checkFetchable(); err != nil {
		return report, err
	}
	copied, err := j.copyTree(ctx, env.Files, j.s.root, j.s.cfg.Root)
	if err != nil {
		return report, err
	}
	copied.Files, copied.Bytes = slices.Concat(report.Files, copied.Files), report.Bytes+copied.Bytes
	return copied, nil
}

// errDifferentFile says that the host does not see a source through the mount that should show it.
var errDifferentFile = errors.New("it is not the same file")
