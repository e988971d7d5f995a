package command

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dray-dev/dray"
)

// recordSections lays a call out for people: what it was, where and why it ran there, what it was given, what came of it.
func recordSections(rec dray.Record) []section {
	return []section{
		callSection(rec), routeSection(rec.Route), containerSection(rec.Metadata.Container), inputSection(rec),
		mappingSection(rec.Metadata.Mapping), captureSection("stdout", rec.Stdout), captureSection("stderr", rec.Stderr),
		{title: "output", text: indented(rec.Output)},
		syncSection(rec.Metadata.Sync), changesSection(rec.Metadata),
		killSection(rec.Metadata.Kill), errorSection(rec.Error),
		{title: "warnings", text: strings.Join(rec.Metadata.Warnings, "\n")},
	}
}

func callSection(rec dray.Record) section {
	var s section
	s.add("id", rec.ID)
	s.add("tool", rec.Tool)
	s.add("status", string(rec.Status))
	s.add("reason", string(rec.Reason))
	if rec.ExitCode != nil {
		s.add("exit code", strconv.Itoa(*rec.ExitCode))
	}
	if rec.Signal != nil {
		s.add("signal", fmt.Sprintf("%s (%d)", rec.Signal.Name, rec.Signal.Number))
	}
	s.add("started", rec.StartedAt.Format(time.RFC3339Nano))
	if rec.EndedAt != nil {
		s.add("ended", rec.EndedAt.Format(time.RFC3339Nano))
		s.add("took", duration(rec))
	}
	if ms := rec.Metadata.QueuedMS; ms > 0 {
		s.add("waited", formatMillis(ms)+" for its turn")
	}
	s.add("principal", rec.Principal)
	s.add("workspace", rec.Workspace)
	s.add("cwd", rec.Cwd)
	s.add("leftovers", string(rec.Leftovers))
	s.add("plan", rec.Context.PlanID)
	s.add("session", rec.Context.SessionID)
	s.add("sandbox", rec.Context.SandboxID)
	for _, name := range slices.Sorted(maps.Keys(rec.Context.Labels)) {
		s.add("label", name+"="+rec.Context.Labels[name])
	}
	return s
}

func routeSection(route dray.Route) section {
	s := section{title: "route"}
	s.add("environment", string(route.Environment))
	s.add("rule", route.Rule)
	s.add("container", route.Container)
	s.add("workspace", route.Workspace)
	return s
}

func containerSection(c *dray.ContainerMetadata) section {
	s := section{title: "container"}
	if c == nil {
		return s
	}
	s.add("name", c.Name)
	s.add("id", c.ID)
	s.add("image", c.Image)
	s.add("digest", c.ImageDigest)
	s.add("engine", c.Engine)
	s.add("folder", c.WorkspaceFolder)
	s.add("user", c.User)
	s.add("transport", strings.TrimSuffix(c.Transport+", "+c.Channel, ", "))
	s.add("exec", strconv.FormatFloat(c.ExecMS, 'f', 1, 64)+" ms")
	return s
}

func inputSection(rec dray.Record) section {
	return section{title: "input", text: indented(rec.Input)}
}

// mappingSection lists what happened to paths: rewritten, left alone and why, wrong.
func mappingSection(m *dray.MappingReport) section {
	s := section{title: "paths"}
	if m == nil {
		return s
	}
	for _, p := range m.Mapped {
		s.add(p.Pointer, p.From+" -> "+p.To)
	}
	for _, p := range m.Unmapped {
		s.add(p.Pointer, p.Path+" unmapped: "+p.Reason)
	}
	for _, p := range m.Errors {
		s.add(p.Pointer, "error: "+p.Message)
	}
	return s
}

// syncSection says what came home.
func syncSection(r *dray.SyncReport) section {
	s := section{title: "sync"}
	if r == nil {
		return s
	}
	s.add("state", string(r.State))
	s.add("files", fmt.Sprintf("%d, %d bytes", len(r.Files)+r.FilesOmitted, r.Bytes))
	if r.DryRun {
		s.add("dry run", "nothing was written")
	}
	for _, p := range r.Refused {
		s.add("refused", fmt.Sprintf("%s (%s): %s", p.Path, p.Code, p.Message))
	}
	if r.Error != nil {
		s.add("error", fmt.Sprintf("%s (%s)", r.Error.Message, r.Error.Code))
	}
	return s
}

// changesSection lists the files that dray changed.
func changesSection(m dray.Metadata) section {
	s := section{title: "changed files"}
	for _, c := range m.Changes {
		s.add(string(c.Action), fmt.Sprintf("%s: %s (%s -> %s)", c.Environment, c.Path, orDash(shortHash(c.SHA256Before)), orDash(shortHash(c.SHA256After))))
	}
	return s
}

func captureSection(title string, c dray.StreamSummary) section {
	s := section{title: title, text: c.Text}
	if c.TotalBytes == 0 {
		return s
	}
	size := fmt.Sprintf("%d bytes", c.TotalBytes)
	if c.Truncated {
		size += fmt.Sprintf(", the first %d kept", c.KeptBytes)
	}
	if c.Rewritten != nil {
		size += fmt.Sprintf(", %d paths rewritten", c.Rewritten.Paths)
	}
	s.title += " (" + size + ")"
	return s
}

func killSection(k *dray.KillReport) section {
	s := section{title: "left behind"}
	if k == nil || k.Survivors.Proven && len(k.Survivors.PIDs) == 0 && k.Leftover == 0 {
		return s
	}
	switch {
	case !k.Survivors.Proven:
		s.add("survivors", "not known: it could not be proved that none is left")
	case len(k.Survivors.PIDs) > 0:
		s.add("survivors", strings.Trim(fmt.Sprint(k.Survivors.PIDs), "[]"))
	}
	if ended := k.Leftover - len(k.Kept); ended > 0 {
		s.add("ended", fmt.Sprintf("%d that the tool left running", ended))
	}
	if len(k.Kept) > 0 {
		s.add("kept", "the tool left them running, as the call asked: "+strings.Trim(fmt.Sprint(k.Kept), "[]"))
	}
	return s
}

func errorSection(e *dray.Error) section {
	s := section{title: "error"}
	if e == nil {
		return s
	}
	s.add("code", string(e.Code))
	s.add("message", e.Message)
	s.add("hint", e.Hint)
	for _, d := range e.Details {
		s.add(d.Pointer, d.Message)
	}
	return s
}
