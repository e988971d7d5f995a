package up

import (
	"strings"
	"testing"
)

// FuzzLog parses any text as the CLI's log, which contains output of programs in the container.
func FuzzLog(f *testing.F) {
	f.Add(`{"type":"raw","level":3,"text":"a\nb"}` + "\n" + `{"type":"start","text":"Run: docker run x"}` + "\nplain\n")
	f.Add(`{"type":"progress","name":"Running onCreateCommand...","stepDetail":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		l := logReader{phase: "up", progress: func(phase, message string) {
			if phase == "" || len(message) > maxMessage+len("...") ||
				strings.ContainsAny(message, "\n\r\x1b") {
				t.Errorf("progress %q %q", phase, message)
			}
		}}
		if err := l.read(strings.NewReader(text)); err != nil || len(l.tail) > maxLogTail {
			t.Errorf("%d lines, %v", len(l.tail), err)
		}
	})
}
