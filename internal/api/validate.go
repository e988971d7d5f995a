package api

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dray-dev/dray"
)

const (
	maxName       = 128      // bytes of a tool's name
	maxReference  = 255      // bytes of a container's name or id
	maxPath       = 4096     // bytes of a path: PATH_MAX
	maxSync       = 1000     // paths that one call brings home
	maxSyncBytes  = 64 << 10 // bytes of these together: each record of the call has them
	maxLabels     = 64
	maxID         = 256  // bytes of a context's id or a label's name
	maxLabel      = 1024 // bytes of a label's value
	maxViolations = 100  // that one answer lists
)

// namePattern is the form of a tool's name and of a container reference (EX-02).
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// windows tells paths of another system from relative ones.
var windows = regexp.MustCompile(`^([A-Za-z]:[\\/]|\\\\)`)

// violations collects what is wrong with a request, so that its sender hears everything at once. Of
// very many the first are told: an answer is not to be longer than what it answers.
type violations struct {
	details []dray.Detail
	omitted int // beyond maxViolations
}

func (m *violations) add(pointer, format string, args ...any) {
	if len(m.details) == maxViolations {
		m.omitted++
		return
	}
	m.details = append(m.details, dray.Detail{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// err gives invalid_request with all mistakes, or nil.
func (m *violations) err() error {
	if len(m.details) == 0 {
		return nil
	}
	return m.report()
}

// report gives the error of mistakes that there are.
func (m *violations) report() *dray.Error {
	first, more := m.details[0], ""
	switch n := len(m.details) - 1; {
	case m.omitted > 0:
		more = fmt.Sprintf(" (and %d more, see the first %d in errors)", n+m.omitted, maxViolations)
	case n > 0:
		more = fmt.Sprintf(" (and %d more, see errors)", n)
	}
	e := dray.Errorf(dray.CodeInvalidRequest, "%s: %s%s", strings.TrimPrefix(first.Pointer, "/"),
		first.Message, more)
	e.Details = m.details
	return e.WithHint("/openapi.json describes the request")
}

// queryErr gives the same for a query or a path, where no JSON pointer leads.
func (m *violations) queryErr() error {
	if len(m.details) == 0 {
		return nil
	}
	e := m.report()
	e.Details = nil
	return e
}

// isBlank says whether a value counts as absent (EX-01). One that does not is never trimmed.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

func toolName(m *violations, pointer, s string) string {
	switch {
	case s == "":
		m.add(pointer, "a call names its tool")
	case len(s) > maxName || !namePattern.MatchString(s):
		m.add(pointer,
			"%q cannot be a tool's name: a letter or digit, then letters, digits, '.', '_' and '-', at most %d bytes", truncate(s), maxName)
	}
	return s
}

func containerName(m *violations, pointer, s string) string {
	if isBlank(s) {
		return ""
	}
	if len(s) > maxReference || !namePattern.MatchString(s) {
		m.add(pointer,
			"%q cannot be a container's name or id: a letter or digit, then letters, digits, '_', '.' and '-'", truncate(s))
	}
	return s
}

// routingTarget is a value of a plan: host, a container's name, or a workspace's folder.
func routingTarget(m *violations, pointer, s string) string {
	if strings.HasPrefix(s, "/") {
		return absolutePath(m, pointer, s)
	}
	return containerName(m, pointer, s)
}

func oneOf[T ~string](m *violations, pointer string, s T, allowed ...T) T {
	if s != "" && !slices.Contains(allowed, s) {
		m.add(pointer, "%q is none of %v", truncate(string(s)), allowed)
	}
	return s
}

// absolutePath gives a cleaned host folder.
func absolutePath(m *violations, pointer, s string) string {
	if isBlank(s) {
		return ""
	}
	switch fault := pathViolation(s); {
	case fault != "":
		m.add(pointer, "%s", fault)
	case s[0] != '/':
		m.add(pointer, "%q is not absolute", truncate(s))
	}
	return path.Clean(s)
}

// workingFolder gives a cleaned folder, relative or absolute; the workspace itself is no folder of
// its own.
func workingFolder(m *violations, pointer, s string) string {
	if isBlank(s) {
		return ""
	}
	if fault := pathViolation(s); fault != "" {
		m.add(pointer, "%s", fault)
	}
	if s = path.Clean(s); s == "." {
		return ""
	}
	return s
}

// pathViolation says why a path is refused. Cleaning ".." away would name another folder than the
// caller meant, where a link is on the way.
func pathViolation(s string) string {
	switch {
	case len(s) > maxPath:
		return fmt.Sprintf("the path has %d bytes, and %d are the most", len(s), maxPath)
	case strings.ContainsRune(s, 0):
		return "a path holds no NUL"
	case windows.MatchString(s):
		return fmt.Sprintf("%q is a Windows path; dray knows paths with slashes only", truncate(s))
	case slices.Contains(strings.Split(s, "/"), ".."):
		return fmt.Sprintf("%q leads upwards with '..'; write the folder that is meant", truncate(s))
	default:
		return ""
	}
}

// namedPaths checks paths that are to be taken as they stand: whose they are, host's or
// container's, is found out later.
func namedPaths(m *violations, pointer string, paths []string, most int) []string {
	if len(paths) > most {
		m.add(pointer, "there are %d paths, and %d are the most", len(paths), most)
		return nil
	}
	total := 0
	for i, p := range paths {
		total += len(p)
		at := fmt.Sprintf("%s/%d", pointer, i)
		if p == "" {
			m.add(at, "a path is not empty")
		} else if fault := pathViolation(p); fault != "" {
			m.add(at, "%s", fault)
		}
	}
	if total > maxSyncBytes {
		m.add(pointer, "the paths have %d bytes together, and %d are the most", total, maxSyncBytes)
	}
	return paths
}

// variables checks names and values of an environment.
func variables(m *violations, pointer string, env map[string]string) map[string]string {
	for k, v := range env {
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00"):
			m.add(pointer+"/"+escape(k), "%q cannot be a variable's name: it is empty, or holds '=' or NUL",
				truncate(k))
		case strings.ContainsRune(v, 0):
			m.add(pointer+"/"+escape(k), "a variable's value holds no NUL")
		}
	}
	return env
}

// escape writes a name as a part of a JSON pointer.
func escape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(truncate(s))
}

// seconds gives a duration above 0 and at most the configured maximum; less than a nanosecond is
// one.
func seconds(m *violations, pointer string, s *float64, most time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	ns := math.Ceil(*s * float64(time.Second))
	switch {
	case *s <= 0:
		m.add(pointer, "%v is not above 0; leave it out for the default", *s)
	case ns > float64(most):
		m.add(pointer, "%v is more than limits.max_timeout, which is %v seconds", *s, most.Seconds())
	default:
		return time.Duration(ns)
	}
	return 0
}

// callContext bounds what is recorded of a call's context. It is not interpreted.
func callContext(m *violations, c dray.CallContext) dray.CallContext {
	checkLength(m, "/context/plan_id", c.PlanID, maxID)
	checkLength(m, "/context/session_id", c.SessionID, maxID)
	checkLength(m, "/context/sandbox_id", c.SandboxID, maxID)
	if len(c.Labels) > maxLabels {
		m.add("/context/labels", "there are %d labels, and %d are the most", len(c.Labels), maxLabels)
		return c
	}
	for k, v := range c.Labels {
		checkLength(m, "/context/labels/"+escape(k), k, maxID)
		checkLength(m, "/context/labels/"+escape(k), v, maxLabel)
	}
	return c
}

func checkLength(m *violations, pointer, s string, most int) {
	switch {
	case len(s) > most:
		m.add(pointer, "it has %d bytes, and %d are the most", len(s), most)
	case strings.ContainsRune(s, 0):
		m.add(pointer, "it holds NUL")
	}
}
