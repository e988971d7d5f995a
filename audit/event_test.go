package audit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// isJSON accepts exactly what encoding/json reads back, including duplicate names and lone
// surrogates.
func TestIsJSONEqualsValid(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, text := range []string{
		"", " ", "{}", " {} ", "{}{}", "\ufeff{}", "null", "nul", "NaN", "01", "-0", "1.", "1e400", "[1,]", `{"a":1,}`, `{"a":1,"a":2}`,
		`"\ud83d\ude00"`, `"\ud800"`, `{"\udc00":1,"\udc00":2}`, "\"\xff\"", "{\"\xff\":1,\"\xfe\":2}", "\"\x01\"", "\"a\nb\"", "\"\u007f\"", `"\x"`,
		deep(10_000), deep(10_001),
	} {
		if got, want := isJSON(json.RawMessage(text)), json.Valid([]byte(text)); got != want {
			t.Errorf("%.40q: %v, want %v", text, got, want)
		}
	}
}

// The line of an end names a code once, and none for a tool that failed by itself (AU-10).
func TestSummaryOfEnd(t *testing.T) {
	three := 3
	for want, b := range map[string]endBody{
		"failed, exited 3": {
			Reason: dray.ReasonExited, ExitCode: &three, Error: &dray.Error{Message: "oops"},
		},
		"failed, interrupted": {
			Reason: dray.ReasonInterrupted, Error: dray.Errorf(dray.CodeInternal, "the daemon ended"),
		},
		"failed, denied": {Reason: dray.ReasonDenied, Error: dray.Errorf(dray.CodeDenied, "no")},
		"failed, start_failed, bad_cwd": {
			Reason: dray.ReasonStartFailed, Error: dray.Errorf(dray.CodeBadCwd, "no"),
		},
	} {
		b.Status = dray.StatusFailed
		if got := b.Summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
