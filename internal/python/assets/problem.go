package assets

import (
	"errors"
	"fmt"
)

// Kind is what is wrong with an asset.
type Kind string

// The kinds of problems.
const (
	// Missing says that nothing is there, Incomplete that a file is missing.
	Missing    Kind = "missing"
	Incomplete Kind = "incomplete"
	// Mismatch says that a file is not the pinned one.
	Mismatch Kind = "mismatch"
	// Unexpected says that a file is there that nothing pins.
	Unexpected Kind = "unexpected"
	// Unsafe says that others may change a file, or that it is not a regular file.
	Unsafe Kind = "unsafe"
)

// Problem is what is wrong with one asset.
type Problem struct {
	Kind Kind
	// File is an absolute path.
	File string
	// Expected and Got are checksums or sizes. Source is what the file is from.
	Expected, Got, Source string
	// Fix is the hint; empty means to fetch the assets.
	Fix string
}

func (p *Problem) Error() string {
	switch p.Kind {
	case Missing:
		return "Deno and Pyodide are not installed in " + p.File
	case Incomplete:
		return fmt.Sprintf("%s is missing, of %s", p.File, p.Source)
	case Mismatch:
		return fmt.Sprintf("%s is not the pinned file: expected %s, got %s, source %s",
			p.File, p.Expected, p.Got, p.Source)
	case Unexpected:
		return p.File + " is not pinned"
	default:
		return p.File + " " + p.Got
	}
}

func (p *Problem) fix() string {
	switch {
	case p.Fix != "":
		return p.Fix
	case p.Kind == Unexpected:
		return "move it away; wheels are added with `dray python fetch --from DIR`"
	default:
		return "run `dray python fetch`, or `dray python fetch --from DIR` without a network"
	}
}

// IsMissing reports whether an error of [Store.Open] says that nothing is installed.
func IsMissing(err error) bool {
	p, ok := asProblem(err)
	return ok && p.Kind == Missing
}

func asProblem(err error) (*Problem, bool) {
	return errors.AsType[*Problem](err)
}
