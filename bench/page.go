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

var errMarks = errors.New("it has not the two lines between which the figures go")

// replaceFigures puts new figures into a page and keeps all else byte for byte.
func replaceFigures(page, figures string) (string, error) {
	before, rest, found := strings.Cut(page, beginMark+"\n")
	_, after, ended := strings.Cut(rest, endMark+"\n")
	if !found || !ended {
		return "", errMarks
	}
	return before + beginMark + "\n\n" + strings.TrimSpace(figures) + "\n\n" + endMark + "\n" + after, nil
}

// publish writes the figures into the page at path, or to out where there is no path.
func publish(path, figures string, out io.Writer) error {
	if path == "" {
		_, err := io.WriteString(out, figures)
		return err
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	text, err := replaceFigures(string(page), figures)
	if err != nil {
		return fmt.Errorf("writing the figures into %s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a page of the documentation
}
