package trust

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/devcontainer/compose"
	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
	"github.com/dray-dev/dray/internal/devcontainer/worktree"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
)

// Limits of the trust inputs. A workspace that exceeds them can be trusted only by configuration.
const (
	maxFiles = 5000
	maxBytes = 64 << 20
)

// inputs are the files and settings of a workspace that `up` uses, as far as they are known
// without running anything:
//
//   - the configuration file and its lock file,
//   - the directory `.devcontainer`, which usually contains the scripts of lifecycle commands,
//   - Dockerfiles, and the files that docker compose can read for its model of the project,
//   - that model, after addProject,
//   - the directories of local features,
//   - files of the workspace that initializeCommand, which runs on the host, and runArgs name,
//   - the directory that is mounted, which a repository above the workspace can move,
//   - where the symlinks lead to that mounts of the workspace's directories name.
//
// Besides them there are the tools that the workspace declares, which `up` does not use.
//
// The absence of a file is recorded, so that its appearance is a change. Images, features from a
// registry, the build context, and files that a covered program reads or runs are not covered.
type inputs struct {
	loc  devcontainer.Location
	file devcontainer.ConfigFile
	// root is the directory that `up` mounts, with symlinks kept, and realRoot without. They are empty
	// for compose.
	root, realRoot string
	// files has the state of each file by its path, see stateOf.
	files map[string]string
	// content has each file that was read for its content, nil if it does not exist.
	content map[string][]byte
	// folders are the directories that were added recursively.
	folders map[string]bool
	// features are the metadata of local features by their directory.
	features map[string]map[string]any
	// sources are paths of the workspace that mounts may name, with what followSymlinks returns for
	// them, sorted.
	sources map[string][]string
	// compose are the files of a compose project, nil for others, and project is what docker compose
	// makes of them, after addProject.
	compose *compose.Inputs
	project compose.Project
	tools   declaredTools

	size int64 // of the files that were hashed, in bytes
	// ctx and dir are those of the one operation that the inputs are collected for.
	ctx context.Context //nolint:containedctx // see above
	dir linux.UntrustedDir
	// err is the first error. Nothing is added after it.
	err error
}

// collect reads the trust inputs. It fails if one of them cannot be read.
func collect(ctx context.Context, loc devcontainer.Location) (*inputs, error) {
	canonical, err := loc.Canonical(ctx)
	if err != nil {
		return nil, err
	}
	in := &inputs{
		loc: canonical, files: map[string]string{}, content: map[string][]byte{},
		folders: map[string]bool{}, features: map[string]map[string]any{},
		sources: map[string][]string{}, ctx: ctx, dir: linux.UntrustedDir(canonical.Workspace),
	}
	if in.file, err = devcontainer.ReadConfig(ctx, canonical); err != nil {
		return nil, err
	}
	if !in.file.IsCompose() {
		if in.root, err = worktree.Root(ctx, loc.Workspace); err != nil {
			return nil, err
		}
		if in.realRoot, err = in.dir.RealPath(ctx, in.root); err != nil {
			return nil, err
		}
	}
	in.addCompose() // first: what is hashed is what was read
	in.addFolders()
	in.addBuild()
	in.addCommands()
	values := in.file.Values
	in.addSources([]any{values["mounts"], values["workspaceMount"], values["runArgs"]})
	// further files of the workspace that act on the host: add (or read) the file, and say by act what
	// it does
	if err := in.failure(); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *inputs) failure() error {
	if in.err == nil {
		return nil
	}
	return dray.Errorf(dray.CodeWorkspaceUntrusted,
		"cannot hash the devcontainer configuration of %s: %w", in.loc.Workspace, in.err).
		WithHint("fix it, or add the folder to trust.workspaces")
}

// addCompose adds the files that compose can read, and the Dockerfiles that they name.
func (in *inputs) addCompose() {
	if !in.file.IsCompose() {
		return
	}
	names, ok := in.file.Values["dockerComposeFile"].([]any)
	if !ok {
		names = []any{in.file.Values["dockerComposeFile"]}
	}
	files := in.configPaths(names)
	if in.err != nil {
		return
	}
	var err error
	in.compose, err = compose.Read(in, in.loc.Workspace, files)
	in.fail(err)
	for _, path := range in.compose.Dockerfiles {
		in.add(path)
	}
}

// Read implements compose.Files: a file that compose can read is an input.
func (in *inputs) Read(path string) ([]byte, error) { return in.read(path), in.err }

// IsDir implements compose.Files.
func (in *inputs) IsDir(path string) bool {
	info, err := in.dir.Stat(in.ctx, path)
	return err == nil && info.IsDir()
}

// addProject adds what docker compose makes of a compose project, with the Dockerfiles and the
// sources of mounts in it. It runs docker compose.
func (in *inputs) addProject(ctx context.Context, o compose.Options) error {
	if in.compose == nil {
		return nil
	}
	var err error
	in.project, err = in.compose.Project(ctx, o)
	in.fail(err)
	dockerfiles, err := in.project.Dockerfiles()
	in.fail(err)
	for _, path := range dockerfiles {
		in.add(path)
	}
	in.addSources(in.project.Values)
	return in.failure()
}

func (in *inputs) fail(err error) { in.err = cmp.Or(in.err, err) }

// hash returns the hash of all inputs, the model included if compose was asked for it. Lengths keep
// them apart.
func (in *inputs) hash() string {
	h := sha256.New()
	field := func(s string) { _, _ = fmt.Fprintf(h, "%d:%s\n", len(s), s) } // a hash never fails
	field("dray trust 1")
	field(in.loc.Workspace)
	field(in.loc.Config)
	field(string(in.file.Raw))
	field(in.realRoot)
	for _, path := range slices.Sorted(maps.Keys(in.files)) {
		field(path)
		field(in.files[path])
	}
	for _, path := range slices.Sorted(maps.Keys(in.sources)) {
		if followed := strings.Join(in.sources[path], "\x00"); followed != path {
			field(path)
			field(followed)
		}
	}
	if in.project.Text != "" {
		field(in.project.Name)
		field(in.project.Text)
	}
	if in.tools.exist() {
		field("tools")
		field(string(in.tools.text))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// configPaths returns the paths of file names in the configuration.
func (in *inputs) configPaths(names []any) []string {
	var paths []string
	for _, name := range names {
		if name, ok := name.(string); ok {
			name, err := in.expand(name)
			in.fail(err)
			paths = append(paths, lexical.Resolve(filepath.Dir(in.loc.Config), name))
		}
	}
	return paths
}

// expand replaces the variables of a file name. It fails for a variable of the host's environment,
// whose value can change.
func (in *inputs) expand(name string) (string, error) {
	out, localEnv, err := in.loc.Expand(name)
	if err == nil && len(localEnv) > 0 {
		err = fmt.Errorf("the file name %q depends on the variable %s", name, localEnv[0])
	}
	return out, err
}

// add adds a file, which need not exist, or that the path is a directory.
func (in *inputs) add(path string) {
	path = filepath.Clean(path)
	if _, done := in.files[path]; done || in.err != nil {
		return
	}
	if len(in.files) >= maxFiles {
		in.fail(fmt.Errorf("it has more than %d files", maxFiles))
		return
	}
	state, err := in.stateOf(path)
	in.files[path] = state
	in.fail(err)
}

// read adds a file and returns its content, which is what is hashed. It returns nil for a file that
// does not exist.
func (in *inputs) read(path string) []byte {
	content, done := in.content[path]
	if done || in.err != nil {
		return content
	}
	content, err := in.dir.ReadFile(in.ctx, path, jsonc.MaxBytes)
	if err != nil && !linux.IsAbsent(err) {
		in.fail(err)
		return nil
	}
	in.content[path] = content
	delete(in.files, path) // what was hashed may have been another content
	in.add(path)
	return content
}

// stateOf returns the hash of a file, that it is absent or a directory, or a symlink's target and
// its hash.
func (in *inputs) stateOf(path string) (string, error) {
	info, err := in.dir.Lstat(in.ctx, path)
	switch {
	case linux.IsAbsent(err):
		return "absent", nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "folder", nil
	case info.Mode().Type() != fs.ModeSymlink:
		sum, err := in.digest(path)
		return "file " + sum, err
	}
	target, err := in.dir.Readlink(in.ctx, path)
	if err != nil {
		return "", err
	}
	info, err = in.dir.Stat(in.ctx, path)
	switch {
	case linux.IsAbsent(err):
		return "link " + target, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a symlink to a directory, whose content is not covered", path)
	}
	sum, err := in.digest(path)
	return "link " + target + "\n" + sum, err
}

// digest returns the SHA-256 of a regular file, as read returned it.
func (in *inputs) digest(path string) (string, error) {
	content := in.content[path]
	var err error
	if content == nil {
		content, err = in.dir.ReadFile(in.ctx, path, maxBytes-in.size)
	}
	in.size += int64(len(content))
	switch {
	case in.size > maxBytes || errors.Is(err, linux.ErrTooLarge):
		return "", fmt.Errorf("it has more than %d MiB of files", maxBytes>>20)
	case err != nil:
		return "", err
	}
	return hexSum(content), nil
}

// addTree adds a directory recursively, or that there is none.
func (in *inputs) addTree(root string) {
	if info, err := in.dir.Lstat(in.ctx, root); err == nil && info.IsDir() {
		in.addEntries(root)
		return
	}
	in.add(root)
}

func (in *inputs) addEntries(dir string) {
	if in.folders[dir] || in.err != nil {
		return
	}
	if len(in.folders) >= maxFiles {
		in.fail(fmt.Errorf("it has more than %d directories", maxFiles))
		return
	}
	in.folders[dir] = true
	entries, err := in.dir.ReadDir(in.ctx, dir, maxFiles)
	if errors.Is(err, linux.ErrTooLarge) {
		err = fmt.Errorf("it has more than %d files", maxFiles)
	}
	in.fail(err)
	for _, entry := range entries {
		if path := filepath.Join(dir, entry.Name()); entry.IsDir() {
			in.addEntries(path)
		} else {
			in.add(path)
		}
	}
}

// addFolders adds the directory `.devcontainer`, the lock file, and local features.
func (in *inputs) addFolders() {
	folders := []string{filepath.Join(in.loc.Workspace, ".devcontainer")}
	if before, _, found := strings.Cut(in.loc.Config, "/.devcontainer/"); found {
		folders = append(folders, before+"/.devcontainer")
	}
	for _, folder := range folders {
		in.addTree(folder)
	}
	features, _ := in.file.Values["features"].(map[string]any)
	in.addFeatures(features)
	in.add(in.loc.FeatureLock())
}

// addFeatures adds the directories of local features, and of those that they depend on.
func (in *inputs) addFeatures(features map[string]any) {
	for name := range features {
		dir := lexical.Resolve(filepath.Dir(in.loc.Config), name)
		isLocal := strings.HasPrefix(name, ".") || filepath.IsAbs(name)
		if _, done := in.features[dir]; !isLocal || done || in.err != nil {
			continue
		}
		metadata := map[string]any{}
		in.features[dir] = metadata
		if text := in.read(filepath.Join(dir, "devcontainer-feature.json")); text != nil {
			doc, err := jsonc.Parse(text)
			in.fail(err)
			maps.Copy(metadata, doc.Value)
		}
		in.addTree(dir)
		dependsOn, _ := metadata["dependsOn"].(map[string]any)
		in.addFeatures(dependsOn)
	}
}

func (in *inputs) addBuild() {
	build, _ := in.file.Values["build"].(map[string]any)
	for _, path := range in.configPaths([]any{in.file.Values["dockerFile"], build["dockerfile"]}) {
		in.add(path)
	}
}

// addCommands adds the files of the workspace that initializeCommand and runArgs name.
func (in *inputs) addCommands() {
	for _, word := range commandWords([]any{
		in.file.Values["initializeCommand"], in.file.Values["runArgs"],
	}) {
		word, err := in.expand(word)
		if err != nil || word == "" {
			continue // it depends on the host's environment
		}
		path := lexical.Resolve(in.loc.Workspace, word)
		if rel, ok := lexical.Rel(in.loc.Workspace, path); ok && rel != "." {
			in.addCommandWord(path)
		}
	}
}

// addCommandWord adds the file that a word of a command may name. A directory is recorded like an
// absent file: `make build` must not lose its trust when a directory of that name appears.
func (in *inputs) addCommandWord(path string) {
	info, err := in.dir.Stat(in.ctx, path)
	switch _, done := in.files[path]; {
	case err == nil && !info.IsDir():
		in.add(path)
	case err != nil && !linux.IsAbsent(err) && !errors.Is(err, syscall.ENAMETOOLONG):
		in.fail(err)
	case !done:
		in.files[path] = "no file"
	}
}

// commandWords splits commands into possible file names: at white space, at characters of the
// shell's syntax, and at equals signs.
func commandWords(value any) []string {
	var words []string
	switch value := value.(type) {
	case string:
		isSeparator := func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`;&|()<>=,", r) }
		return append(strings.FieldsFunc(value, isSeparator), value)
	case []any:
		for _, v := range value {
			words = append(words, commandWords(v)...)
		}
	case map[string]any:
		for _, v := range value {
			words = append(words, commandWords(v)...)
		}
	}
	return words
}
