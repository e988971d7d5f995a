package host

import (
	"os"
	"regexp"
	"testing"
)

// Variables that make programs on the host run code are refused, those of ordinary tools are not
// (EX-06).
func TestForbiddenEnv(t *testing.T) {
	for _, name := range []string{
		"", "A=B", "A\x00", "LD_PRELOAD", "BASH_ENV", "BASH_FUNC_ls%%", "PYTHONPATH", "PYTHONSTARTUP",
		"NODE_OPTIONS", "PERL5OPT", "PERL5LIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GCONV_PATH", "GIT_DIR",
	} {
		if !isForbiddenEnv(name) {
			t.Errorf("%q is allowed", name)
		}
	}
	for _, name := range []string{"CI", "GOOS", "NODE_ENV", "LANG", "TZ", "MY_PATH", "DEBUG"} {
		if isForbiddenEnv(name) {
			t.Errorf("%q is refused", name)
		}
	}
}

// The reference lists exactly the refused names, each with a source.
func TestForbiddenEnvIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| .+ \| .+ \|$`).FindAllSubmatch(page, -1) {
		for _, name := range regexp.MustCompile("`([A-Za-z0-9_]+\\*?)`").FindAllSubmatch(row[1], -1) {
			documented[string(name[1])] = true
		}
	}
	want := len(forbiddenEnv)
	for _, name := range forbiddenEnv {
		if !documented[name] {
			t.Errorf("%s is not documented", name)
		}
	}
	for _, prefix := range forbiddenEnvPrefixes {
		if want++; !documented[prefix+"*"] {
			t.Errorf("%s* is not documented", prefix)
		}
	}
	if len(documented) != want {
		t.Errorf("%d names are documented, want %d", len(documented), want)
	}
}
