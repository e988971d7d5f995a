package server

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
	maxName      = 128      // bytes of a tool's name
	maxReference = 255      // bytes of a container's name or id
	maxPath      = 4096     // bytes of a path: PATH_MAX
	maxSync      = 1000     // paths that one call brings home
	maxSyncBytes = 64 << 10 // bytes of these together: each record of the call has them
	maxLabels    = 64
	maxID        = 256  // bytes of a context's id or a label's name
	maxLabel     = 1024 // bytes of a label's value
	maxMistakes  = 100  // that one answer lists
)

// nameForm is the form of a tool's name and of a container reference (EX-02).
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// windows tells paths of another system from relative ones.
var windows = regexp.MustCompile(`^([A-Za-z]:[\\/]|\\\\)`)

// mistakes collects what is wrong with a request, so that its sender hears everything at once. Of very many the first are told: an answer is
// not to be longer than what it answers.
type mistakes struct {
	details []dray.Detail
	more    int // beyond maxMistakes
}

func (m *mistakes) add(pointer, format string, args ...any) {
	if len(m.details) == maxMistakes {
		m.more++
		return
	}
	m.details = append(m.details, dray.Detail{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// err gives invalid_request with all mistakes, or nil.
func (m *mistakes) err() error {
	if len(m.details) == 0 {
		return nil
	}
	return m.report()
}

// report gives the error of mistakes that there are.
func (m *mistakes) report() *dray.Error {
	first, more := m.details[0], ""
	switch n := len(m.details) - 1; {
	case m.more > 0:
		more = fmt.Sprintf(" (and %d more, see the first %d in errors)", n+m.more, maxMistakes)
	case n > 0:
		more = fmt.Sprintf(" (and %d more, see errors)", n)
	}
	e := dray.Errorf(dray.CodeInvalidRequest, "%s: %s%s", strings.TrimPrefix(first.Pointer, "/"), first.Message, more)
	e.Details = m.details
	return e.WithHint("/openapi.json describes the request")
}

// queryErr gives the same for a query or a path, where no JSON pointer leads.
func (m *mistakes) queryErr() error {
	if len(m.details) == 0 {
		return nil
	}
	e := m.report()
	e.Details = nil
	return e
}

// blank says whether a value counts as absent (EX-01). One that does not is never trimmed.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

func toolName(m *mistakes, pointer, s string) string {
	switch {
	case s == "":
		m.add(pointer, "a call names its tool")
	case len(s) > maxName || !nameForm.MatchString(s):
		m.add(pointer, "%q cannot be a tool's name: a letter or digit, then letters, digits, '.', '_' and '-', at most %d bytes", clip(s), maxName)
	}
	return s
}

func containerName(m *mistakes, pointer, s string) string {
	if blank(s) {
		return ""
	}
	if len(s) > maxReference || !nameForm.MatchString(s) {
		m.add(pointer, "%q cannot be a container's name or id: a letter or digit, then letters, digits, '_', '.' and '-'", clip(s))
	}
	return s
}

// place is a value of a plan: host, a container's name, or a workspace's folder.
func place(m *mistakes, pointer, s string) string {
	if strings.HasPrefix(s, "/") {
		return absolutePath(m, pointer, s)
	}
	return containerName(m, pointer, s)
}

func oneOf[T ~string](m *mistakes, pointer string, s T, allowed ...T) T {
	if s != "" && !slices.Contains(allowed, s) {
		m.add(pointer, "%q is none of %v", clip(string(s)), allowed)
	}
	return s
}

// absolutePath gives a cleaned host folder.
func absolutePath(m *mistakes, pointer, s string) string {
	if blank(s) {
		return ""
	}
	switch fault := pathFault(s); {
	case fault != "":
		m.add(pointer, "%s", fault)
	case s[0] != '/':
		m.add(pointer, "%q is not absolute", clip(s))
	}
	return path.Clean(s)
}

// workingFolder gives a cleaned folder, relative or absolute; the workspace itself is no folder of its own.
func workingFolder(m *mistakes, pointer, s string) string {
	if blank(s) {
		return ""
	}
	if fault := pathFault(s); fault != "" {
		m.add(pointer, "%s", fault)
	}
	if s = path.Clean(s); s == "." {
		return ""
	}
	return s
}

// pathFault says why a path is refused. Cleaning ".." away would name another folder than the caller meant, where a link is on the way.
func pathFault(s string) string {
	switch {
	case len(s) > maxPath:
		return fmt.Sprintf("the path has %d bytes, and %d are the most", len(s), maxPath)
	case strings.ContainsRune(s, 0):
		return "a path holds no NUL"
	case windows.MatchString(s):
		return fmt.Sprintf("%q is a Windows path; dray knows paths with slashes only", clip(s))
	case slices.Contains(strings.Split(s, "/"), ".."):
		return fmt.Sprintf("%q leads upwards with '..'; write the folder that is meant", clip(s))
	default:
		return ""
	}
}

// namedPaths checks paths that are to be taken as they stand: whose they are, host's or container's, is found out later.
func namedPaths(m *mistakes, pointer string, paths []string, most int) []string {
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
		} else if fault := pathFault(p); fault != "" {
			m.add(at, "%s", fault)
		}
	}
	if total > maxSyncBytes {
		m.add(pointer, "the paths have %d bytes together, and %d are the most", total, maxSyncBytes)
	}
	return paths
}

// variables checks names and values of an environment.
func variables(m *mistakes, pointer string, env map[string]string) map[string]string {
	for k, v := range env {
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00"):
			m.add(pointer+"/"+escape(k), "%q cannot be a variable's name: it is empty, or holds '=' or NUL", clip(k))
		case strings.ContainsRune(v, 0):
			m.add(pointer+"/"+escape(k), "a variable's value holds no NUL")
		}
	}
	return env
}

// escape writes a name as a part of a JSON pointer.
func escape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(s))
}

// seconds gives a duration above 0 and at most the configured maximum; less than a nanosecond is one.
func seconds(m *mistakes, pointer string, s *float64, most time.Duration) time.Duration {
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
func callContext(m *mistakes, c dray.Context) dray.Context {
	bounded(m, "/context/plan_id", c.PlanID, maxID)
	bounded(m, "/context/session_id", c.SessionID, maxID)
	bounded(m, "/context/sandbox_id", c.SandboxID, maxID)
	if len(c.Labels) > maxLabels {
		m.add("/context/labels", "there are %d labels, and %d are the most", len(c.Labels), maxLabels)
		return c
	}
	for k, v := range c.Labels {
		bounded(m, "/context/labels/"+escape(k), k, maxID)
		bounded(m, "/context/labels/"+escape(k), v, maxLabel)
	}
	return c
}

func bounded(m *mistakes, pointer, s string, most int) {
	switch {
	case len(s) > most:
		m.add(pointer, "it has %d bytes, and %d are the most", len(s), most)
	case strings.ContainsRune(s, 0):
		m.add(pointer, "it holds NUL")
	}
}
