package transfer

import (
	"testing"

	"github.com/dray-dev/dray"
)

// Names that would run code on the host are denied at any depth and in any case (SY-08).
func TestDeniedNames(t *testing.T) {
	d, err := newDenyList([]string{"secrets.txt", "deploy/keys", "Server.PEM"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a/.git/hooks":               ".git/hooks",
		"a/.git/hooks/pre-commit":    ".git/hooks",
		".git/config":                ".git/config",
		".GIT/Config":                ".git/config",
		"x/.git/modules/y/config":    ".git/modules",
		".git":                       ".git",
		"a/.git/commondir":           ".git/commondir",
		".git/rebase-merge/done":     ".git/rebase-merge",
		".git/objects/ab":            "",
		".hg/sharedpath":             ".hg",
		"a/.jj/repo":                 ".jj",
		".dir-locals-2.el":           ".dir-locals-2.el",
		".helix/languages.toml":      ".helix",
		".claude/settings.json":      ".claude",
		"x/.cursor/mcp.json":         ".cursor",
		"rust-toolchain.toml":        "rust-toolchain.toml",
		".cargo/config.toml":         ".cargo",
		".RProfile":                  ".Rprofile",
		"Makefile":                   "",
		"conftest.py":                "",
		"lib/x.pth":                  "",
		"package.json":               "",
		".gitattributes":             "",
		".env":                       "",
		"AGENTS.md":                  "",
		".git/HEAD":                  "",
		"a/.devcontainer":            ".devcontainer",
		"a/.devcontainer.json":       ".devcontainer.json",
		".DevContainer/x":            ".devcontainer",
		".v\u017fcode/settings.json": ".vscode",
		".vs\u200dcode/tasks.json":   ".vscode",
		".vscode\ufe0f":              ".vscode",
		".envrc":                     ".envrc",
		"a/.envrc.sample":            "",
		"envrc":                      "",
		".dray-stage-ABC":            ".dray-stage-*",
		"a/.Dray-Stage-x/y":          ".dray-stage-*",
		"a/secrets.txt":              "secrets.txt",
		"deploy/keys/id":             "deploy/keys",
		"x/deploy/keys":              "deploy/keys",
		"deploy/key":                 "",
		"keys/deploy":                "",
		"a/server.pem/x":             "Server.PEM",
		"report.csv":                 "",
		"a\xff/.envrc":               ".envrc",
	} {
		entry, ok := d.find(name, false)
		if ok != (want != "") || entry != want {
			t.Errorf("%q: got %q, %v; want %q", name, entry, ok, want)
		}
	}
	if _, ok := d.find("a/.git", true); ok {
		t.Error("the directory .git is denied")
	}
}

// An entry that matches nothing is an error (SY-08).
func TestNewDenyList_InvalidEntry(t *testing.T) {
	for _, entry := range []string{
		"", "/", ".", "..", "../x", "a//b", "a/./b", "/a", "[", "a/",
		"*.sh",
	} {
		if _, err := newDenyList([]string{entry}); dray.CodeOf(err) != dray.CodeInvalidRequest {
			t.Errorf("%q: got %v", entry, err)
		}
	}
}
