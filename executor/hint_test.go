package executor_test

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor"
	"github.com/dray-dev/dray/executor/capture"
)

// A program that was not found because its name is a command line, or a command of shells, has a
// hint about shells; a misspelled one has not (EX-04).
func TestHintAtShell(t *testing.T) {
	b := newFixture(t)
	r := newRunner(t, capture.Options{})
	for name, want := range map[string]string{
		"ls -la": "no shell reads this", "ls|wc": "no shell reads this", "cd": "shells and their sessions have cd",
		"no-such-program": "check the spelling",
	} {
		spec := dray.ProcessSpec{Argv: []string{name, "/"}, Dir: b.dir}
		out, err := r.Run(t.Context(), b.env, spec, executor.Options{}, dray.Discard)
		out.Release()
		if dray.CodeOf(err) != dray.CodeExecutableNotFound {
			t.Errorf("%s: %v", name, err)
		}
		if hint := dray.AsError(err).Hint; !strings.Contains(hint, want) {
			t.Errorf("%s: the hint is %q, want %q", name, hint, want)
		}
	}
}
