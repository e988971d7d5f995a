package trust

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/dray-dev/dray/internal/devcontainer/internal/devtest"
)

// FuzzInputs collects the inputs of any devcontainer.json and compose file.
func FuzzInputs(f *testing.F) {
	for _, c := range trustCases {
		f.Add([]byte(c.config), []byte(c.files["compose/base.yml"]))
	}
	dir := devtest.TempDir(f)
	devtest.Write(f, dir, ".devcontainer/devcontainer.json", "{}")
	file := devtest.Write(f, dir, ".devcontainer/c.yml", "")
	loc := devtest.Locate(f, dir)
	f.Fuzz(func(t *testing.T, config, compose []byte) {
		devtest.Must(t, os.WriteFile(loc.Config, config, 0o600), os.WriteFile(file, compose, 0o600))
		in, err := collect(t.Context(), loc)
		if err != nil {
			return
		}
		devtest.Must(t, in.summary().Write(io.Discard))
	})
}

func TestTrust_ComposeAliasBomb(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		level := string(rune('0' + i))
		before := string(rune('0' + i - 1))
		bomb.WriteString("a" + level + ": &a" + level + " [" + strings.Repeat("*a"+before+", ", 9) +
			"*a" + before + "]\n")
	}
	loc := devtest.Workspace(t, `{"dockerComposeFile": "c.yml"}`)
	devtest.Write(t, loc.Workspace, ".devcontainer/c.yml", bomb.String())
	wantUntrusted(t, trustStore(t), loc, "more than 200000 values")
}
