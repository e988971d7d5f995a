package audit

import (
	"encoding/json"
	"strings"
	"testing"
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
