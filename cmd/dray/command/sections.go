package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// section is one part of what a command shows of a single thing: fields under a title, a block of text, or both. One without either is left out.
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

// writeSections prints sections with an empty line between them. Everything in them is made harmless for a terminal.
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
