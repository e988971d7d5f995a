package python

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python/pep508"
	"github.com/dray-dev/dray/internal/strictjson"
)

// maxPackages is the maximum number of packages in one request.
const maxPackages = 256

// The actions of operation prepare.
const (
	ActionAdd    = "add"
	ActionRemove = "remove"
	ActionSet    = "set"
)

// Restart says what operation prepare may do to a worker whose globals would be lost.
type Restart string

// The values of Restart. IfNeeded restarts the worker if it runs another interpreter. No fails then
// with conflict and changes nothing. Yes restarts it in any case.
const (
	RestartIfNeeded Restart = "if_needed"
	RestartNo       Restart = "no"
	RestartYes      Restart = "yes"
)

// PreparePolicy is python.prepare of the configuration.
type PreparePolicy struct {
	// SourceBuilds allows packages to be built from source, which runs code of the package.
	SourceBuilds bool
	// Index is the URL of the package index. Empty is that of uv, https://pypi.org/simple.
	Index string
}

// PrepareInput is the input of operation prepare as the caller sent it. At most one of Requirements
// and Python is set.
type PrepareInput struct {
	Requirements json.RawMessage
	Python       json.RawMessage
	Restart      *string
}

// PrepareRequest is a valid input of operation prepare.
type PrepareRequest struct {
	// Action, Packages and PythonVersion change the manifest. ActionAdd without packages does not; the
	// manifest is then installed as it is.
	Action        string
	Packages      []pep508.Requirement
	PythonVersion string
	// Executable or Venv is an interpreter to use in place of the manifest.
	Executable string
	Venv       string
	Restart    Restart
}

// isExplicit reports whether the request names an interpreter.
func (r PrepareRequest) isExplicit() bool { return r.Executable != "" || r.Venv != "" }

type requirementsInput struct {
	Packages      *[]string `json:"packages"`
	PythonVersion *string   `json:"python_version"`
	Action        *string   `json:"action"`
	Restart       *string   `json:"restart"`
}

type pythonInput struct {
	Executable *string `json:"executable"`
	Venv       *string `json:"venv"`
}

// Parse checks the input under a policy. It fails with invalid_input and a pointer to the element.
func (in PrepareInput) Parse(policy PreparePolicy) (PrepareRequest, error) {
	if in.Requirements != nil && in.Python != nil {
		return PrepareRequest{}, refuse("/python", "requirements and python exclude each other").
			WithHint("send two calls: an interpreter of your own is used without a manifest")
	}
	req := PrepareRequest{Action: ActionAdd, Restart: RestartIfNeeded}
	if err := req.setRestart("/restart", in.Restart); err != nil {
		return PrepareRequest{}, err
	}
	var err error
	switch {
	case in.Python != nil:
		err = req.setPython(in.Python)
	case in.Requirements != nil:
		err = req.setRequirements(in.Requirements, in.Restart != nil, policy)
	}
	if err != nil {
		return PrepareRequest{}, err
	}
	return req, nil
}

// refuse returns an invalid_input error that points to a member of the input.
func refuse(pointer, format string, args ...any) *dray.Error {
	e := dray.Errorf(dray.CodeInvalidInput, "%s: "+format, append([]any{pointer}, args...)...)
	e.Details = []dray.Detail{{Pointer: pointer, Message: fmt.Sprintf(format, args...)}}
	return e
}

// decodeMember decodes one member of the input strictly.
func decodeMember(pointer string, data json.RawMessage, into any) error {
	err := strictjson.Decode(data, into)
	if err == nil {
		return nil
	}
	for _, d := range dray.AsError(err).Details {
		return refuse(pointer+d.Pointer, "%s", d.Message).
			WithHint("see the members of operation prepare in the description of the tool python")
	}
	return refuse(pointer, "%v", err)
}

func (r *PrepareRequest) setRestart(pointer string, value *string) error {
	if value == nil {
		return nil
	}
	r.Restart = Restart(*value)
	if !slices.Contains([]Restart{RestartIfNeeded, RestartNo, RestartYes}, r.Restart) {
		return refuse(pointer, "invalid value %q", *value).WithHint("use if_needed, no or yes")
	}
	return nil
}

func (r *PrepareRequest) setPython(data json.RawMessage) error {
	var in pythonInput
	if err := decodeMember("/python", data, &in); err != nil {
		return err
	}
	switch {
	case (in.Executable == nil) == (in.Venv == nil):
		return refuse("/python", "exactly one of executable and venv is needed").
			WithHint("name the interpreter, or the directory of a virtual environment")
	case in.Executable != nil:
		r.Executable = *in.Executable
		return checkAbsolute("/python/executable", r.Executable)
	default:
		r.Venv = *in.Venv
		return checkAbsolute("/python/venv", r.Venv)
	}
}

func checkAbsolute(pointer, name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) {
		return refuse(pointer, "%q is not a clean absolute path", name).
			WithHint("use an absolute path in the environment of the session, without .. and a final slash")
	}
	return nil
}

func (r *PrepareRequest) setRequirements(
	data json.RawMessage, restartGiven bool, policy PreparePolicy,
) error {
	var in requirementsInput
	if err := decodeMember("/requirements", data, &in); err != nil {
		return err
	}
	if in.Restart != nil && restartGiven {
		return refuse("/requirements/restart", "restart is given twice").WithHint("give it once")
	}
	if err := r.setRestart("/requirements/restart", in.Restart); err != nil {
		return err
	}
	if err := r.setAction(in); err != nil {
		return err
	}
	if err := r.setVersion(in.PythonVersion); err != nil || in.Packages == nil {
		return err
	}
	return r.setPackages(*in.Packages, policy)
}

func (r *PrepareRequest) setAction(in requirementsInput) error {
	if in.Action != nil {
		r.Action = *in.Action
	}
	switch r.Action {
	case ActionAdd:
		return nil
	case ActionSet:
		if in.Packages == nil {
			return refuse("/requirements/packages", "action set needs the packages").
				WithHint("list all packages, or send [] for none")
		}
		return nil
	case ActionRemove:
		if in.Packages == nil && in.PythonVersion == nil {
			return refuse("/requirements/packages", "action remove needs packages or python_version").
				WithHint("name the packages to remove")
		}
		return nil
	default:
		return refuse("/requirements/action", "invalid value %q", r.Action).
			WithHint("use add, remove or set")
	}
}

var pythonVersion = regexp.MustCompile(`^3\.(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2}))?$`)

// oldestMinor is the oldest Python 3 that the worker supports.
const oldestMinor = 9

func (r *PrepareRequest) setVersion(value *string) error {
	const pointer = "/requirements/python_version"
	if value == nil {
		return nil
	}
	m := pythonVersion.FindStringSubmatch(*value)
	if m == nil {
		return refuse(pointer, "%q is not a version of Python 3", *value).
			WithHint("write 3.N or 3.N.P, without an operator: 3.12")
	}
	if minor, err := strconv.Atoi(m[1]); err != nil || minor < oldestMinor {
		return refuse(pointer, "Python %s is too old", *value).
			WithHint("use Python 3.%d or later", oldestMinor)
	}
	r.PythonVersion = *value
	return nil
}

func (r *PrepareRequest) setPackages(packages []string, policy PreparePolicy) error {
	if len(packages) > maxPackages {
		return refuse("/requirements/packages", "%d packages; the maximum is %d",
			len(packages), maxPackages)
	}
	seen := map[string]int{}
	for i, text := range packages {
		pointer := dray.JSONPointer("/requirements/packages", strconv.Itoa(i))
		p, err := r.parsePackage(pointer, text, policy)
		if err != nil {
			return err
		}
		if first, ok := seen[p.Name]; ok {
			return refuse(pointer, "%q is in conflict with %q: both are %s",
				text, packages[first], p.Name).WithHint("join the conditions: %s>=1,<2", p.Name)
		}
		seen[p.Name] = i
		r.Packages = append(r.Packages, p)
	}
	return nil
}

func (r *PrepareRequest) parsePackage(
	pointer, text string, policy PreparePolicy,
) (pep508.Requirement, error) {
	p, err := pep508.Parse(text)
	switch {
	case err != nil:
		return p, refuse(pointer, "%q: %v", text, err).WithHint("%s", packageHint(text))
	case r.Action == ActionRemove && !p.IsNameOnly():
		return p, refuse(pointer, "%q: action remove takes names of packages", text).
			WithHint("send %q", p.Name)
	case p.URL != "":
		return p, checkURL(pointer, p.URL, policy)
	}
	return p, nil
}

// packageHint returns the hint for a text that is not a requirement, by what was probably meant.
func packageHint(text string) string {
	text = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "-"):
		return "options are not packages; the index is python.prepare.index of the configuration"
	case strings.Contains(text, "://"):
		return "name the package of a URL: name @ https://..."
	case strings.ContainsAny(text, `/\`) || strings.HasPrefix(text, "."):
		return "paths are not packages; copy the module into the working directory, or name a package"
	default:
		return "write a name with optional extras and versions: pandas[excel]>=2,<3"
	}
}

// checkURL refuses URLs of other files than wheels, unless source builds are allowed, and URLs that
// are not on the server of the configured index.
func checkURL(pointer, text string, policy PreparePolicy) error {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return refuse(pointer, "the URL has a user or a password").
			WithHint("configure python.prepare.index for packages that need a login")
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return refuse(pointer, "%q is not an https URL", text).
			WithHint("packages come from the index, or from a wheel at an https URL")
	case strings.ContainsAny(text, "$`\\\"'<>{}"):
		return refuse(pointer, "%q has a character that needs an escape", text).
			WithHint("write it as %%XX")
	case !policy.SourceBuilds && !strings.HasSuffix(u.Path, ".whl"):
		return refuse(pointer, "%q is not a wheel", text).
			WithHint("link to a .whl file, or set python.prepare.source_builds")
	}
	return checkOrigin(pointer, u, policy)
}

// checkOrigin requires the server of the configured index. Without one, any https URL is allowed.
func checkOrigin(pointer string, u *url.URL, policy PreparePolicy) error {
	index, err := url.Parse(policy.Index)
	switch {
	case policy.Index == "" && u.Scheme == "https":
		return nil
	case policy.Index == "":
		return refuse(pointer, "%q is not an https URL", u).
			WithHint("use https; http is for a configured python.prepare.index alone")
	case err != nil || u.Scheme != index.Scheme || u.Host != index.Host:
		return refuse(pointer, "%q is not on the server of python.prepare.index", u).
			WithHint("name the package without a URL, or ask the operator to change the index")
	}
	return nil
}
