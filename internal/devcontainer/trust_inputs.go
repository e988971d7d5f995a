package devcontainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// Limits of the trust inputs. A workspace that exceeds them can be trusted only by configuration.
const (
	maxTrustFiles = 5000
	maxTrustBytes = 64 << 20
)

// trustInputs are the files and settings of a workspace that `up` uses, as far as they are known
// without running anything:
//
//   - the configuration file and its lock file,
//   - the directory `.devcontainer`, which usually contains the scripts of lifecycle commands,
//   - Dockerfiles, compose files and the files that these name,
//   - the directories of local features,
//   - files of the workspace that initializeCommand, which runs on the host, and runArgs name,
//   - the directory that is mounted, which the repository's configuration can move.
//
// The absence of a file is recorded, so that its appearance is a change. Images, features from a
// registry, the build context, and files that a covered program reads or runs are not covered.
type trustInputs struct {
	loc  Location
	file configFile
	// root is what `up` mounts, with symlinks kept; empty for compose
	root       string
	files      map[string]string
	walkedDirs map[string]bool
	// folders are the directories that were added recursively.
	folders map[string]bool
	bytes   int64
	// services is what the services of compose files access.
	services []SummaryLine
}

// collectTrustInputs reads the trust inputs. It fails if one of them cannot be read.
func collectTrustInputs(ctx context.Context, loc Location, git GitFunc) (*trustInputs, error) {
	canonical, err := loc.canonical()
	if err != nil {
		return nil, err
	}
	f := &trustInputs{
		loc: canonical, files: map[string]string{}, walkedDirs: map[string]bool{},
		folders: map[string]bool{},
	}
	if f.file, err = readConfig(canonical); err != nil {
		return nil, err
	}
	if !isCompose(f.file.values) {
		f.root = mountRoot(ctx, git, loc.Workspace)
	}
	for _, step := range []func() error{f.addFolders, f.addBuild, f.addCompose, f.addCommands} {
		if err := step(); err != nil {
			return nil, trustInputsError(loc, err)
		}
	}
	return f, nil
}

func trustInputsError(loc Location, err error) error {
	return dray.Errorf(dray.CodeWorkspaceUntrusted,
		"cannot hash the devcontainer configuration of %s: %w", loc.Workspace, err).
		WithHint("fix it, or add the folder to trust.workspaces")
}

// canonical returns the location with symlinks resolved, so that a workspace has one trust.
func (l Location) canonical() (Location, error) {
	folder, err := filepath.EvalSymlinks(l.Workspace)
	if err != nil {
		return Location{}, dray.Errorf(dray.CodeWorkspaceNotFound, "resolve the workspace folder: %w",
			err).WithHint("check the path")
	}
	if rel, ok := lexical.Rel(l.Workspace, l.Config); ok {
		return Location{Workspace: folder, Config: filepath.Join(folder, rel)}, nil
	}
	config, err := filepath.EvalSymlinks(l.Config)
	if err != nil {
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer, "resolve the configuration file: %w",
			err).WithHint("check the path")
	}
	return Location{Workspace: folder, Config: config}, nil
}

// hash returns the hash of all inputs. Lengths keep them apart.
func (f *trustInputs) hash() string {
	h := sha256.New()
	field := func(s string) { _, _ = fmt.Fprintf(h, "%d:%s\n", len(s), s) } // a hash never fails
	field("dray trust 1")
	field(f.loc.Workspace)
	field(f.loc.Config)
	field(string(f.file.raw))
	field(realPath(f.root))
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		field(path)
		field(f.files[path])
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// realPath resolves symlinks if the path exists.
func realPath(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return resolved
}

// inConfigFolder resolves a path relative to the configuration file.
func (f *trustInputs) inConfigFolder(name string) string {
	return resolvePath(filepath.Dir(f.loc.Config), name)
}

func resolvePath(dir, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

// expand replaces the variables of a file name. It fails for a variable of the host's environment,
// whose value can change.
func (f *trustInputs) expand(name string) (string, error) {
	names := map[string]bool{}
	scope := localScope{workspace: f.loc.Workspace, names: names}
	out, err := substituteText(name, scope.replace)
	if err != nil {
		return "", err
	}
	if len(names) > 0 {
		return "", fmt.Errorf("the file name %q depends on the variable %s", name, sortedNames(names)[0])
	}
	return out, nil
}

// add adds a file: its hash, that it is absent or a directory, or a symlink's target and its hash.
func (f *trustInputs) add(path string) error {
	path = filepath.Clean(path)
	if _, done := f.files[path]; done {
		return nil
	}
	if len(f.files) >= maxTrustFiles {
		return fmt.Errorf("it has more than %d files", maxTrustFiles)
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil && isAbsent(err):
		f.files[path] = "absent"
		return nil
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return f.addLink(path)
	case info.IsDir():
		f.files[path] = "folder"
		return nil
	}
	sum, err := f.digest(path)
	if err != nil {
		return err
	}
	f.files[path] = "file " + sum
	return nil
}

func (f *trustInputs) addLink(path string) error {
	target, err := os.Readlink(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil && isAbsent(err):
		f.files[path] = "link " + target
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a symlink to a directory, whose content is not covered", path)
	}
	sum, err := f.digest(path)
	if err != nil {
		return err
	}
	f.files[path] = "link " + target + "\n" + sum
	return nil
}

// digest returns the SHA-256 of a regular file.
func (f *trustInputs) digest(path string) (string, error) {
	file, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // only read
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(file, maxTrustBytes-f.bytes+1))
	if err != nil {
		return "", err
	}
	if f.bytes += n; f.bytes > maxTrustBytes {
		return "", fmt.Errorf("it has more than %d MiB of files", maxTrustBytes>>20)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// addTree adds a directory recursively, or that it is absent.
func (f *trustInputs) addTree(root string) error {
	if f.walkedDirs[root] {
		return nil
	}
	f.walkedDirs[root] = true
	if _, err := os.Lstat(root); err != nil {
		if isAbsent(err) {
			f.files[root] = "absent"
			return nil
		}
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			f.folders[path] = true
			return nil
		}
		return f.add(path)
	})
}

// addFolders adds the directory `.devcontainer`, the lock file, and local features.
func (f *trustInputs) addFolders() error {
	folders := []string{filepath.Join(f.loc.Workspace, ".devcontainer")}
	if before, _, found := strings.Cut(f.loc.Config, "/.devcontainer/"); found {
		folders = append(folders, before+"/.devcontainer")
	}
	features, _ := f.file.values["features"].(entry)
	for name := range features {
		if strings.HasPrefix(name, ".") || filepath.IsAbs(name) {
			folders = append(folders, f.inConfigFolder(name))
		}
	}
	for _, folder := range folders {
		if err := f.addTree(folder); err != nil {
			return err
		}
	}
	return f.add(lockFile(f.loc.Config))
}

// lockFile returns the path of the reference's lock file of features.
func lockFile(config string) string {
	name := "devcontainer-lock.json"
	if strings.HasPrefix(filepath.Base(config), ".") {
		name = "." + name
	}
	return filepath.Join(filepath.Dir(config), name)
}

// addBuild adds the Dockerfile.
func (f *trustInputs) addBuild() error {
	build, _ := f.file.values["build"].(entry)
	for _, value := range []any{f.file.values["dockerFile"], build["dockerfile"]} {
		name, ok := value.(string)
		if !ok {
			continue
		}
		name, err := f.expand(name)
		if err != nil {
			return err
		}
		if err := f.add(f.inConfigFolder(name)); err != nil {
			return err
		}
	}
	return nil
}

// addCommands adds the files of the workspace that initializeCommand and runArgs name.
func (f *trustInputs) addCommands() error {
	var words []string
	for _, value := range []any{f.file.values["initializeCommand"], f.file.values["runArgs"]} {
		words = append(words, commandWords(value)...)
	}
	for _, word := range words {
		word, err := f.expand(word)
		if err != nil || word == "" {
			continue // it depends on the host's environment
		}
		path := resolvePath(f.loc.Workspace, word)
		if rel, ok := lexical.Rel(f.loc.Workspace, path); !ok || rel == "." {
			continue
		}
		if err := f.addCommandWord(path); err != nil {
			return err
		}
	}
	return nil
}

// addCommandWord adds the file that a word of a command may name. A directory is recorded like an
// absent file: `make build` must not lose its trust when a directory of that name appears.
func (f *trustInputs) addCommandWord(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return f.add(path)
	case err != nil && !isAbsent(err) && !errors.Is(err, errNameTooLong):
		return err
	}
	if _, done := f.files[path]; !done {
		f.files[path] = "no file"
	}
	return nil
}

// commandWords splits commands into possible file names: at white space, at characters of the
// shell's syntax, and at equals signs.
func commandWords(value any) []string {
	var words []string
	switch value := value.(type) {
	case string:
		isSeparator := func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`;&|()<>=,", r) }
		words = strings.FieldsFunc(value, isSeparator)
		words = append(words, value)
	case []any:
		for _, v := range value {
			words = append(words, commandWords(v)...)
		}
	case entry:
		for _, v := range value {
			words = append(words, commandWords(v)...)
		}
	}
	return words
}
