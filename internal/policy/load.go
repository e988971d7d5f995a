package policy

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	cedar "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

// Default is the name of the embedded default policies among the files of a configuration.
const Default = "builtin:default"

// maxFile is the maximum size of a policy file in bytes, maxRules the maximum number of policies.
const (
	maxFile  = 1 << 20
	maxRules = 1000
)

//go:embed builtin
var embedded embed.FS

// FileError is a policy file that cannot be used. Line is 0 if the problem has none.
type FileError struct {
	Index         int // in Options.Files
	File          string
	Line          int
	Problem, Hint string
}

// Error implements error.
func (e *FileError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
	}
	return fmt.Sprintf("policy file %s: %s", at, e.Problem)
}

// New reads and checks the policy files. It fails with the [FileError] of each one that cannot be
// used, joined.
func New(options Options) (*Engine, error) {
	e := &Engine{mounts: options.Mounts}
	digest := sha256.New()
	var found []error
	seen := map[string]bool{}
	for i, name := range options.Files {
		text, bad := read(name)
		if bad == nil && seen[name] {
			bad = &FileError{Problem: "is listed twice", Hint: "list it once"}
		}
		seen[name] = true
		var rules []rule
		if bad == nil {
			fmt.Fprintf(digest, "%q %q\n", name, text)
			rules, bad = parse(name, text)
		}
		if bad == nil && len(e.rules)+len(rules) > maxRules {
			bad = &FileError{
				Problem: fmt.Sprintf("there are more than %d policies", maxRules),
				Hint:    "use fewer policies with wider conditions",
			}
		}
		if bad != nil {
			bad.Index, bad.File = i, name
			found = append(found, bad)
		}
		e.rules = append(e.rules, rules...)
	}
	if len(found) > 0 {
		return nil, errors.Join(found...)
	}
	if len(options.Files) > 0 && len(e.rules) == 0 {
		return nil, &FileError{
			File: options.Files[0], Problem: "has no policy, so every call would be denied",
			Hint: "write a policy, or list " + Default,
		}
	}
	e.digest = hex.EncodeToString(digest.Sum(nil))
	return e, nil
}

// DefaultText returns the default policies.
func DefaultText() string {
	text, _ := embedded.ReadFile("builtin/default.cedar")
	return string(text)
}

// SchemaText returns the Cedar schema that policies must fit.
func SchemaText() string {
	text, _ := embedded.ReadFile("builtin/schema.cedarschema")
	return string(text)
}

// read returns the text of a policy file. It refuses a file that everybody may write to.
func read(name string) (string, *FileError) {
	if name == Default {
		return DefaultText(), nil
	}
	if !filepath.IsAbs(name) {
		return "", &FileError{
			Problem: "is not an absolute path",
			Hint:    "write an absolute path: ~ and variables have no meaning",
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return "", &FileError{
			Problem: "cannot be read: " + plain(err),
			Hint:    "write a file that the daemon's user may read, or remove it from policy.files",
		}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		return "", &FileError{Problem: "is not a file", Hint: "list files, not directories"}
	case err == nil && info.Mode().Perm()&0o002 != 0:
		return "", &FileError{
			Problem: "everybody may write to it",
			Hint:    "run chmod o-w on it",
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(text) > maxFile {
		return "", &FileError{
			Problem: fmt.Sprintf("cannot be read, or is larger than %d bytes", maxFile),
			Hint:    "split it into several files",
		}
	}
	return string(text), nil
}

// plain returns the cause of an error of a file without its path.
func plain(err error) string {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// parserPrefix is what the parser writes in front of a problem.
var parserPrefix = regexp.MustCompile(`^parser error: parse error at <input>:\d+:(\d+) `)

// unexpectedToken matches the parser's message about a token that should be another one. The
// column in it is often that of the token after it.
var unexpectedToken = regexp.MustCompile(`: (?:exact )?got (.*) want (.+)$`)

// parserProblem returns what is wrong with a file, from the error of the parser.
func parserProblem(err error) string {
	m := unexpectedToken.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return parserPrefix.ReplaceAllString(err.Error(), "column $1: ")
	case m[1] == "":
		return fmt.Sprintf("the file ends where %q is expected", m[2])
	default:
		return fmt.Sprintf("%q is where %q is expected", m[1], m[2])
	}
}

var parsePosition = regexp.MustCompile(`<input>:(\d+):|line:? ?(\d+)|:(\d+):\d+`)

// parse parses the policies of a file and checks them against the schema.
func parse(name, text string) ([]rule, *FileError) {
	list, err := cedar.NewPolicyListFromBytes(name, []byte(text))
	if err != nil {
		return nil, &FileError{
			Line:    lineOf(err.Error()),
			Problem: "is not valid Cedar: " + parserProblem(err),
			Hint: `write policies as: permit (principal, action == Action::"call", resource) ` +
				"when { CONDITION };",
		}
	}
	check := validator()
	ids := map[string]bool{}
	var rules []rule
	for i, p := range list {
		notes := p.Annotations()
		id := string(notes["id"])
		if id == "" {
			id = fmt.Sprintf("policy%d", i+1)
		}
		r := rule{id: name + "#" + id, policy: p, effect: Allow}
		bad := &FileError{Line: p.Position().Line}
		if err := check.Policy("", (*ast.Policy)(p.AST())); err != nil {
			bad.Problem = "policy " + id + " does not fit the schema: " +
				strings.ReplaceAll(err.Error(), "\n", "; ")
			bad.Hint = "use the facts that `dray policy show schema` prints; a policy that uses context " +
				`needs action == Action::"call"`
			return nil, bad
		}
		if problem := checkAnnotations(p); problem != "" {
			bad.Problem = "policy " + id + " " + problem
			bad.Hint = `use @id("NAME"), @ask("WHY") of a permit and @reason("WHY") of a forbid`
			return nil, bad
		}
		if ids[id] {
			bad.Problem, bad.Hint = "two policies have the id "+id, "give each policy its own @id"
			return nil, bad
		}
		ids[id] = true
		reason, asks := notes["ask"]
		switch {
		case asks:
			r.effect = Ask
		case p.Effect() == cedar.Forbid:
			r.effect = Deny
			reason = notes["reason"]
		}
		if r.reason = string(reason); r.reason == "" && r.effect != Allow {
			r.reason = fmt.Sprintf("policy %s says %s", r.id, r.effect)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// checkAnnotations returns what is wrong with the annotations of a policy. One that is misspelt
// would make an allow of an ask.
func checkAnnotations(p *cedar.Policy) string {
	for _, name := range slices.Sorted(maps.Keys(p.Annotations())) {
		switch name {
		case "id":
		case "ask":
			if p.Effect() == cedar.Forbid {
				return "is a forbid with @ask, which is for a permit"
			}
		case "reason":
			if p.Effect() == cedar.Permit {
				return "is a permit with @reason, which is for a forbid"
			}
		default:
			return "has the annotation @" + string(name) + ", which dray does not know"
		}
	}
	return ""
}

func lineOf(message string) int {
	for _, group := range parsePosition.FindAllStringSubmatch(message, 1) {
		for _, digits := range group[1:] {
			if n, err := strconv.Atoi(digits); err == nil {
				return n
			}
		}
	}
	return 0
}

// validator checks policies against the embedded schema, which its test resolves too.
var validator = sync.OnceValue(func() *validate.Validator {
	var s schema.Schema
	if err := s.UnmarshalCedar([]byte(SchemaText())); err != nil {
		panic(err)
	}
	resolved, err := s.Resolve()
	if err != nil {
		panic(err)
	}
	return validate.New(resolved, validate.WithStrict())
})
