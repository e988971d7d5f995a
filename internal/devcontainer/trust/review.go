package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

// Review is what a user looks at before a trust is given.
type Review struct {
	Summary
	// Trusted reports whether all of this is trusted.
	Trusted bool `json:"trusted"`
	// Inputs are the files that the trust is bound to, by path.
	Inputs []Input `json:"inputs"`
	// Changed is how this differs from what was trusted last. It is empty if nothing was.
	Changed []string `json:"changed"`
}

// Input is a file that a trust is bound to.
type Input struct {
	Path string `json:"path"`
	// SHA256 is the hash of its content, empty for a symlink that leads to no file.
	SHA256 string `json:"sha256"`
	// Acts is what the file does on the host, or asks for there.
	Acts []string `json:"acts"`
}

// Write writes the review with control characters escaped.
func (r Review) Write(w io.Writer) error {
	if err := r.Summary.Write(w); err != nil {
		return err
	}
	trusted := "no"
	if r.Trusted {
		trusted = "yes"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%-22s %s\n", "trusted", trusted)
	for _, change := range r.Changed {
		fmt.Fprintf(&out, "%-22s %s\n", "since it was trusted", lexical.EscapeControl(change))
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// configActs returns what the configuration does on the host or asks for there, with its local
// features and its compose project.
func (in *inputs) configActs() []SummaryLine {
	lines := appendLine(nil, "initializeCommand", in.file.Values["initializeCommand"])
	lines = append(lines, in.mounted()...)
	for _, name := range in.localEnv() {
		lines = append(lines, SummaryLine{"variable of the host", name})
	}
	return lines
}

// acts returns what a file does on the host, or asks for there.
func (in *inputs) acts(path string) []SummaryLine {
	switch path {
	case in.loc.Config:
		return in.configActs()
	case in.tools.path:
		lines, _ := in.tools.summary()
		return lines
	default:
		return nil
	}
}

// list returns the files that exist, with what they do.
func (in *inputs) list() []Input {
	list := []Input{}
	for _, path := range in.existing() {
		i := Input{Path: path, SHA256: in.sha256(path), Acts: []string{}}
		for _, line := range in.acts(path) {
			i.Acts = append(i.Acts, line.String())
		}
		list = append(list, i)
	}
	return list
}

// existing returns the files that exist, and symlinks, by path.
func (in *inputs) existing() []string {
	paths := []string{in.loc.Config}
	for path, state := range in.files {
		if strings.HasPrefix(state, "file ") || strings.HasPrefix(state, "link ") {
			paths = append(paths, path)
		}
	}
	if in.tools.exist() {
		paths = append(paths, in.tools.path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// sha256 returns the hash of the content of an existing file.
func (in *inputs) sha256(path string) string {
	switch path {
	case in.loc.Config:
		return hexSum(in.file.Raw)
	case in.tools.path:
		return hexSum(in.tools.text)
	}
	if sum, ok := strings.CutPrefix(in.files[path], "file "); ok {
		return sum
	}
	_, sum, _ := strings.Cut(in.files[path], "\n")
	return sum
}

func hexSum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// maxFacts bounds the facts of one workspace in trust.json, in bytes.
const maxFacts = 256 << 10

// filePrefix begins the facts about files: a path, a space, and what differs with the content.
const filePrefix = "file "

// facts returns what is trusted as lines that can be compared, nil if they are too long.
func (in *inputs) facts() []string {
	facts := []string{}
	add := func(format string, args ...any) { facts = append(facts, fmt.Sprintf(format, args...)) }
	for _, path := range in.existing() {
		sum := sha256.Sum256([]byte(in.files[path] + in.sha256(path)))
		add("%s%s %x", filePrefix, path, sum[:8])
	}
	tools, _ := in.tools.summary()
	for _, line := range slices.Concat(in.configActs(), tools) {
		add("%s", line)
	}
	for _, path := range slices.Sorted(maps.Keys(in.sources)) {
		add("%s leads to %s", path, strings.Join(in.sources[path], " "))
	}
	if in.project.Text != "" {
		sum := sha256.Sum256([]byte(in.project.Name + in.project.Text))
		add("%scompose project %x", filePrefix, sum[:8])
	}
	if len(strings.Join(facts, "")) > maxFacts {
		return nil
	}
	return facts
}

// difference returns how the facts differ from those that were trusted: what was added first, then
// what was removed, then files with another content.
func difference(trusted, now []string) []string {
	if trusted == nil || now == nil {
		return []string{"not known: what was trusted is not stored"}
	}
	var changed []string
	old, current := keyed(trusted), keyed(now)
	for _, key := range slices.Sorted(maps.Keys(current)) {
		if _, ok := old[key]; !ok {
			changed = append(changed, "added: "+key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if _, ok := current[key]; !ok {
			changed = append(changed, "removed: "+key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(current)) {
		if state, ok := old[key]; ok && state != current[key] {
			changed = append(changed, "changed: "+key)
		}
	}
	if changed == nil {
		return []string{"changed: what a name in the configuration leads to"}
	}
	return changed
}

// keyed returns facts as they are shown, with what differs with the content of a file.
func keyed(facts []string) map[string]string {
	states := map[string]string{}
	for _, fact := range facts {
		file, ok := strings.CutPrefix(fact, filePrefix)
		if i := strings.LastIndexByte(file, ' '); ok && i > 0 {
			states[file[:i]] = file[i+1:]
		} else {
			states[fact] = ""
		}
	}
	return states
}
