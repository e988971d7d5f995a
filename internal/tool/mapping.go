package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// Mapping gives an executor that turns the call's input and working folder into the environment's
// paths for next, and the output of next into the caller's. What it refuses (path_invalid,
// path_too_deep, bad_cwd) is refused before anything starts; a bad path in an output, and one that
// a link on the host leads out of its folder, stays raw and is listed. For the text that the tool
// prints or reads it hands a filter down where the call, or else the tool, asks for that. On the
// host the paths are the caller's already: nothing is rewritten or listed, and the same inputs are
// refused.
func Mapping(tools *Registry, next dray.Executor) dray.Executor {
	return dray.ExecutorFunc(func(ctx context.Context, call dray.Call, sink dray.Sink) (dray.Result,
		error,
	) {
		t, err := tools.Get(call.Invocation.Tool)
		if err != nil {
			return dray.Result{}, err
		}
		m, err := newMapping(t, call)
		if err != nil {
			return dray.Result{}, err
		}
		if err := m.mapCall(&call); err != nil {
			return m.withReport(dray.Result{}), err
		}
		res, err := next.Execute(ctx, call, sink)
		return m.withReport(m.mapResult(res)), m.mapError(err)
	})
}

// mapping is the way of one call, down and up.
type mapping struct {
	tool      *Tool
	mode      dray.MappingMode
	caps      dray.Capabilities
	mapper    *pathmapper.Mapper
	report    dray.MappingReport
	warnings  []string
	container bool
}

func newMapping(t *Tool, call dray.Call) (*mapping, error) {
	m := &mapping{
		tool: t, mode: cmp.Or(call.Invocation.Mapping, t.Mapping), caps: call.Environment.Capabilities(),
		mapper: &pathmapper.Mapper{},
		report: dray.MappingReport{
			Mapped: []dray.MappedPath{}, Unmapped: []dray.UnmappedPath{},
			Errors: []dray.Detail{},
		},
	}
	if t.isSync {
		m.mode = dray.MapNone // it knows by itself whose a path is
	}
	m.container = m.caps.Kind != dray.KindHost
	if !m.container {
		return m, nil
	}
	var err error
	m.mapper, m.warnings, err = pathmapper.FromMounts(m.caps.Mounts, nil)
	return m, err
}

// mapCall sets the call's mapped input and its working folder. The invocation stays as it is.
func (m *mapping) mapCall(call *dray.Call) error {
	var err error
	if call.WorkDir, err = m.dir(call.Invocation, call.Route); err != nil {
		return err
	}
	input, report, err := m.mapper.Input(jsontext.Value(call.Invocation.Input),
		m.options("/input", m.tool.inputPaths))
	m.add(report)
	if err != nil {
		return err
	}
	call.MappedInput = json.RawMessage(input)
	if m.rewritesText(call.Invocation) {
		call.NewTextFilter = func(to io.Writer) dray.TextFilter { return m.mapper.Rewriter(pathmapper.ToHost, to) }
	}
	return nil
}

// rewritesText says whether the paths in text are rewritten. A program on a terminal draws by the
// lengths of what it prints, so that stays.
func (m *mapping) rewritesText(inv dray.Invocation) bool {
	wanted := m.tool.RewriteText
	if inv.RewriteText != nil {
		wanted = *inv.RewriteText
	}
	return m.container && wanted && inv.Terminal == nil
}

// mapError turns the paths in what a file tool says of its failure into the caller's: they are
// those that the caller gave.
func (m *mapping) mapError(err error) error {
	if _, ok := errors.AsType[*dray.Error](err); !ok || !m.container || m.tool.files == nil {
		return err
	}
	e := dray.AsError(err)
	message, paths := m.mapper.RewriteText(pathmapper.ToHost, []byte(e.Message))
	if paths == 0 {
		return err
	}
	e.Message = string(message)
	return e
}

// mapResult maps the output back. It comes before any metadata, whose paths stay the container's
// own (PM-11).
func (m *mapping) mapResult(res dray.Result) dray.Result {
	if r := res.Metadata.Mapping; r != nil {
		m.add(*r)
		res.Metadata.Mapping = nil
	}
	if !m.container || len(res.Output) == 0 || m.tool.isSync {
		return res
	}
	on := symlinkGuard{links: m.tool.reportsSymlinks}
	defer on.close()
	opts := m.options("/output", m.tool.outputPaths)
	opts.CheckHostPath = on.check
	output, report := m.outputMapper(res.Metadata.Sync).Output(jsontext.Value(res.Output), opts)
	m.add(report)
	res.Output = json.RawMessage(output)
	return res
}

// outputMapper is the mapper of the output: what came home has its name on the host by that, before
// any mount (SY-11).
func (m *mapping) outputMapper(report *dray.SyncReport) *pathmapper.Mapper {
	home := syncedMounts(report)
	if len(home) == 0 {
		return m.mapper
	}
	mapper, _, err := pathmapper.FromMounts(append(home, m.caps.Mounts...), nil)
	if err != nil {
		return m.mapper
	}

	return mapper
}

func (m *mapping) options(pointer string, marks *pathmapper.Marks) pathmapper.Options {
	return pathmapper.Options{Mode: m.mode, Marks: marks, HostExists: existsOnHost, Pointer: pointer}
}

func (m *mapping) add(r dray.MappingReport) {
	m.report.Mapped = append(m.report.Mapped, r.Mapped...)
	m.report.Unmapped = append(m.report.Unmapped, r.Unmapped...)
	m.report.Errors = append(m.report.Errors, r.Errors...)
}

// withReport attaches what happened to the paths. On the host nothing can have happened.
func (m *mapping) withReport(res dray.Result) dray.Result {
	if m.container {
		res.Metadata.Mapping = &m.report
		res.Metadata.Warnings = append(m.warnings, res.Metadata.Warnings...)
	}
	return res
}

// dir gives the working folder in the environment: its own where the call names none.
func (m *mapping) dir(inv dray.Invocation, route dray.Route) (string, error) {
	switch {
	case inv.Cwd == "":
		return m.caps.WorkspaceFolder, nil
	case !path.IsAbs(inv.Cwd) && (!m.container || inv.Workspace == ""):
		return path.Join(cmp.Or(inv.Workspace, m.caps.WorkspaceFolder), inv.Cwd), nil
	case !path.IsAbs(inv.Cwd):
		return m.below(inv, cmp.Or(route.Workspace, inv.Workspace))
	case m.container:
		return m.absolute(inv.Cwd, cmp.Or(route.Workspace, inv.Workspace))
	default:
		return inv.Cwd, nil
	}
}

// absolute maps a folder that the call names in full. One that is neither under a mount nor in the
// workspace may be the container's own, so it goes on as it is; if it is not, the container says
// so.
func (m *mapping) absolute(cwd, workspace string) (string, error) {
	t, err := m.mapper.ToContainer(cwd)
	if err != nil {
		return "", err
	}
	if !t.Mapped && workspace != "" {
		if dir, ok := m.relativeToWorkspace(cwd, workspace, t.Reason); ok {
			return dir, nil
		}
	}
	m.note(cwd, t.Path, t.Reason)
	return t.Path, nil
}

// below maps a folder relative to the call's workspace; folder is the host's name for the
// container's workspace folder.
func (m *mapping) below(inv dray.Invocation, folder string) (string, error) {
	wanted := path.Join(inv.Workspace, inv.Cwd)
	t, err := m.mapper.ToContainer(wanted)
	if err != nil {
		return "", err
	}
	if t.Mapped {
		m.note(wanted, t.Path, "")
		return t.Path, nil
	}
	if dir, ok := m.relativeToWorkspace(wanted, folder, t.Reason); ok {
		return dir, nil
	}
	return "", dray.Errorf(dray.CodeBadCwd, "the container does not have the working folder %s",
		wanted).
		WithHint("its workspace is %s: choose a folder in there, or mount this one", folder)
}

// relativeToWorkspace takes a folder that no mount leads to, but that lies in the workspace, for
// the same step below the container's workspace folder: so it is where the container holds the
// workspace in another way (a volume), or where the caller reaches it through a link.
func (m *mapping) relativeToWorkspace(wanted, workspace, reason string) (dir string, ok bool) {
	rest, err := filepath.Rel(workspace, wanted)
	if err != nil || !filepath.IsLocal(rest) {
		return "", false
	}
	m.note(wanted, wanted, reason+"; taken as the same folder below the container's workspace folder")
	return path.Join(m.caps.WorkspaceFolder, rest), true
}

// note lists what became of the working folder.
func (m *mapping) note(from, to, reason string) {
	if reason == "" {
		m.report.Mapped = append(m.report.Mapped, dray.MappedPath{Pointer: "/cwd", From: from, To: to})
		return
	}
	m.report.Unmapped = append(m.report.Unmapped,
		dray.UnmappedPath{Pointer: "/cwd", Path: from, Reason: reason})
}

// existsOnHost is asked for strings with white space alone, to tell a path from prose.
func existsOnHost(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
