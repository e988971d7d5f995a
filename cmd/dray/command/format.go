package command

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// section is a part of a description: fields under a title, a block of text, or both. A section
// without either is not printed.
type section struct {
	title  string
	fields []field
	text   string
}

type field struct{ name, value string }

// add adds a field, unless its value is empty.
func (s *section) add(name, value string) {
	if value != "" {
		s.fields = append(s.fields, field{name, value})
	}
}

// writeSections prints sections with an empty line between them, escaped for a terminal.
func writeSections(w io.Writer, sections []section) error {
	var parts []string
	for _, s := range sections {
		if len(s.fields) > 0 || s.text != "" {
			parts = append(parts, s.String())
		}
	}
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return outputError(err)
}

// String returns the section's lines.
func (s section) String() string {
	var b strings.Builder
	indent := ""
	if s.title != "" {
		b.WriteString(s.title + "\n")
		indent = "  "
	}
	width := 0
	for _, f := range s.fields {
		width = max(width, utf8.RuneCountInString(f.name))
	}
	for _, f := range s.fields {
		fmt.Fprintf(&b, "%s%-*s  %s\n", indent, width, f.name, escapeLine(f.value))
	}
	if s.text != "" {
		for line := range strings.Lines(strings.TrimSuffix(escapeText(s.text), "\n") + "\n") {
			b.WriteString(indent + line)
		}
	}
	return b.String()
}

// escapeLine escapes a text for one line of a terminal: control codes, characters that change the
// reading direction, and bytes that are not UTF-8.
func escapeLine(s string) string { return escape(s, "") }

// escapeText is escapeLine for text of several lines.
func escapeText(s string) string { return escape(s, "\n\t") }

func escape(s, keep string) string {
	if !strings.ContainsFunc(s,
		func(r rune) bool { return isControlRune(r) && !strings.ContainsRune(keep, r) }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case strings.ContainsRune(keep, r) || !isControlRune(r):
			b.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isControlRune reports whether a terminal would act on r instead of printing it: control codes,
// and format characters, which reorder or hide text. RuneError counts, as it stands for invalid
// bytes.
func isControlRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' ||
		r == utf8.RuneError
}

// safeJSON escapes the characters that JSON permits and a terminal acts on. They occur in strings
// only, so the value does not change.
func safeJSON(b []byte) []byte {
	s := string(b)
	if !strings.ContainsFunc(s, unsafeInJSON) {
		return b
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case !unsafeInJSON(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return []byte(out.String())
}

func unsafeInJSON(r rune) bool {
	return r >= 0x7f && isControlRune(r) && r != utf8.RuneError
}

// timeLayouts are the forms of a time in a flag. Without an offset it is in the zone of the app.
var timeLayouts = []string{
	time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04",
	time.DateTime, "2006-01-02 15:04", time.DateOnly,
}

// parseTime returns the time given by a flag: in one of timeLayouts, or as a duration before now.
func (a *app) parseTime(flag, s string) (time.Time, error) {
	if ago, ok := parseAgo(s); ok {
		return time.Now().Add(-ago), nil
	}
	if t, ok := a.parseDay(s); ok {
		return t, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, s, a.zone()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("invalid time %q for --%s", s, flag).
		WithHint("use a duration such as 90m or 1d, today, yesterday, or YYYY-MM-DD or " +
			"YYYY-MM-DDTHH:MM:SS in local time or with an offset")
}

// parseDay returns the beginning of today or yesterday in the zone of the app.
func (a *app) parseDay(s string) (time.Time, bool) {
	year, month, day := time.Now().In(a.zone()).Date()
	switch s {
	case "today":
	case "yesterday":
		day--
	default:
		return time.Time{}, false
	}
	return time.Date(year, month, day, 0, 0, 0, 0, a.zone()), true
}

// parseAgo parses a duration that may begin with a number of weeks or days, such as 1d12h.
func parseAgo(s string) (time.Duration, bool) {
	var total time.Duration
	for _, unit := range []struct {
		name string
		time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, rest, ok := strings.Cut(s, unit.name)
		if n, err := strconv.ParseUint(number, 10, 16); ok && err == nil {
			total += time.Duration(n) * unit.Duration
			s = rest
		}
	}
	if s == "" && total > 0 {
		return total, true
	}
	d, err := time.ParseDuration(s)
	return total + d, err == nil && d >= 0
}

// time formats a time in the zone of the app with its offset, to the second.
func (a *app) time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(a.zone()).Format(time.RFC3339)
}

// localTime is time in the local time zone.
func localTime(t time.Time) string { return new(app).time(t) }

// recordSections returns the description of a call: the call, its route, its input, its results.
// Times are in the given zone.
func recordSections(rec dray.Record, zone *time.Location) []section {
	return []section{
		callSection(rec, zone), routeSection(rec.Route), containerSection(rec.Metadata.Container),
		{title: "input", text: indented(rec.Input)},
		mappingSection(rec.Metadata.Mapping),
		captureSection("stdout", rec.Stdout), captureSection("stderr", rec.Stderr),
		{title: "output", text: indented(rec.Output)},
		syncSection(rec.Metadata.Sync), changesSection(rec.Metadata),
		killSection(rec.Metadata.Kill), errorSection(rec.Error),
		{title: "warnings", text: strings.Join(rec.Metadata.Warnings, "\n")},
	}
}

func callSection(rec dray.Record, zone *time.Location) section {
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
	s.add("started", rec.StartedAt.In(zone).Format(time.RFC3339Nano))
	if rec.EndedAt != nil {
		ended, duration := rec.EndedAt.In(zone).Format(time.RFC3339Nano), "unknown"
		if rec.Reason == dray.ReasonInterrupted {
			ended = "unknown, before " + ended
		}
		if ms := rec.DurationMS; ms != nil {
			duration = formatMillis(*ms)
		}
		s.add("ended", ended)
		s.add("duration", duration)
	}
	if ms := rec.Metadata.QueuedMS; ms > 0 {
		s.add("queued", formatMillis(ms))
	}
	s.add("principal", rec.Principal)
	if a := rec.Metadata.Approval; a != nil {
		s.add("approval", strings.TrimSuffix(a.ID+", decided by "+a.DecidedBy, ", decided by "))
	}
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

func formatMillis(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Millisecond).String()
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

// mappingSection lists the paths that were mapped, that were not and why, and the errors.
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
	if r.RefusedOmitted > 0 {
		s.add("refused", fmt.Sprintf("%d more", r.RefusedOmitted))
	}
	if r.Error != nil {
		s.add("error", fmt.Sprintf("%s (%s)", r.Error.Message, r.Error.Code))
	}
	return s
}

func changesSection(m dray.Metadata) section {
	s := section{title: "changed files"}
	for _, c := range m.Changes {
		s.add(string(c.Action), fmt.Sprintf("%s: %s (%s -> %s)", c.Environment, c.Path,
			hashCell(c.SHA256Before), hashCell(c.SHA256After)))
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
		size += fmt.Sprintf(", truncated: only the first %d were captured (limits.capture)", c.KeptBytes)
	}
	if c.Rewritten != nil {
		size += fmt.Sprintf(", %d paths rewritten", c.Rewritten.Paths)
	}
	s.title += " (" + size + ")"
	return s
}

func killSection(k *dray.KillReport) section {
	s := section{title: "processes"}
	if k == nil {
		return s
	}
	list := func(pids []int) string { return strings.Trim(fmt.Sprint(pids), "[]") }
	switch {
	case !k.Survivors.Proven:
		s.add("survivors", "unknown: their absence could not be verified")
	case len(k.Survivors.PIDs) > 0:
		s.add("survivors", list(k.Survivors.PIDs))
	}
	if ended := k.Leftover - len(k.Kept); ended > 0 {
		s.add("leftover", fmt.Sprintf("%d killed", ended))
	}
	if len(k.Kept) > 0 {
		s.add("kept", list(k.Kept)+" (left running, as requested)")
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
