package dray_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/tool"
)

// Every tool that a daemon has by itself is in docs/reference/tools.md.
func TestToolsAreDescribed(t *testing.T) {
	tools, err := tool.NewRegistry(tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("docs/reference/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tools.List() {
		if !strings.Contains(string(text), "| `"+d.Name+"` |") {
			t.Errorf("docs/reference/tools.md does not list %s", d.Name)
		}
	}
}
