package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/python"
)

// The configuration and the runtime pyodide agree on the least memory of a process (PY-23).
func TestMinPyodideMemory(t *testing.T) {
	if config.MinPyodideMemory != python.MinPyodideMemory {
		t.Errorf("the configuration has %d, the runtime %d", config.MinPyodideMemory,
			python.MinPyodideMemory)
	}
}

// The arguments of the program begin with the first flag that dray does not have (PY-13).
func TestSeparateProgramArgs(t *testing.T) {
	root := newRoot(&app{})
	for given, want := range map[string]string{
		"python -c x":                           "python -c x",
		"python -c x a b":                       "python -c x a b",
		"python -c x a --session s":             "python -c x a --session s",
		"python -c x -v --session s":            "python -c x -- -v --session s",
		"python -c x -- -v":                     "python -c x -- -v",
		"python -cx -v":                         "python -cx -- -v",
		"python --session s x.py --year 1":      "python --session s x.py -- --year 1",
		"python --session=s x.py -y":            "python --session=s x.py -- -y",
		"python x.py --json":                    "python x.py --json",
		"python --json x.py -9":                 "python --json x.py -- -9",
		"python -m json.tool --indent 1":        "python -m json.tool -- --indent 1",
		"python - -v":                           "python - -- -v",
		"python -z x.py":                        "python -z x.py", // cobra refuses it
		"python -w /srv/app -e K=V x.py -e K=V": "python -w /srv/app -e K=V x.py -e K=V",
		"--state /s python x.py -v":             "--state /s python x.py -- -v",
		"python --state python x.py -v":         "python --state python x.py -- -v",
		"python status -v":                      "python status -v",
		"python --session s status --bad":       "python --session s status --bad",
		"python -c x status --json":             "python -c x -- status --json",
		"python x.py reset":                     "python x.py -- reset",
		"python x.py --help":                    "python x.py -- --help",
		"python -m json.tool -h":                "python -m json.tool -- -h",
		"python -h":                             "python -h",
		"exec ls -v":                            "exec ls -v",
		"unknown -v":                            "unknown -v",
		"":                                      "",
	} {
		args := strings.Fields(given)
		got := separateProgramArgs(root, slices.Clone(args))
		if strings.Join(got, " ") != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}
