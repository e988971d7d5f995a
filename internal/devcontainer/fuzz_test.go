package devcontainer

import (
	"os"
	"testing"
)

// FuzzConfig parses any text as devcontainer.json.
func FuzzConfig(f *testing.F) {
	for _, c := range resolveCases {
		f.Add([]byte(c.config))
	}
	dir := tempDir(f)
	write(f, dir, ".devcontainer/devcontainer.json", "{}")
	loc := locate(f, dir)
	f.Fuzz(func(t *testing.T, config []byte) {
		if err := os.WriteFile(loc.Config, config, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Resolve(t.Context(), Input{Location: loc, Container: ContainerInfo{Env: containerEnv}})
		if err == nil && r.User == "" {
			t.Error("no user")
		}
	})
}
