package python

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python/pep508"
)

// prepareInput builds the input from a JSON object with requirements, python and restart.
func prepareInput(t *testing.T, text string) PrepareInput {
	t.Helper()
	var in struct {
		Requirements json.RawMessage `json:"requirements"`
		Python       json.RawMessage `json:"python"`
		Restart      *string         `json:"restart"`
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		t.Fatal(err)
	}
	return PrepareInput(in)
}

var (
	openPolicy  = PreparePolicy{}
	indexPolicy = PreparePolicy{Index: "https://index.test:8443/simple"}
)

// A request that is not exactly right is refused, and the error names the element (PY-14, PY-26).
func TestPrepareRefuses(t *testing.T) {
	packages := func(list string) string { return `{"requirements": {"packages": [` + list + `]}}` }
	for _, c := range []struct {
		input, pointer, message string
	}{
		{packages(`"-r x"`), "/requirements/packages/0", `"-r x"`},
		{packages(`"numpy", "--index-url=https://evil"`), "/requirements/packages/1", "--index-url"},
		{packages(`"--pre"`), "/requirements/packages/0", "--pre"},
		{packages(`"-e ."`), "/requirements/packages/0", "-e ."},
		{packages(`"numpy --pre"`), "/requirements/packages/0", "numpy --pre"},
		{packages(`"../x"`), "/requirements/packages/0", "../x"},
		{packages(`"./x.whl"`), "/requirements/packages/0", "./x.whl"},
		{packages(`"/x.whl"`), "/requirements/packages/0", "/x.whl"},
		{packages(`"x @ file:///x.whl"`), "/requirements/packages/0", "https"},
		{packages(`"x @ ../x.whl"`), "/requirements/packages/0", "https"},
		{packages(`"x @ git+https://a/b"`), "/requirements/packages/0", "https"},
		{packages(`"x @ http://a/x.whl"`), "/requirements/packages/0", "https"},
		{packages(`"x @ https://a/x.tar.gz"`), "/requirements/packages/0", "not a wheel"},
		{packages(`"x @ https://u:secret@a/x.whl"`), "/requirements/packages/0", "a password"},
		{packages(`"x @ https://a/${HOME}.whl"`), "/requirements/packages/0", "escape"},
		{packages(`""`), "/requirements/packages/0", "empty"},
		{packages(`"a", "  "`), "/requirements/packages/1", "empty"},
		{packages(`1`), "/requirements/packages/0", "a number"},
		{packages(`null`), "/requirements/packages/0", "null"},
		{packages(`"x>=1", "X<1"`), "/requirements/packages/1", "conflict"},
		{packages(`"a", "a"`), "/requirements/packages/1", "conflict"},
		{`{"requirements": {"packages": "numpy"}}`, "/requirements/packages", "string"},
		{`{"requirements": []}`, "/requirements", "array"},
		{`{"requirements": {"package": ["a"]}}`, "/requirements/package", "unknown"},
		{`{"requirements": {"action": "upgrade"}}`, "/requirements/action", "upgrade"},
		{`{"requirements": {"action": ""}}`, "/requirements/action", `""`},
		{`{"requirements": {"action": "set"}}`, "/requirements/packages", "set"},
		{`{"requirements": {"action": "remove"}}`, "/requirements/packages", "remove"},
		{
			`{"requirements": {"action": "remove", "packages": ["a>=1"]}}`,
			"/requirements/packages/0", "names",
		},
		{`{"requirements": {"restart": "maybe"}}`, "/requirements/restart", "maybe"},
		{`{"requirements": {"restart": "no"}, "restart": "no"}`, "/requirements/restart", "twice"},
		{`{"restart": ""}`, "/restart", `""`},
		{`{"requirements": {"python_version": ""}}`, "/requirements/python_version", `""`},
		{`{"requirements": {"python_version": "2.7"}}`, "/requirements/python_version", "2.7"},
		{`{"requirements": {"python_version": "3.8.20"}}`, "/requirements/python_version", "too old"},
		{`{"requirements": {"python_version": ">=3.9"}}`, "/requirements/python_version", ">=3.9"},
		{`{"requirements": {"python_version": "3"}}`, "/requirements/python_version", "3.N"},
		{`{"requirements": {}, "python": {"venv": "/v"}}`, "/python", "exclude"},
		{`{"python": {}}`, "/python", "exactly one"},
		{`{"python": {"venv": "/v", "executable": "/p"}}`, "/python", "exactly one"},
		{`{"python": {"executable": "python3"}}`, "/python/executable", "absolute"},
		{`{"python": {"executable": ""}}`, "/python/executable", "absolute"},
		{`{"python": {"executable": "/usr/../bin/python3"}}`, "/python/executable", "clean"},
		{`{"python": {"venv": "./venv"}}`, "/python/venv", "absolute"},
		{`{"python": {"venv": "/v\u0000"}}`, "/python/venv", "clean"},
		{`{"python": {"prefix": "/v"}}`, "/python/prefix", "unknown"},
	} {
		_, err := prepareInput(t, c.input).Parse(openPolicy)
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeInvalidInput || e.Hint == "" {
			t.Errorf("%s: %+v", c.input, e)
			continue
		}
		if len(e.Details) != 1 || e.Details[0].Pointer != c.pointer ||
			!strings.Contains(e.Message+e.Hint, c.message) || strings.Contains(e.Message, "secret") {
			t.Errorf("%s: %s: %s, %+v", c.input, e.Message, e.Hint, e.Details)
		}
	}
}

// With a configured index, URLs lead to its server alone; sdists need source_builds (PY-26).
func TestPrepareURLsUnderPolicy(t *testing.T) {
	builds := PreparePolicy{SourceBuilds: true}
	for _, c := range []struct {
		url    string
		policy PreparePolicy
		ok     bool
	}{
		{"https://a/x-1-py3-none-any.whl", openPolicy, true},
		{"https://a/x-1.tar.gz", builds, true},
		{"https://index.test:8443/f/x-1-py3-none-any.whl#sha256=00", indexPolicy, true},
		{"https://index.test/f/x-1-py3-none-any.whl", indexPolicy, false},
		{"http://index.test:8443/f/x-1-py3-none-any.whl", indexPolicy, false},
		{"https://index.test:8443@a/x-1-py3-none-any.whl", indexPolicy, false},
		{"https://a/x-1-py3-none-any.whl", PreparePolicy{Index: "file:///srv/wheels"}, false},
	} {
		in, err := json.Marshal(map[string]any{"packages": []string{"x @ " + c.url}})
		if err != nil {
			t.Fatal(err)
		}
		req, err := PrepareInput{Requirements: in}.Parse(c.policy)
		if (err == nil) != c.ok || c.ok && req.Packages[0].URL != c.url {
			t.Errorf("%s with %+v: %v, %v", c.url, c.policy, req.Packages, err)
		}
	}
}

// Valid requests are understood; restart may stand in both places (PY-14).
func TestPrepareParses(t *testing.T) {
	for input, want := range map[string]string{
		`{}`:                   `add [] "" "" "" if_needed`,
		`{"requirements": {}}`: `add [] "" "" "" if_needed`,
		`{"restart": "yes"}`:   `add [] "" "" "" yes`,
		`{"python": {"venv": "/v"}, "restart": "no"}`: `add [] "" "" "/v" no`,
		`{"python": {"executable": "/usr/bin/python3.12"}}`: `add [] "" "/usr/bin/python3.12" "" ` +
			`if_needed`,
		`{"requirements": {"packages": ["NumPy >= 2", "pandas[excel]"], "python_version": "3.12",
			"action": "set", "restart": "no"}}`: `set [numpy>=2 pandas[excel]] "3.12" "" "" no`,
		`{"requirements": {"packages": [], "action": "set"}}`:             `set [] "" "" "" if_needed`,
		`{"requirements": {"packages": ["a"], "action": "remove"}}`:       `remove [a] "" "" "" if_needed`,
		`{"requirements": {"action": "remove", "python_version": "3.9"}}`: `remove [] "3.9" "" "" if_needed`,
	} {
		req, err := prepareInput(t, input).Parse(openPolicy)
		if err != nil {
			t.Errorf("%s: %v", input, err)
			continue
		}
		names, restart := Manifest{Packages: req.Packages}.Names(), string(req.Restart)
		got := req.Action + " [" + strings.Join(names, " ") + `] "` + req.PythonVersion + `" "` +
			req.Executable + `" "` + req.Venv + `" ` + restart
		if got != want {
			t.Errorf("%s: %s", input, got)
		}
	}
}

// A manifest starts as numpy; requests add, remove and replace (PY-14).
func TestManifest(t *testing.T) {
	m := DefaultManifest()
	for _, step := range []struct{ input, packages, version string }{
		{`{}`, "numpy", ""},
		{`{"requirements": {"packages": ["Pandas[excel]>=2"]}}`, "numpy pandas[excel]>=2", ""},
		{`{"requirements": {"packages": ["numpy>=2"]}}`, "numpy>=2 pandas[excel]>=2", ""},
		{`{"requirements": {"packages": ["pandas==2.2"]}}`, "numpy>=2 pandas==2.2", ""},
		{`{"requirements": {"python_version": "3.12"}}`, "numpy>=2 pandas==2.2", "3.12"},
		{`{"requirements": {"python_version": "3.11"}}`, "numpy>=2 pandas==2.2", "3.11"},
		{
			`{"requirements": {"action": "remove", "packages": ["PANDAS", "other"]}}`,
			"numpy>=2", "3.11",
		},
		{`{"requirements": {"action": "remove", "python_version": "3.12"}}`, "numpy>=2", "3.11"},
		{`{"requirements": {"action": "remove", "python_version": "3.11"}}`, "numpy>=2", ""},
		{`{"requirements": {"action": "set", "packages": ["b", "a"]}}`, "a b", ""},
		{`{"requirements": {"action": "set", "packages": []}}`, "", ""},
	} {
		req, err := prepareInput(t, step.input).Parse(openPolicy)
		if err != nil {
			t.Fatal(err)
		}
		before := m.Names()
		next := m.apply(req)
		if got := strings.Join(next.Names(), " "); got != step.packages ||
			next.PythonVersion != step.version {
			t.Errorf("%s: %q, Python %q", step.input, got, next.PythonVersion)
		}
		if strings.Join(before, " ") != strings.Join(m.Names(), " ") {
			t.Errorf("%s changed the manifest before it", step.input)
		}
		m = next
	}
}

// Installed packages satisfy a manifest by their versions, not their names (PY-15).
func TestManifestSatisfied(t *testing.T) {
	installed := map[string]string{"numpy": "1.26.4", "pandas": "2.2.3", "other": "1"}
	for text, want := range map[string]bool{
		"": true, "numpy": true, "numpy pandas>=2": true, "numpy>=2": false, "scipy": false,
		"pandas[excel]": false,
	} {
		var m Manifest
		for name := range strings.FieldsSeq(text) {
			r, err := pep508.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			m.Packages = append(m.Packages, r)
		}
		if m.satisfiedBy(installed) != want {
			t.Errorf("%q: not %t", text, want)
		}
	}
}

// The manifest is stored as text, and environments are kept apart by manifest and policy (PY-15).
func TestManifestKeys(t *testing.T) {
	var m Manifest
	text := `{"packages":["numpy\u003e=2","pandas[excel]"],"python_version":"3.12"}`
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	if out, err := json.Marshal(m); err != nil || string(out) != text {
		t.Errorf("%s, %v", out, err)
	}
	keys := map[string]bool{
		m.key(openPolicy): true, m.key(indexPolicy): true, DefaultManifest().key(openPolicy): true,
		m.key(PreparePolicy{SourceBuilds: true}): true, Manifest{}.key(openPolicy): true,
	}
	if len(keys) != 5 || !keys[m.key(openPolicy)] {
		t.Error(keys)
	}
}
