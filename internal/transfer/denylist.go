package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/files/stage"
	"github.com/dray-dev/dray/internal/lexical"
)

// builtinDenied has the names that are never written to the host, because programs there run code
// or commands from them when they were started for something else: when a user enters the
// directory, opens it in an editor or an agent, starts a shell, a debugger or an interpreter there,
// or uses version control (SY-08). docs/reference/configuration.md lists them as well, and
// docs/adr/0021-names-that-are-not-written.md says which names are not here.
var builtinDenied = []string{
	// git runs hooks, programs that its configuration names, and the commands of an interrupted
	// rebase. A file .git and commondir refer to another directory with a configuration.
	".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/modules",
	".git/worktrees", ".git/rebase-merge", ".git/rebase-apply", ".git" + fileOnly,
	".husky", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", ".overcommit.yml",
	// The others have hooks or aliases in there, or refer to another directory that does.
	".hg", ".jj", ".sl", ".bzr", ".pijul", "_darcs",
	// Editors, and dray's own configuration.
	".devcontainer", ".devcontainer.json", ".dray", ".vscode", ".theia", ".idea", ".fleet", ".zed",
	".helix", ".vim", ".exrc", ".vimrc", ".lvimrc", ".nvimrc", ".nvim.lua", ".ycm_extra_conf.py",
	".dir-locals.el", ".dir-locals-2.el",
	// Agents: hooks, and commands that start servers.
	".mcp.json", ".claude", ".cursor", ".gemini", ".codex", ".opencode", "opencode.json", ".windsurf",
	".kiro", ".roo", ".continue", ".amazonq", ".qwen", ".crush.json", "crush.json", ".aider.conf.yml",
	// Debuggers, interpreters, package managers and the choice of a compiler.
	".gdbinit", ".lldbinit", ".pdbrc", ".Rprofile", ".RData", ".octaverc", ".irbrc", ".pryrc",
	".ghci", ".iex.exs", ".ocamlinit", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo",
	"rust-toolchain", "rust-toolchain.toml",
	// Shells, and programs that read files of the home directory, in case the root is one.
	".envrc", ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login",
	".xprofile", ".xsession", ".xsessionrc", ".xinitrc", ".emacs", ".emacs.d", ".gitconfig", ".ssh",
	".gnupg", ".aws", ".kube", ".docker", ".local/bin", ".local/share/applications",
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

func components(name string) []string { return strings.Split(stage.Fold(name), "/") }

// check returns the error for a denied name; nil if it is allowed.
func (d denyList) check(name string, dir bool) *dray.Error {
	if entry, denied := d.find(name, dir); denied {
		return denial(name, entry)
	}
	return nil
}

// denial returns the error for a name that an entry of the list denies.
func denial(name, entry string) *dray.Error {
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

// CheckHostWrite returns the error for a file of the host that may not be written because it is
// beneath the sandbox root, where the rules of a sync hold: denied, or nil. Symlinks in the path
// are resolved. Programs that run on the host may write there all the same.
func (s *Syncer) CheckHostWrite(file string) error {
	if s.root == nil {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return nil //nolint:nilerr // the write fails too, and reports it
	}
	root, err := filepath.EvalSymlinks(s.cfg.Root)
	if err != nil {
		return nil //nolint:nilerr // nothing is beneath it
	}
	name, ok := lexical.Rel(root, filepath.Join(dir, filepath.Base(file)))
	if !ok {
		return nil
	}
	if why := s.deny.check(name, false); why != nil {
		return why.WithHint("write it outside of the sandbox root")
	}
	for at := name; at != "."; {
		at = path.Dir(at)
		found, err := s.isRepositoryWith(at, name)
		if err != nil {
			return err
		}
		if found {
			return stage.RepositoryError(at + "/")
		}
	}
	return nil
}

// CheckHostChange returns the error for a file or directory of the host that dray does not write or
// remove for code that it runs, beneath the sandbox root or elsewhere: denied, or nil. The path is
// absolute; symlinks in it are not resolved.
func (s *Syncer) CheckHostChange(path string, dir bool) error {
	if entry, denied := s.deny.find(strings.TrimPrefix(path, "/"), dir); denied {
		return denial(path, entry).
			WithHint("let the code write it under another name, and move it yourself")
	}
	return nil
}

// isRepositoryWith reports whether git takes a directory beneath the root, other than .git, for a
// repository if a file is written there.
func (s *Syncer) isRepositoryWith(dir, file string) (bool, error) {
	if stage.Fold(path.Base(dir)) == ".git" {
		return false, nil
	}
	return stage.IsRepository(func(name string) (bool, error) {
		full := path.Join(dir, name)
		if stage.Fold(full) == stage.Fold(file) {
			return true, nil
		}
		_, err := s.root.Stat(full)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}
