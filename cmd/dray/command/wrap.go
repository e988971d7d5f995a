package command

import (
	"strings"
	"unicode/utf8"
)

// minWrapWidth is the least width that texts are wrapped to.
const minWrapWidth = 40

// wrapHelp fits a help text into a width: paragraphs are filled anew, and the descriptions of flags
// and commands continue below their beginning. Usage lines and examples stay: they are copied.
func wrapHelp(text string, width int) string {
	width = max(width, minWrapWidth)
	var out, paragraph []string
	flush := func() {
		out = append(out, fill(paragraph, width)...)
		paragraph = nil
	}
	verbatim := false
	for line := range strings.SplitSeq(text, "\n") {
		isText := line != "" && line[0] != ' ' && !strings.HasSuffix(line, ":")
		if isText {
			paragraph = append(paragraph, line)
			continue
		}
		if line != "" && line[0] != ' ' {
			// a title, or the last line of a paragraph
			verbatim = line == "Usage:" || line == "Examples:"
			paragraph = append(paragraph, line)
			flush()
			continue
		}
		flush()
		if verbatim {
			out = append(out, line)
		} else {
			out = append(out, wrapLine(line, width, descriptionAt(line))...)
		}
	}
	flush()
	return strings.Join(out, "\n")
}

// fill joins the lines of a paragraph, and breaks them anew if one is too long.
func fill(lines []string, width int) []string {
	for _, line := range lines {
		if utf8.RuneCountInString(line) > width {
			return wrapLine(strings.Join(lines, " "), width, 0)
		}
	}
	return lines
}

// descriptionAt returns the column of the description in the line of a flag or a command: behind
// its last gap of several blanks.
func descriptionAt(line string) int {
	start := len(line) - len(strings.TrimLeft(line, " "))
	if gap := strings.LastIndex(line[start:], "  "); gap >= 0 {
		return start + gap + len("  ")
	}
	return start
}

// wrapLine breaks a line between words. The lines after the first are indented.
func wrapLine(line string, width, indent int) []string {
	if indent > width/2 {
		indent = 0
	}
	var lines []string
	for utf8.RuneCountInString(line) > width {
		at := breakAt(line, width, indent)
		if at < 0 {
			break // a word that is longer than the width
		}
		lines = append(lines, strings.TrimRight(line[:at], " "))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(line[at:], " ")
	}
	return append(lines, line)
}

// breakAt returns the offset of the last blank within width, behind the indent, or else of the
// first one after it, or -1.
func breakAt(line string, width, indent int) int {
	found, column := -1, 0
	for i, r := range line {
		if r == ' ' && column >= indent && strings.TrimSpace(line[:i]) != "" {
			if column > width && found >= 0 {
				return found
			}
			found = i
		}
		if column > width && found >= 0 {
			return found
		}
		column++
	}
	if found >= 0 && strings.TrimSpace(line[found:]) != "" {
		return found
	}
	return -1
}
