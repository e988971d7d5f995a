package pep508_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dray-dev/dray/internal/python/pep508"
)

// oracle reads {"versions", "specifiers"} and writes one line for each comparison of the Python
// package "packaging": -1, 0 or 1, and whether each specifier contains each version.
const oracle = `
import json, sys
from packaging.version import Version
from packaging.specifiers import SpecifierSet
given = json.load(sys.stdin)
versions = [Version(v) for v in given["versions"]]
order = [(a > b) - (a < b) for a in versions for b in versions]
sets = [SpecifierSet(s) for s in given["specifiers"]]
contains = [s.contains(v, prereleases=True) for s in sets for v in versions]
json.dump({"order": order, "contains": contains, "normal": [str(v) for v in versions]}, sys.stdout)
`

var versions = []string{
	"0", "1", "1.0", "1.0.0", "1.0.1", "1.1", "1.10", "1.2", "2", "1!0.5", "1!1.0", "1.0.dev1", "1.0a1",
	"1.0a1.dev2", "1.0a2", "1.0b1", "1.0rc1", "1.0rc1.post2", "1.0.post1", "1.0.post1.dev1", "1.0-2",
	"1.0.post2", "1.0+a", "1.0+a.1", "1.0+1", "1.0+10", "1.0+2", "1.0rc1+a", "v1.0C2", "1.0_alpha-3",
	"1.1.dev0", "1.1a0", "1.1.post0", "1.0.0.0.1", "2024.1.1", "1.0.dev", "1.0.post", "1.0a",
}

var specifiers = []string{
	"==1", "==1.0", "==1.0.*", "==1.*", "!=1.0", "!=1.0.*", ">=1.0", "<=1.0", ">1.0", "<1.0", "~=1.0",
	"~=1.0.0", "~=1.0a1", "==1.0+a", "!=1.0+a", ">1.0a1", "<1.0rc1", ">1.0.post1", "<1.0.post1",
	">=1.0.dev1", "<=1.0rc1", "===1.0", ">0", "<2", ">=1!0", "==1!1.*", ">=1,<1.1", ">=1.0,!=1.0.1,<2",
	"==1.0.0.*", "<1.1", ">1.0.dev1", "~=1.0.post1",
}

// Versions and specifiers mean what they mean to Python's own tools (PY-15).
func TestVersionsWithOutsideImplementation(t *testing.T) {
	python, err := filepath.Abs("../../../.tools/schemathesis/bin/python")
	if name := os.Getenv("DRAY_TEST_SCHEMATHESIS"); name != "" {
		python = filepath.Join(filepath.Dir(name), "python")
	}
	if _, statErr := os.Stat(python); err != nil || statErr != nil {
		t.Skip("needs packaging of scripts/setup schemathesis")
	}
	var want struct {
		Order    []int    `json:"order"`
		Contains []bool   `json:"contains"`
		Normal   []string `json:"normal"`
	}
	askOracle(t, python, &want)
	for i, a := range versions {
		if got := version(t, a).String(); got != want.Normal[i] {
			t.Errorf("%s is %s instead of %s", a, got, want.Normal[i])
		}
		for j, b := range versions {
			if got := version(t, a).Compare(version(t, b)); got != want.Order[i*len(versions)+j] {
				t.Errorf("compare %s with %s: %d", a, b, got)
			}
		}
	}
	for i, s := range specifiers {
		r, err := pep508.Parse("x" + s)
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range versions {
			if got := r.SatisfiedBy(v); got != want.Contains[i*len(versions)+j] {
				t.Errorf("%s contains %s: %t", s, v, got)
			}
		}
	}
}

func askOracle(t *testing.T, python string, into any) {
	t.Helper()
	given, err := json.Marshal(map[string]any{"versions": versions, "specifiers": specifiers})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-I", "-c", oracle)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(given), t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
}

func version(t *testing.T, text string) pep508.Version {
	t.Helper()
	v, err := pep508.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
