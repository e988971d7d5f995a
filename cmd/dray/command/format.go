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

// table is text in columns. Every cell is made harmless for a terminal; nothing is cut, since
// people copy ids and programs cut columns.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = escapeLine(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// write prints the table, the head too where there are no rows: it says what was looked for.
func (t *table) write(w io.Writer) error {
	rows := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return outputError(err)
}

// section is one part of what a command shows of a single thing: fields under a title, a block of
// text, or both. One without either is left out.
type section struct {
	title  string
	fields []field
	text   string
}

type field struct{ name, value string }

// add adds a field that has a value.
func (s *section) add(name, value string) {
	if value != "" {
		s.fields = append(s.fields, field{name, value})
	}
}

// writeSections prints sections with an empty line between them. Everything in them is made
// harmless for a terminal.
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

// String gives the section as it is shown, with a newline at its end.
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

// escapeLine makes a text harmless in one line of a terminal: what moves the cursor, changes
// colours, reverses the reading direction or is no UTF-8 is shown as an escape.
func escapeLine(s string) string { return escape(s, "") }

// escapeText is escapeLine for several lines.
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

// isControlRune says which characters act on a terminal instead of being shown: the control codes
// of both halves, and the format characters, which reorder or hide what stands beside them.
// RuneError counts, since it stands for bytes that are no UTF-8.
func isControlRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' ||
		r == utf8.RuneError
}

// safeJSON escapes within JSON what JSON itself lets stand. Such characters occur in its strings
// only, so the value stays the same.
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

// parseTime reads a time from a flag: RFC 3339, a day, or how long ago it is. The daemon gets RFC
// 3339.
func parseTime(flag, s string) (string, error) {
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return time.Now().Add(-ago).UTC().Format(time.RFC3339Nano), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UTC().Format(time.RFC3339Nano), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, time.Local); err == nil {
		return t.UTC().Format(time.RFC3339Nano), nil
	}
	return "", usagef("--%s %q is no time", flag, s).
		WithHint("write 2006-01-02T15:04:05Z, 2006-01-02, or how long ago it is, for instance 90m")
}

// localTime shows a time to people where they are, to the second.
func localTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// recordSections lays a call out for people: what it was, where and why it ran there, what it was
// given, what came of it.
func recordSections(rec dray.Record) []section {
	return []section{
		callSection(rec), routeSection(rec.Route), containerSection(rec.Metadata.Container), inputSection(rec),
		mappingSection(rec.Metadata.Mapping), captureSection("stdout",
			rec.Stdout), captureSection("stderr", rec.Stderr),
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
		s.add(string(c.Action), fmt.Sprintf("%s: %s (%s -> %s)", c.Environment, c.Path,
			orDash(shortHash(c.SHA256Before)), orDash(shortHash(c.SHA256After))))
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
		s.add("kept", "the tool left them running, as the call asked: "+strings.Trim(fmt.Sprint(k.Kept),
			"[]"))
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
