// Package validate checks values of requests and collects every violation, so that the sender of a
// request gets all of them in one response.
package validate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

const (
	// MaxPath is the maximum length of a path in bytes: PATH_MAX.
	MaxPath = 4096

	maxToolName      = 128 // bytes
	maxContainerName = 255 // bytes
	maxQuoted        = 100 // bytes of a value that a message repeats
	maxViolations    = 100 // details of one error
)

// Violations are the violations of one request. The zero value has none. It must not be used
// concurrently.
type Violations struct {
	details []dray.Detail
	omitted int // violations beyond maxViolations
}

// Add adds a violation. pointer is a JSON pointer into the body, or the name of a parameter.
func (v *Violations) Add(pointer, format string, args ...any) {
	if len(v.details) == maxViolations {
		v.omitted++
		return
	}
	v.details = append(v.details, dray.Detail{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// Err returns an invalid_request error with a detail for each violation, or nil if there is none.
func (v *Violations) Err() error { return v.ErrWithCode(dray.CodeInvalidRequest) }

// ErrWithCode returns the error of Err with another code.
func (v *Violations) ErrWithCode(code dray.Code) error {
	if len(v.details) == 0 {
		return nil
	}
	return v.newError(code)
}

// ParamErr returns the error of Err without details, which are JSON pointers and have no meaning
// for the parameters of a query or a path.
func (v *Violations) ParamErr() error {
	if len(v.details) == 0 {
		return nil
	}
	e := v.newError(dray.CodeInvalidRequest)
	e.Details = nil
	return e
}

func (v *Violations) newError(code dray.Code) *dray.Error {
	first, more := v.details[0], ""
	switch n := len(v.details) - 1; {
	case v.omitted > 0:
		more = fmt.Sprintf(" (and %d more, of which errors lists %d)", n+v.omitted, n)
	case n > 0:
		more = fmt.Sprintf(" (and %d more, see errors)", n)
	}
	name := strings.TrimPrefix(first.Pointer, "/")
	e := dray.Errorf(code, "%s: %s%s", name, first.Message, more)
	e.Details = v.details
	return e.WithHint("see /openapi.json for the request")
}

// Quote returns s for an error message: valid UTF-8 of at most 100 bytes.
func Quote(s string) string {
	return lexical.Truncate(strings.ToValidUTF8(s, "\uFFFD"), maxQuoted)
}

// IsBlank reports whether a value counts as absent (EX-01). Other values are never trimmed.
func IsBlank(s string) bool { return strings.TrimSpace(s) == "" }

// ToolName checks the name of a tool (EX-02) and returns it.
func ToolName(v *Violations, pointer, s string) string {
	switch {
	case s == "":
		v.Add(pointer, "a tool name is required")
	case len(s) > maxToolName || !lexical.IsName(s):
		v.Add(pointer, "invalid tool name %q: use at most %d letters, digits, '.', '_' and '-', "+
			"beginning with a letter or digit", Quote(s), maxToolName)
	}
	return s
}

// ContainerName checks the name or id of a container (EX-02) and returns it, "" if it is blank.
func ContainerName(v *Violations, pointer, s string) string {
	if IsBlank(s) {
		return ""
	}
	if len(s) > maxContainerName || !lexical.IsName(s) {
		v.Add(pointer, "invalid container name or id %q: use letters, digits, '_', '.' and '-', "+
			"beginning with a letter or digit", Quote(s))
	}
	return s
}

// OneOf checks that s is empty or one of allowed and returns it. The violation names the value that
// s may be a misspelling of, else all of them.
func OneOf[T ~string](v *Violations, pointer string, s T, allowed ...T) T {
	if s == "" || slices.Contains(allowed, s) {
		return s
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	if near := lexical.Closest(string(s), names); near != "" {
		v.Add(pointer, "invalid value %q: did you mean %s?", Quote(string(s)), near)
	} else {
		v.Add(pointer, "invalid value %q: use one of %s", Quote(string(s)), strings.Join(names, ", "))
	}
	return s
}

// AbsolutePath checks an absolute path and returns it cleaned, "" if it is blank.
func AbsolutePath(v *Violations, pointer, s string) string {
	if IsBlank(s) {
		return ""
	}
	switch problem := PathProblem(s); {
	case problem != "":
		v.Add(pointer, "%s", problem)
	case s[0] != '/':
		v.Add(pointer, "%q is not an absolute path", Quote(s))
	}
	return path.Clean(s)
}

// PathProblem returns why a path is invalid, or "" if it is valid. A ".." segment is invalid
// because removing it names another directory if the segment before it is a symlink.
func PathProblem(s string) string {
	switch {
	case len(s) > MaxPath:
		return fmt.Sprintf("the path has %d bytes, the maximum is %d", len(s), MaxPath)
	case strings.ContainsRune(s, 0):
		return "the path contains a NUL character"
	case isWindowsPath(s):
		return fmt.Sprintf("%q is a Windows path: use slashes", Quote(s))
	case slices.Contains(strings.Split(s, "/"), ".."):
		return fmt.Sprintf("%q contains a '..' segment: write the resolved path", Quote(s))
	default:
		return ""
	}
}

// isWindowsPath reports whether a path has a drive letter or a UNC prefix, which would otherwise
// look like a relative path.
func isWindowsPath(s string) bool {
	if len(s) > 2 && s[1] == ':' && (s[2] == '\\' || s[2] == '/') {
		c := s[0] | 0x20 // a lower-case letter
		return 'a' <= c && c <= 'z'
	}
	return strings.HasPrefix(s, `\\`)
}

// Text checks a text of at most limit bytes.
func Text(v *Violations, pointer, s string, limit int) {
	switch {
	case len(s) > limit:
		v.Add(pointer, "the value has %d bytes, the maximum is %d", len(s), limit)
	case strings.ContainsRune(s, 0):
		v.Add(pointer, "the value contains a NUL character")
	}
}
