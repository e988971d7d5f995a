package tool

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/router"
)

// maxName is the longest name of a tool, in bytes (EX-02).
const maxName = 128

var toolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// validName says whether a name has the form of a tool's.
func validName(name string) bool { return len(name) <= maxName && toolName.MatchString(name) }

// Registry is all tools there are. It does not change and is safe for concurrent use.
type Registry struct {
	tools map[string]*Tool
	names []string
}

// NewRegistry takes the built-in tools and the configured ones. It refuses a name that is taken or malformed and a schema that does
// not compile with a [CommandError].
func NewRegistry(commands []Command) (*Registry, error) {
	r := &Registry{tools: map[string]*Tool{}}
	builtins, err := builtins()
	if err != nil {
		return nil, err
	}
	for _, t := range builtins {
		r.tools[t.Name] = t
	}
	for i, c := range commands {
		if err := r.add(c); err != nil {
			return nil, &CommandError{Index: i, err: err}
		}
	}
	r.names = slices.Sorted(maps.Keys(r.tools))
	return r, nil
}

// CommandError says which of the configured tools is not one.
type CommandError struct {
	Index int
	err   error
}

// Error names the tool by its place in the configuration.
func (e *CommandError) Error() string { return fmt.Sprintf("tools[%d]: %v", e.Index, e.err) }

// Unwrap gives what is wrong with it.
func (e *CommandError) Unwrap() error { return e.err }

func (r *Registry) add(c Command) error {
	t, err := c.tool()
	if err != nil {
		return err
	}
	if other, ok := r.tools[t.Name]; ok {
		return fmt.Errorf("name %q is taken by %s: choose another", t.Name, other.origin())
	}
	r.tools[t.Name] = t
	return nil
}

// Get finds a tool by its exact name. A malformed name is invalid_request, an unknown one unknown_tool.
func (r *Registry) Get(name string) (*Tool, error) {
	if t, ok := r.tools[name]; ok {
		return t, nil
	}
	if !validName(name) {
		e := dray.Errorf(dray.CodeInvalidRequest, "tool %q is malformed", cut(name, maxName)).
			WithHint("a tool's name is at most %d letters, digits, '.', '_' and '-', and begins with a letter or digit", maxName)
		e.Details = []dray.Detail{{Pointer: "/tool", Message: "is malformed"}}
		return nil, e
	}
	return nil, dray.Errorf(dray.CodeUnknownTool, "there is no tool %q", name).WithHint("%s", r.suggest(name))
}

// Requirement gives a tool's environment, as the router asks for it.
func (r *Registry) Requirement(name string) (router.Requirement, error) {
	t, err := r.Get(name)
	if err != nil {
		return router.Requirement{}, err
	}
	return t.Environment, nil
}

// List describes all tools, by name.
func (r *Registry) List() []Description {
	all := make([]Description, 0, len(r.names))
	for _, name := range r.names {
		all = append(all, r.tools[name].Describe())
	}
	return all
}

// suggest suggests the name that was probably meant.
func (r *Registry) suggest(name string) string {
	best, least := "", len(name)/3+2
	for _, known := range r.names {
		if d := distance(strings.ToLower(name), strings.ToLower(known)); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return "dray tools lists what there is"
	}
	return fmt.Sprintf("did you mean %s? dray tools lists what there is", best)
}

// distance counts the bytes to insert, drop or replace between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
