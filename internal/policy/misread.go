package policy

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The parser and shells read some texts otherwise, and a command that only one of them sees runs
// without a decision. Such texts make the call opaque.

var (
	// joinedLine is a backslash at the end of a line within a word, as in "$\<newline>(rm x)", and in
	// a comment, where it joins nothing.
	joinedLine = regexp.MustCompile(`(#[^\n]*|[^ \t\n])\\\n`)
	// plainBackquotes contain nothing that quotes. To shells they end at the next backquote, whatever
	// is around it.
	plainBackquotes = regexp.MustCompile("`[A-Za-z0-9 _./=:,+@%-]*`")
	// plainDelimiter is the delimiter of a here-document, as all shells read it.
	plainDelimiter = regexp.MustCompile(`^(\w+|\\\w+|'\w+'|"\w+")$`)
	// otherEscape finds escapes of $'...' that not all shells have, such as \x{72}.
	otherEscape = regexp.MustCompile(`^(\\[abefnrtv\\'"]|[^\\])*\\[^abefnrtv\\'"]`)
)

// markMisread notes what the parser can misread anywhere in a text.
func (a *analysis) markMisread(text string) {
	if strings.Contains(text, "\r") { // a part of a word to shells, white space to the parser
		a.markOpaque("the shell text has carriage returns")
	}
	if joinedLine.MatchString(text) {
		a.markOpaque("a backslash at the end of a line joins a word, or is in a comment")
	}
	if strings.Contains(plainBackquotes.ReplaceAllLiteralString(text, ""), "`") {
		a.markOpaque("backquotes have other backquotes, quotes or expansions between them")
	}
}

// markHereDocument notes a here-document that ends elsewhere than at the first line that is its
// delimiter, for instance because that line is within an expansion.
func (a *analysis) markHereDocument(text string, r *syntax.Redirect) {
	if (r.Op == syntax.Hdoc || r.Op == syntax.DashHdoc) && !plainHereDocument(text, r) {
		a.markOpaque("a here-document whose end shells can read otherwise")
	}
}

func plainHereDocument(text string, r *syntax.Redirect) bool {
	if r.Word == nil || int(r.Word.End().Offset()) > len(text) {
		return false
	}
	word := text[r.Word.Pos().Offset():r.Word.End().Offset()]
	_, body, found := strings.Cut(text[r.Word.End().Offset():], "\n")
	if !found || !plainDelimiter.MatchString(word) {
		return false
	}
	start := len(text) - len(body)
	end := -1 // not known: the body is empty
	if r.Hdoc != nil && len(r.Hdoc.Parts) > 0 {
		if int(r.Hdoc.Pos().Offset()) != start {
			return false // the line goes on in another here-document, or in an expansion
		}
		end = int(r.Hdoc.End().Offset()) // with the delimiter
	}
	for line := range strings.SplitSeq(body, "\n") {
		next := start + len(line)
		if strings.TrimLeft(line, "\t") == strings.Trim(word, `\'"`) {
			return next == end || end < 0 && len(text)-len(body) == start
		}
		start = next + 1
	}
	return false
}
