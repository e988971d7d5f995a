package devcontainer

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// maxSubstituted bounds what variables may grow a document to: a label can name a long variable
// many times.
const maxSubstituted = 8 << 20

// variable is `${name}` or `${name:argument:...}`, within a line.
var variable = regexp.MustCompile(`\$\{([^\n\r\x{2028}\x{2029}]*?)\}`)

// replaceFunc gives the value of a variable, or ok false to leave it as it stands.
type replaceFunc func(name string, args []string) (value string, ok bool, err error)

// substitution replaces variables in the strings of JSON values. Keys stay as they are.
type substitution struct {
	replace replaceFunc
	grown   int
}

// substitute gives a copy of an object with the variables in it replaced.
func substitute(e entry, replace replaceFunc) (entry, error) {
	s := substitution{replace: replace}
	return s.object(e)
}

// substituteText does the same for one string.
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
	found := variable.FindAllStringSubmatchIndex(text, -1)
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
			return "", fmt.Errorf("its variables stand for more than %d bytes", maxSubstituted)
		}
		out.WriteString(text[end:at[0]])
		out.WriteString(value)
		end = at[1]
	}
	out.WriteString(text[end:])
	return out.String(), nil
}

// lookup gives a variable of an environment: `NAME` or `NAME:default`, where what follows a second
// colon is lost. A variable that is not set is empty.
func lookup(env func(name string) (string, bool), variable string, args []string) (string, bool,
	error,
) {
	if len(args) == 0 {
		return "", false, fmt.Errorf("${%s} names no variable: write ${%s:NAME}", variable, variable)
	}
	if value, ok := env(args[0]); ok {
		return value, true, nil
	}
	if len(args) > 1 {
		return args[1], true, nil
	}
	return "", true, nil
}

// localScope holds what the first pass knows: the host's side.
type localScope struct {
	env       func(name string) (string, bool)
	workspace string // empty where no workspace is known
	folder    string // the workspace in the container
	hasFolder bool
	// names collects the variables of the host that were asked for.
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

// inFolder gives the scope with the workspace's folder in the container, which may itself use
// variables.
func (l *localScope) inFolder(folder string) error {
	l.folder, l.hasFolder = folder, true
	resolved, err := substituteText(folder, l.replace)
	if err != nil {
		return err
	}
	l.folder = resolved
	return nil
}

// devcontainerIDReplacer is the pass for ${devcontainerId}; without labels it leaves it as it
// stands.
func devcontainerIDReplacer(idLabels map[string]string) replaceFunc {
	return func(name string, _ []string) (string, bool, error) {
		if name != "devcontainerId" || len(idLabels) == 0 {
			return "", false, nil
		}
		return devcontainerID(idLabels), true, nil
	}
}

// devcontainerID is the number that the sorted labels' JSON hashes to, in base 32.
func devcontainerID(labels map[string]string) string {
	text, err := json.Marshal(labels, json.Deterministic(true))
	if err != nil {
		// Only text that is not UTF-8 fails; the reference has replaced that by the time it labels a
		// container.
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

// containerReplacer is the last pass: the environment that the image and `docker run` gave the
// container.
func containerReplacer(env []string) replaceFunc {
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
		if name != "containerEnv" {
			return "", false, nil
		}
		return lookup(get, name, args)
	}
}

// substituteAll runs several passes over an object: what one pass puts in is seen by the next.
func substituteAll(e entry, passes ...replaceFunc) (entry, error) {
	var err error
	for _, pass := range passes {
		if e, err = substitute(e, pass); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// sortedNames gives the members of a set.
func sortedNames(set map[string]bool) []string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
