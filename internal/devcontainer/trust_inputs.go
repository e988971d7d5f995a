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

// Limits of what trust is bound to. A workspace beyond them is not trusted by its hash.
const (
	maxTrustFiles = 5000
	maxTrustBytes = 64 << 20
)

// trustInputs is what `up` would use of a workspace, as far as it can be known without running
// anything:
//
//   - the configuration file and the lock file beside it,
//   - the whole folder `.devcontainer`, since lifecycle commands live there,
//   - Dockerfiles, compose files and what those name: env files, extended and included files, configs and secrets,
//   - folders of local features in full,
//   - files of the workspace that initializeCommand and runArgs name, since the former runs on the host,
//   - the folder that would be mounted, which the repository's own configuration can move.
//
// A file that is absent is part of it as such, so that its appearance is a change. Not covered are
// images, features from a registry, the build context, and what a covered program goes on to read
// or run.
type trustInputs struct {
	loc  Location
	file configFile
	// what up mounts, by the name that the workspace was reached by; empty for compose
	root       string
	files      map[string]string
	walkedDirs map[string]bool
	// folders are those that were taken in in full, each with those in it.
	folders map[string]bool
	bytes   int64
	// services are those of the compose files.
	services []serviceSummary
}

// collectTrustInputs reads all that trust is bound to. Whatever cannot be read fails it.
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
		"the configuration of %s cannot be bound to a trust: %w", loc.Workspace, err).
		WithHint("correct what the message names, or list the folder in trust.workspaces to trust whatever stands there")
}

// canonical gives the location with links resolved: one workspace has one trust, by whatever name
// it is reached.
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

// hash is over everything, with lengths, so that no two footprints read alike.
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

// realPath resolves links where the path exists; git may name a folder that does not.
func realPath(path string) string {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return resolved
}

// inConfigFolder gives the absolute path of what the configuration names relative to itself.
func (f *trustInputs) inConfigFolder(name string) string {
	return resolvePath(filepath.Dir(f.loc.Config), name)
}

func resolvePath(dir, name string) string {
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

// expand replaces the variables of a file name. One that depends on the host's environment names a
// file that nobody can know.
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

// add takes one file in. Absent files and folders count as such; a link counts with where it leads
// and what is there.
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
		return fmt.Errorf("%s is a link to a folder, whose content is not covered", path)
	}
	sum, err := f.digest(path)
	if err != nil {
		return err
	}
	f.files[path] = "link " + target + "\n" + sum
	return nil
}

// digest hashes a regular file.
func (f *trustInputs) digest(path string) (string, error) {
	file, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // it was only read
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

// addTree takes a folder in, in full. A folder that is absent counts as such.
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

// addFolders takes in the folder `.devcontainer`, the lock file, and local features.
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

// lockFile is where the reference keeps the digests of features.
func lockFile(config string) string {
	name := "devcontainer-lock.json"
	if strings.HasPrefix(filepath.Base(config), ".") {
		name = "." + name
	}
	return filepath.Join(filepath.Dir(config), name)
}

// addBuild takes the Dockerfile in.
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

// addCommands takes in the files of the workspace that are named by what acts on the host:
// initializeCommand, which runs there in the workspace, and the arguments of `docker run`.
func (f *trustInputs) addCommands() error {
	var words []string
	for _, value := range []any{f.file.values["initializeCommand"], f.file.values["runArgs"]} {
		words = append(words, commandWords(value)...)
	}
	for _, word := range words {
		word, err := f.expand(word)
		if err != nil || word == "" {
			continue // not the name of a file that is known
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

// addCommandWord takes in what a word of a command may mean. A word that is no file by now is noted
// as such, whatever else it is: `make build` shall not lose its trust over a folder of that name.
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

// commandWords cuts commands into what may be names of files: at white space and at what a shell
// takes for its own, and at equals signs.
func commandWords(value any) []string {
	var words []string
	switch value := value.(type) {
	case string:
		words = strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`;&|()<>=,", r) })
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
