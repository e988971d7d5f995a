package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// Bounds of grep. Its schema states them.
const (
	maxMatches = 1000
	// maxText is the maximum number of characters of a line in the output.
	maxText = 500
	// maxSearched is the maximum size of a file that is not named itself, maxScanned the maximum of
	// all bytes read.
	maxSearched = 64 << 20
	maxScanned  = 2 << 30
)

type grepInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
	Glob    string `json:"glob"`
}

type grepOutput struct {
	Matches   []match       `json:"matches"`
	Truncated bool          `json:"truncated"`
	Skipped   []skippedPath `json:"skipped,omitzero"`
}

type match struct {
	Path string `json:"path"`
	Line int64  `json:"line"`
	Text string `json:"text"`
	// Truncated reports whether the text is only a part of its line.
	Truncated bool `json:"cut,omitzero"`
}

func checkGrepInput(in grepInput) []dray.Detail {
	var details []dray.Detail
	if _, err := newLinePattern(in.Pattern); err != nil {
		details = violation("/input/pattern", err.Error())
	}
	if in.Glob != "" {
		if _, err := newGlob(in.Glob); err != nil {
			details = append(details, violation("/input/glob", err.Error())...)
		}
	}
	return details
}

func grepFiles(ctx context.Context, at fileScope, in grepInput) (any, error) {
	g := &grepRun{bytesLeft: maxScanned, out: grepOutput{Matches: []match{}}}
	var err error
	if g.lines.pattern, err = newLinePattern(in.Pattern); err == nil && in.Glob != "" {
		g.filter, err = newGlob(in.Glob)
	}
	if err != nil {
		return nil, dray.Errorf(dray.CodeInvalidInput, "parse the pattern: %w", err)
	}
	searchGit := g.filter != nil && g.filter.hasLiteral(gitDir)
	if g.fileSearch, err = at.search(in.Path, searchGit); err != nil {
		return nil, err
	}
	g.lines.found, g.lines.cancelled = g.take, func() error { return context.Cause(ctx) }
	err = g.walk(ctx, func(name string, info dray.FileInfo) error { return g.visit(ctx, name, info) })
	g.out.Truncated, g.out.Skipped = g.truncated, g.skipped
	return g.out, err
}

type grepRun struct {
	*fileSearch
	filter    *glob
	lines     lineSearch
	file      string // path of the searched file in the output
	bytesLeft int64  // that may still be read
	out       grepOutput
}

// visit searches one file. Files beneath the start that cannot be read are skipped.
func (g *grepRun) visit(ctx context.Context, name string, info dray.FileInfo) error {
	named := name == "."
	switch {
	case info.Type == "directory", !named &&
		(info.Type != "file" || g.filter != nil && !g.filter.matchesFile(name)):
		return nil
	case !named && info.Size > maxSearched:
		g.skip(name, fmt.Sprintf("the file has more than %d MiB: set path to it to search it",
			maxSearched>>20))
		return nil
	}
	g.file, g.lines.firstLongLine = dray.PrintablePath(path.Join(g.base.path, name)), 0
	err := g.at.reading(ctx, path.Join(g.base.name, name), 0, g.scan)
	if g.lines.firstLongLine > 0 {
		g.skip(name, fmt.Sprintf("line %d has more than %d MiB; only its beginning was searched",
			g.lines.firstLongLine, maxLine>>20))
	}
	if err == nil || named || ctx.Err() != nil || errors.Is(err, fs.SkipAll) {
		return err
	}
	return g.noteSkipped(name, err)
}

// noteSkipped records a file that cannot be read. It returns an error that concerns more than this
// file.
func (g *grepRun) noteSkipped(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist): // removed meanwhile
	case errors.Is(err, fs.ErrPermission):
		g.skip(name, "the user that tools run as may not read it")
	case dray.CodeOf(err) == dray.CodePathInvalid: // replaced meanwhile, or a disk error
		g.skip(name, err.Error())
	default:
		return err
	}
	return nil
}

func (g *grepRun) scan(r io.Reader, _ dray.FileInfo) error {
	limited := &io.LimitedReader{R: r, N: g.bytesLeft}
	err := g.lines.run(limited)
	if g.bytesLeft = limited.N; g.bytesLeft == 0 {
		g.truncated = true
		return fs.SkipAll
	}
	if errors.Is(err, errStop) {
		return fs.SkipAll
	}
	return err
}

// take adds a line that matches. One match more than maxMatches shows that there are more.
func (g *grepRun) take(l line) error {
	m := match{Path: g.file, Line: l.number}
	m.Text, m.Truncated = excerpt(l.text, l.from)
	if len(g.out.Matches) == maxMatches || !g.fits(m.Path, m.Text) {
		g.truncated = true
		return errStop
	}
	g.out.Matches = append(g.out.Matches, m)
	return nil
}

// excerpt returns a line as UTF-8: whole, or maxText characters of it that include the start of the
// match, and whether it was cut.
func excerpt(text []byte, at int) (string, bool) {
	begin, end := 0, len(text)
	if utf8.RuneCount(text) > maxText {
		begin = at
		for n := 0; n < maxText/4 && begin > 0; n++ {
			_, size := utf8.DecodeLastRune(text[:begin])
			begin -= size
		}
		end = begin
		for n := 0; n < maxText && end < len(text); n++ {
			_, size := utf8.DecodeRune(text[end:])
			end += size
		}
	}
	return strings.ToValidUTF8(string(text[begin:end]), "\uFFFD"), begin > 0 || end < len(text)
}
