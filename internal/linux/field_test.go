package linux_test

import (
	"testing"

	"github.com/dray-dev/dray/internal/linux"
)

// A field is found at the start of a line alone, and is nil if there is none.
func TestField(t *testing.T) {
	text := []byte("Name:\tCapEff: 1\nCapEff:\t00ff \nNSpid:\t7\t1")
	for name, want := range map[string]string{
		"CapEff:": "00ff", "NSpid:": "7\t1", "Name:": "CapEff: 1", "CapBnd:": "",
	} {
		if got := linux.Field(text, name); string(got) != want || (got == nil) != (want == "") {
			t.Errorf("%s: %q instead of %q", name, got, want)
		}
	}
}
