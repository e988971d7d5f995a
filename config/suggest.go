package config

import (
	"fmt"
	"strings"
)

// suggestName says what to write instead of a name that is not among the known ones.
func suggestName(name string, known, supported []string) string {
	if near := closest(name, known); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	if len(supported) == 0 {
		return "remove it: no key of this section is supported yet"
	}
	return "remove it, or write one of " + strings.Join(supported, ", ")
}

// sectionOf finds the one setting that has this name in another section.
func sectionOf(name string) string {
	found := ""
	for _, s := range settings {
		if s.read == nil || !strings.HasSuffix(s.key, "."+normalize(name)) {
			continue
		}
		if found != "" {
			return ""
		}
		found = s.key
	}
	return found
}

// closest gives the candidate that a name most likely is a slip of, or "".
func closest(name string, candidates []string) string {
	best, least := "", max(1, len(name)/3)+1
	if len(name) > shownLength {
		return ""
	}
	for _, c := range candidates {
		if d := distance(normalize(name), normalize(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// normalize takes away what people vary without thinking of it.
func normalize(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that lead from a to b, each place being touched once
// (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
