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

// builtinDenied are the names that are never written to the host, because a program there runs code
// from them, or takes from them what to run, without being asked to: when somebody enters the
// folder, opens it in an editor, or uses git in it (SY-08). The reference has them too.
var builtinDenied = []string{
	// git runs hooks, and what its configuration names: pagers, editors, filters, fsmonitor. A file
	// .git leads to another folder with both.
	".git/hooks", ".git/config", ".git/config.worktree", ".git/modules", ".git/worktrees", ".git" +
		fileOnly,
	".hg/hgrc", ".husky",
	// Editors, and dray's own source of what to run.
	".devcontainer", ".devcontainer.json", ".vscode", ".idea", ".zed", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".mcp.json",
	// Debuggers, package managers and build tools.
	".gdbinit", ".lldbinit", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo",
	// Shells, and what reads a home folder, should the root be one.
	".envrc", ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
	".zlogout", ".kshrc", ".gitconfig", ".ssh", ".config/git", ".config/fish", ".config/autostart", ".config/systemd", ".config/environment.d",
}

const fileOnly = " (file)"

// denyList are names that are not written, by their last element.
type denyList map[string][]denyPattern

// denyPattern is a sequence of elements, folded, that stands anywhere in a path; the last may be
// refused only as a file.
type denyPattern struct {
	elements []string
	fileOnly bool
	text     string
}

// newDenied takes the built-in names and the configured ones. One that could refuse nothing, as
// what looks like a pattern, is invalid_request.
func newDenied(configured []string) (denyList, error) {
	d := denyList{}
	for _, entry := range builtinDenied {
		name, only := strings.CutSuffix(entry, fileOnly)
		d.add(denyPattern{elementsOf(name), only, name})
	}
	for _, entry := range configured {
		if entry == "." || !filepath.IsLocal(entry) || path.Clean(entry) != entry ||
			strings.ContainsAny(entry, "*?[\x00") {
			return nil, dray.Errorf(dray.CodeInvalidRequest,
				"sandbox.deny: %q is not a name, nor a clean sequence of names", entry).
				WithHint("write a name that is refused at any depth, such as .envrc, or a sequence of them, such as .git/hooks")
		}
		d.add(denyPattern{elementsOf(entry), false, entry})
	}
	return d, nil
}

func (d denyList) add(n denyPattern) {
	last := n.elements[len(n.elements)-1]
	d[last] = append(d[last], n)
}

// find says by which entry a name beneath the root is refused. folder says what it is.
func (d denyList) find(name string, folder bool) (entry string, refused bool) {
	elements := elementsOf(name)
	for i, e := range elements {
		if strings.HasPrefix(e, stage.Prefix) {
			return stage.Prefix + "*", true
		}
		isFolder := folder || i+1 < len(elements)
		for _, n := range d[e] {
			if n.ends(elements[:i+1]) && (!n.fileOnly || !isFolder) {
				return n.text, true
			}
		}
	}
	return "", false
}

// ends says that a path ends with the elements.
func (n denyPattern) ends(elements []string) bool {
	from := len(elements) - len(n.elements)
	return from >= 0 && slices.Equal(elements[from:], n.elements)
}

func elementsOf(name string) []string { return strings.Split(fold(name), "/") }

// fold makes names equal that a file system which folds case takes for one: also those in which a
// letter has an odd form, as the long s, or that differ in characters that nobody sees.
func fold(name string) string {
	if strings.IndexFunc(name, needsFold) < 0 {
		return name
	}
	return strings.ToLower(strings.ToUpper(strings.Map(visible, name)))
}

// needsFold says that a character is not the same for sure after folding.
func needsFold(r rune) bool { return r >= utf8.RuneSelf || 'A' <= r && r <= 'Z' }

func visible(r rune) rune {
	if r >= utf8.RuneSelf && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector) {
		return -1
	}
	return r
}

// refusedName is the error of a name that is not written.
func (d denyList) refusedName(name string, folder bool) *dray.Error {
	entry, refused := d.find(name, folder)
	if !refused {
		return nil
	}
	if entry == stage.Prefix+"*" {
		return dray.Errorf(dray.CodeDenied,
			"%s would be written, and %s is refused: such names are dray's own", quote(name), entry).
			WithHint("leave it out, or choose another destination")
	}
	return dray.Errorf(dray.CodeDenied,
		"%s would be written, and %s is refused: programs on the host run what it says", quote(name), entry).
		WithHint("leave it out, or say that refusals are to be skipped")
}

// quote writes a path for people: escaped, because it may come from a container, and cut, because
// it may be long.
func quote(p string) string {
	const limit = 200
	if len(p) > limit {
		return fmt.Sprintf("%q...", p[:limit])
	}
	return fmt.Sprintf("%q", p)
}
