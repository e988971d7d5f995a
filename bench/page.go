package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// The lines of the page between which the figures stand. What is before and after them is text that people write.
const (
	beginMark = "<!-- figures: begin; written by `go run ./bench -write`, not by hand -->"
	endMark   = "<!-- figures: end -->"
)

var errMarks = errors.New("it has not the lines between which the bench writes")

// between cuts a page at two lines. Both stay with what is around them.
func between(page, begin, end string) (before, inside, after string, err error) {
	before, rest, found := strings.Cut(page, begin+"\n")
	inside, after, ended := strings.Cut(rest, end+"\n")
	if !found || !ended {
		return "", "", "", errMarks
	}
	return before + begin + "\n", inside, end + "\n" + after, nil
}

// replaceFigures puts new figures into a page and keeps all else byte for byte.
func replaceFigures(page, figures string) (string, error) {
	before, _, after, err := between(page, beginMark, endMark)
	if err != nil {
		return "", err
	}
	return before + "\n" + strings.TrimSpace(figures) + "\n\n" + after, nil
}

// publish writes the figures and the history's new line into the page at path, or the figures to out where there is no path.
func publish(path, figures string, line []string, out io.Writer) error {
	if path == "" {
		_, err := io.WriteString(out, figures)
		return err
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	text, err := replaceFigures(string(page), figures)
	if err == nil {
		text, err = addLine(text, line)
	}
	if err != nil {
		return fmt.Errorf("writing the figures into %s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a page of the documentation
}
