package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/pathmapper"
)

// mapPaths runs a call with its input and working directory in the environment's paths, and maps
// the output back into the caller's. It refuses an input with an invalid path (path_invalid,
// path_too_deep, bad_cwd) before anything starts. In an output, an invalid path stays raw and is
// listed, as does one whose symlink on the host leads out of its directory. If the call, or else
// the tool, rewrites text, arguments and commands are rewritten too, and mapPaths sets
// call.NewTextFilter. On the host, and for a caller with the paths of the container, the paths are
// the caller's already: nothing is rewritten or listed, and the same inputs are refused.
func (d *definition) mapPaths(
	ctx context.Context, call dray.Call, sink dray.Sink,
) (dray.Result, error) {
	m, err := d.newMapping(call)
	if err != nil {
		return dray.Result{}, err
	}
	if err := m.mapCall(&call); err != nil {
		return m.withReport(dray.Result{}), err
	}
	res, err := d.run(ctx, call, sink)
	m.explainFailure(call.Invocation, res, err)
	return m.withReport(m.mapResult(ctx, res)), m.mapError(err)
}

type mapping struct {
	*definition

	mode     dray.MappingMode
	caps     dray.Capabilities
	mapper   *pathmapper.Mapper
	report   dray.MappingReport
	warnings []string
	// maps reports whether paths are mapped: in a container, for a caller with the host's paths.
	maps bool
	// ofContainer reports whether the caller's paths are those of the container (PM-17).
	ofContainer bool
}

func (d *definition) newMapping(call dray.Call) (*mapping, error) {
	m := &mapping{
		definition: d, caps: call.Environment.Capabilities(), mapper: &pathmapper.Mapper{},
		mode: cmp.Or(d.paths.mode, call.Invocation.Mapping, d.Mapping),
		report: dray.MappingReport{
			Mapped: []dray.MappedPath{}, Unmapped: []dray.UnmappedPath{}, Errors: []dray.Detail{},
		},
	}
	m.ofContainer = call.Invocation.Paths == dray.PathsOfContainer
	m.maps = m.caps.Kind != dray.KindHost && !m.ofContainer
	if !m.maps {
		return m, nil
	}
	var err error
	m.mapper, m.warnings, err = pathmapper.FromMounts(m.caps.Mounts, nil)
	return m, err
}

// mapCall sets the mapped input, the working directory and the text filter of the call.
func (m *mapping) mapCall(call *dray.Call) error {
	var err error
	if call.WorkDir, err = m.dir(call.Invocation, call.Route); err != nil {
		return err
	}
	if call.RealDir, err = m.realDir(*call); err != nil {
		return err
	}
	opts := m.options("/input", m.input)
	if m.rewritesText(call.Invocation) {
		opts.Texts = m.paths.texts
	}
	input, report, err := m.mapper.Input(jsontext.Value(call.Invocation.Input), opts)
	m.add(report)
	if err != nil {
		return err
	}
	call.MappedInput = json.RawMessage(input)
	if m.rewritesText(call.Invocation) {
		call.NewTextFilter = func(to io.Writer) dray.TextFilter {
			return m.mapper.Rewriter(pathmapper.ToHost, to)
		}
	}
	return nil
}

// rewritesText reports whether paths in text are rewritten. Output on a terminal is not: programs
// position it by its length.
func (m *mapping) rewritesText(inv dray.Invocation) bool {
	wanted := m.RewriteText || inv.Paths == dray.PathsOfHost
	if inv.RewriteText != nil {
		wanted = *inv.RewriteText
	}
	return m.maps && wanted && inv.Terminal == nil
}

// maxExplained is the maximum number of paths that the report of a failure explains.
const maxExplained = 20

// explainFailure lists the host paths in the arguments or the command of a call that failed and
// whose text was not rewritten, with their container paths: they may be why it failed (PM-16).
func (m *mapping) explainFailure(inv dray.Invocation, res dray.Result, err error) {
	if !m.maps || len(m.paths.texts) == 0 || m.rewritesText(inv) ||
		dray.NormalizeResult(res, err).Status == dray.StatusSucceeded {
		return
	}
	opts := m.options("/input", m.input)
	opts.Texts = m.paths.texts
	for i, p := range m.mapper.TextPaths(jsontext.Value(inv.Input), opts) {
		if i == maxExplained {
			break
		}
		reason := "in the container it is " + p.To + "; use that path, or set rewrite_text"
		if i == 0 {
			m.warnings = append(m.warnings, fmt.Sprintf(
				"%s contains %s: %s", p.Pointer, lexical.Truncate(p.From, maxMessage), reason))
		}
		m.report.Unmapped = append(m.report.Unmapped,
			dray.UnmappedPath{Pointer: p.Pointer, Path: p.From, Reason: reason})
	}
}

// mapError maps the paths in the error message of a file tool into the caller's, who gave them.
func (m *mapping) mapError(err error) error {
	if _, ok := errors.AsType[*dray.Error](err); !ok || !m.maps || !m.paths.errors {
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

// mapResult maps the output. The paths in metadata remain those of the container (PM-11).
func (m *mapping) mapResult(ctx context.Context, res dray.Result) dray.Result {
	if r := res.Metadata.Mapping; r != nil {
		m.add(*r)
		res.Metadata.Mapping = nil
	}
	if !m.maps || len(res.Output) == 0 {
		return res
	}
	guard := SymlinkGuard{links: m.paths.symlinks}
	defer guard.Close()
	opts := m.options("/output", m.output)
	opts.CheckHostPath = func(root, name string) error { return guard.Check(ctx, root, name) }
	output, report := m.outputMapper(res.Metadata.Sync).Output(jsontext.Value(res.Output), opts)
	m.add(report)
	res.Output = json.RawMessage(output)
	return res
}

// outputMapper returns the mapper of the output, in which what was fetched takes precedence over
// the mounts (SY-11).
func (m *mapping) outputMapper(report *dray.SyncReport) *pathmapper.Mapper {
	if fetched := syncedMounts(report); len(fetched) > 0 {
		mapper, _, err := pathmapper.FromMounts(append(fetched, m.caps.Mounts...), nil)
		if err == nil {
			return mapper
		}
	}
	return m.mapper
}

// options returns the options for a document with the given schema, which may be nil.
func (m *mapping) options(pointer string, s *schema) pathmapper.Options {
	opts := pathmapper.Options{Mode: m.mode, HostExists: existsOnHost, Pointer: pointer}
	if s != nil {
		opts.Marks = s.paths
	}
	return opts
}

func (m *mapping) add(r dray.MappingReport) {
	m.report.Mapped = append(m.report.Mapped, r.Mapped...)
	m.report.Unmapped = append(m.report.Unmapped, r.Unmapped...)
	m.report.Errors = append(m.report.Errors, r.Errors...)
}

// withReport attaches the mapping report. There is none if nothing is mapped.
func (m *mapping) withReport(res dray.Result) dray.Result {
	if m.maps {
		res.Metadata.Mapping = &m.report
		res.Metadata.Warnings = append(m.warnings, res.Metadata.Warnings...)
	}
	return res
}

// dir returns the working directory in the environment.
func (m *mapping) dir(inv dray.Invocation, route dray.Route) (string, error) {
	switch {
	case inv.Cwd == "", m.InWorkspace:
		return m.caps.WorkspaceFolder, nil
	case m.ofContainer && !path.IsAbs(inv.Cwd):
		return path.Join(m.caps.WorkspaceFolder, inv.Cwd), nil
	case !path.IsAbs(inv.Cwd) && (!m.maps || inv.Workspace == ""):
		return path.Join(cmp.Or(inv.Workspace, m.caps.WorkspaceFolder), inv.Cwd), nil
	case !path.IsAbs(inv.Cwd):
		return m.below(inv, cmp.Or(route.Workspace, inv.Workspace))
	case m.maps:
		return m.absolute(inv.Cwd, cmp.Or(route.Workspace, inv.Workspace))
	default:
		return inv.Cwd, nil
	}
}

// realDir returns where the working directory must lead: to the one that was approved (SE-04). Of a
// directory of the container that is not mapped, what was approved is its path, so no symlink may
// be in it. That of a call that names none is configured, and may have some.
func (m *mapping) realDir(call dray.Call) (string, error) {
	a, inv := call.Approved, call.Invocation
	onHost := m.caps.Kind == dray.KindHost
	names := inv.Cwd != "" && !m.InWorkspace || onHost && inv.Workspace+call.Route.Workspace != ""
	switch {
	case a == nil, !names:
		return "", nil
	case onHost:
		return cmp.Or(a.Directory, path.Clean(call.WorkDir)), nil
	case m.maps && a.Directory != "":
		t, err := m.mapper.ToContainer(a.Directory)
		if err != nil || t.Mapped {
			return t.Path, err
		}
	}
	return path.Clean(call.WorkDir), nil
}

// absolute maps an absolute directory. One that is neither under a mount nor in the workspace may
// be a path of the container, so it is passed on unchanged.
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

// below maps a directory relative to the workspace of the call. workspace is the host's path of
// the workspace folder in the container.
func (m *mapping) below(inv dray.Invocation, workspace string) (string, error) {
	wanted := path.Join(inv.Workspace, inv.Cwd)
	t, err := m.mapper.ToContainer(wanted)
	if err != nil {
		return "", err
	}
	if t.Mapped {
		m.note(wanted, t.Path, "")
		return t.Path, nil
	}
	if dir, ok := m.relativeToWorkspace(wanted, workspace, t.Reason); ok {
		return dir, nil
	}
	return "", dray.Errorf(dray.CodeBadCwd, "the container has no working directory %s", wanted).
		WithHint("choose a directory in its workspace %s, or mount this one", workspace)
}

// relativeToWorkspace maps a directory of the workspace that no mount covers to the same relative
// path in the container's workspace folder. So it is found if the container has the workspace in
// another way (a volume), or if the caller reaches it through a symlink.
func (m *mapping) relativeToWorkspace(wanted, workspace, reason string) (dir string, ok bool) {
	rest, ok := lexical.Rel(workspace, wanted)
	if !ok {
		return "", false
	}
	m.note(wanted, wanted, reason+"; mapped to the same path in the container's workspace folder")
	return path.Join(m.caps.WorkspaceFolder, rest), true
}

// note records the mapping of the working directory.
func (m *mapping) note(from, to, reason string) {
	if reason == "" {
		m.report.Mapped = append(m.report.Mapped, dray.MappedPath{Pointer: "/cwd", From: from, To: to})
		return
	}
	unmapped := dray.UnmappedPath{Pointer: "/cwd", Path: from, Reason: reason}
	m.report.Unmapped = append(m.report.Unmapped, unmapped)
}

// existsOnHost tells a path with white space from prose.
func existsOnHost(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
