package tree

import (
	"strings"

	"github.com/dray-dev/dray"
)

// CheckName refuses a name that no entry can have: absolute, empty, not clean, with "." or ".." in it, with NUL, longer than MaxName or
// with an element longer than MaxElement. Any other bytes are a name. The error is path_invalid.
func CheckName(name string) error {
	switch {
	case name == "":
		return invalid(name, "it is empty")
	case len(name) > MaxName:
		return invalid(name, "it is longer than the kernel takes")
	case strings.IndexByte(name, 0) >= 0:
		return invalid(name, "it has a NUL")
	}
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element == "." || element == "..":
			return invalid(name, "it is not a clean path below the root")
		case len(element) > MaxElement:
			return invalid(name, "a part of it is longer than the kernel takes")
		}
	}
	return nil
}

func invalid(name, why string) *dray.Error {
	return dray.Errorf(dray.CodePathInvalid, "%.200q is no name of a file to take: %s", name, why).
		WithHint("give names relative to the root, with single slashes, without . and ..")
}

// Sources gives the names that a Collection asks for, in their order, without those that lie beneath another or stand twice. "." asks for
// all that lies beneath the root, and is the only one then. The error is path_invalid.
func Sources(names []string) ([]string, error) {
	asked := make(map[string]bool, len(names))
	for _, name := range names {
		if name == "." {
			return []string{"."}, nil
		}
		if err := CheckName(name); err != nil {
			return nil, err
		}
		asked[name] = true
	}
	sources := make([]string, 0, len(asked))
	for _, name := range names {
		if asked[name] && !beneath(name, asked) {
			sources = append(sources, name)
			asked[name] = false // the next time it stands there
		}
	}
	return sources, nil
}

// beneath says whether a folder above a name was asked for.
func beneath(name string, asked map[string]bool) bool {
	for above, ok := parent(name); ok; above, ok = parent(above) {
		if _, there := asked[above]; there {
			return true
		}
	}
	return false
}

// parent gives the folder that a name lies in; a name without a slash lies in the root.
func parent(name string) (string, bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", false
	}
	return name[:i], true
}
