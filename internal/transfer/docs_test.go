package transfer

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dray-dev/dray/executor/files/stage"
)

// The reference page lists exactly the built-in names (SY-08).
func TestNamesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Names that are never written")
	section, _, _ = strings.Cut(section, "## ")
	documented := map[string]bool{}
	for line := range strings.SplitSeq(section, "\n- ") {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
			documented[name[1]] = true
		}
	}
	delete(documented, "sandbox.deny")
	delete(documented, stage.Prefix)
	for _, entry := range builtinDenied {
		name := strings.TrimSuffix(entry, fileOnly)
		if !documented[name] {
			t.Errorf("%s is not in the reference", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("%s is in the reference, and not refused", name)
	}
}
