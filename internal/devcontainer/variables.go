package devcontainer

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray/internal/lexical"
)

// maxSubstituted bounds the total size of replaced variables in bytes: a label can use a long
// variable many times.
const maxSubstituted = 8 << 20

// variable is `${name}` or `${name:argument:...}`, within a line.
var variable = lexical.LazyRegexp(`\$\{([^\n\r\x{2028}\x{2029}]*?)\}`)

// replaceFunc returns the value of a variable, or ok false to keep the text.
type replaceFunc func(name string, args []string) (value string, ok bool, err error)

// substitution replaces variables in the strings of JSON values, not in keys.
type substitution struct {
	replace replaceFunc
	grown   int
}

// substitute returns a copy of an object with its variables replaced.
func substitute(e entry, replace replaceFunc) (entry, error) {
	s := substitution{replace: replace}
	return s.object(e)
}

func substituteText(text string, replace replaceFunc) (string, error) {
	s := substitution{replace: replace}
	return s.text(text)
}

func (s *substitution) value(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return s.text(v)
	case []any:
		return s.list(v)
	case entry:
		return s.object(v)
	}
	return v, nil
}

func (s *substitution) list(values []any) (_ []any, err error) {
	out := make([]any, len(values))
	for i := range values {
		if out[i], err = s.value(values[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *substitution) object(e entry) (_ entry, err error) {
	out := make(entry, len(e))
	for key := range e {
		if out[key], err = s.value(e[key]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *substitution) text(text string) (string, error) {
	found := variable().FindAllStringSubmatchIndex(text, -1)
	if found == nil {
		return text, nil
	}
	var out strings.Builder
	end := 0
	for _, at := range found {
		parts := strings.Split(text[at[2]:at[3]], ":")
		value, ok, err := s.replace(parts[0], parts[1:])
		if err != nil {
			return "", err
		}
		if !ok {
			value = text[at[0]:at[1]]
		}
		if s.grown += len(value); s.grown > maxSubstituted {
			return "", fmt.Errorf("its variables have more than %d bytes", maxSubstituted)
		}
		out.WriteString(text[end:at[0]])
		out.WriteString(value)
		end = at[1]
	}
	out.WriteString(text[end:])
	return out.String(), nil
}

// lookup returns a variable of an environment by args NAME or NAME, default; more are ignored. A
// variable that is not set is empty.
func lookup(
	env func(name string) (string, bool), variable string, args []string,
) (string, bool, error) {
	if len(args) == 0 {
		return "", false, fmt.Errorf("${%s} does not name a variable: use ${%s:NAME}", variable, variable)
	}
	if value, ok := env(args[0]); ok {
		return value, true, nil
	}
	if len(args) > 1 {
		return args[1], true, nil
	}
	return "", true, nil
}

// localScope has the values of the host's variables.
type localScope struct {
	env       func(name string) (string, bool)
	workspace string // empty if unknown
	folder    string // the workspace in the container
	hasFolder bool
	// names collects the host's variables that were used. It may be nil.
	names map[string]bool
}

func (l *localScope) replace(name string, args []string) (string, bool, error) {
	switch name {
	case "env", "localEnv":
		return lookup(l.lookup, name, args)
	case "localWorkspaceFolder":
		return l.workspace, l.workspace != "", nil
	case "localWorkspaceFolderBasename":
		return baseName(l.workspace), l.workspace != "", nil
	case "containerWorkspaceFolder":
		return l.folder, l.hasFolder, nil
	case "containerWorkspaceFolderBasename":
		return baseName(l.folder), l.hasFolder, nil
	}
	return "", false, nil
}

func (l *localScope) lookup(name string) (string, bool) {
	if l.names != nil {
		l.names[name] = true
	}
	if l.env == nil {
		return "", false
	}
	return l.env(name)
}

// inFolder sets the workspace folder, after replacing the variables in it.
func (l *localScope) inFolder(folder string) error {
	l.folder, l.hasFolder = folder, true
	var err error
	l.folder, err = substituteText(folder, l.replace)
	return err
}

// devcontainerID returns the SHA-256 of the sorted labels' JSON in base 32.
func devcontainerID(labels map[string]string) string {
	text, err := json.Marshal(labels, json.Deterministic(true))
	if err != nil {
		// The text is not UTF-8. The reference replaces such bytes before it labels a container.
		clean := map[string]string{}
		for key, value := range labels {
			clean[strings.ToValidUTF8(key, "\ufffd")] = strings.ToValidUTF8(value, "\ufffd")
		}
		return devcontainerID(clean)
	}
	sum := sha256.Sum256(text)
	id := new(big.Int).SetBytes(sum[:]).Text(32)
	return strings.Repeat("0", 52-len(id)) + id
}

// containerReplacer replaces ${containerEnv:NAME} by env, the container's configured environment,
// and ${devcontainerId} if there are labels.
func containerReplacer(env []string, idLabels map[string]string) replaceFunc {
	values := map[string]string{}
	for _, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok {
			values[name] = value
		}
	}
	get := func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
	return func(name string, args []string) (string, bool, error) {
		switch {
		case name == "containerEnv":
			return lookup(get, name, args)
		case name == "devcontainerId" && len(idLabels) > 0:
			return devcontainerID(idLabels), true, nil
		}
		return "", false, nil
	}
}

// Expand replaces the variables of a text that depend on the workspace folder only. localEnv are
// the variables of the host that the text uses, sorted; they are empty in the result.
func (l Location) Expand(text string) (out string, localEnv []string, err error) {
	scope := localScope{workspace: l.Workspace, names: map[string]bool{}}
	out, err = substituteText(text, scope.replace)
	return out, sortedNames(scope.names), err
}

// sortedNames returns the members of a set. It is never nil.
func sortedNames(set map[string]bool) []string {
	return append([]string{}, slices.Sorted(maps.Keys(set))...)
}
