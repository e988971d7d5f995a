package transfer

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
)

// builtinDenied has the names that are never written to the host, because programs there execute
// such files, or commands in them, when a user enters the directory, opens it in an editor, or uses
// git in it (SY-08). docs/reference/configuration.md lists them as well.
var builtinDenied = []string{
	// git runs hooks, and programs that its configuration names. A file .git refers to another
	// directory with both.
	".git/hooks", ".git/config", ".git/config.worktree", ".git/modules", ".git/worktrees",
	".git" + fileOnly,
	".hg/hgrc", ".husky",
	// Editors, and dray's own configuration.
	".devcontainer", ".devcontainer.json", ".vscode", ".idea", ".zed", ".exrc", ".vimrc",
	".nvimrc", ".nvim.lua", ".dir-locals.el", ".mcp.json",
	// Debuggers, package managers and build tools.
	".gdbinit", ".lldbinit", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo",
	// Shells, and programs that read files of the home directory, in case the root is one.
	".envrc", ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".gitconfig", ".ssh",
	".config/git", ".config/fish", ".config/autostart", ".config/systemd", ".config/environment.d",
}

const fileOnly = " (file)"

// denyList has the denied names by their last component.
type denyList map[string][]denyPattern

// denyPattern is a sequence of folded components that may be anywhere in a path.
type denyPattern struct {
	components []string
	fileOnly   bool // the last one may be a directory
	text       string
}

// newDenyList returns the built-in and the configured names. It fails with invalid_request for an
// entry that matches nothing, such as a glob.
func newDenyList(configured []string) (denyList, error) {
	d := denyList{}
	for _, entry := range builtinDenied {
		name, only := strings.CutSuffix(entry, fileOnly)
		d.add(denyPattern{components(name), only, name})
	}
	for _, entry := range configured {
		if entry == "." || !filepath.IsLocal(entry) || path.Clean(entry) != entry ||
			strings.ContainsAny(entry, "*?[\x00") {
			return nil, dray.Errorf(dray.CodeInvalidRequest,
				"sandbox.deny: %q is not a name or a clean sequence of names", entry).
				WithHint("use a name that is denied at any depth, such as .envrc, " +
					"or a sequence of names, such as .git/hooks")
		}
		d.add(denyPattern{components(entry), false, entry})
	}
	return d, nil
}

func (d denyList) add(p denyPattern) {
	last := p.components[len(p.components)-1]
	d[last] = append(d[last], p)
}

func (d denyList) find(name string, dir bool) (entry string, denied bool) {
	all := components(name)
	for i, c := range all {
		if strings.HasPrefix(c, stage.Prefix) {
			return stage.Prefix + "*", true
		}
		isDir := dir || i+1 < len(all)
		for _, p := range d[c] {
			if p.matchesEnd(all[:i+1]) && (!p.fileOnly || !isDir) {
				return p.text, true
			}
		}
	}
	return "", false
}

func (p denyPattern) matchesEnd(all []string) bool {
	from := len(all) - len(p.components)
	return from >= 0 && slices.Equal(all[from:], p.components)
}

func components(name string) []string { return strings.Split(fold(name), "/") }

// fold returns the same text for names that are one name on a file system that ignores case,
// including letters with special forms, such as the long s, and invisible characters.
func fold(name string) string {
	if strings.IndexFunc(name, needsFold) < 0 {
		return name
	}
	return strings.ToLower(strings.ToUpper(strings.Map(visible, name)))
}

func needsFold(r rune) bool { return r >= utf8.RuneSelf || 'A' <= r && r <= 'Z' }

func visible(r rune) rune {
	if r >= utf8.RuneSelf && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector) {
		return -1
	}
	return r
}

// check returns the error for a denied name; nil if it is allowed.
func (d denyList) check(name string, dir bool) *dray.Error {
	entry, denied := d.find(name, dir)
	if !denied {
		return nil
	}
	if entry == stage.Prefix+"*" {
		return dray.Errorf(dray.CodeDenied, "%s is denied by the rule %s: the name is reserved for dray",
			quote(name), entry).WithHint("exclude it, or choose another destination")
	}
	return dray.Errorf(dray.CodeDenied,
		"%s is denied by the rule %s: programs on the host execute such files", quote(name), entry).
		WithHint("exclude it, or use --skip-refused")
}

// quote returns a path for an error message: escaped, because it may come from a container, and
// truncated.
func quote(p string) string {
	const limit = 200
	if len(p) > limit {
		return fmt.Sprintf("%q...", p[:limit])
	}
	return fmt.Sprintf("%q", p)
}
