package devcontainer

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
	"github.com/dray-dev/dray/internal/devcontainer/jsonc"
	"github.com/dray-dev/dray/internal/lexical"
	"github.com/dray-dev/dray/internal/linux"
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
//   - Dockerfiles, and the files that docker compose can read for its model of the project,
//   - that model, after addModel,
//   - the directories of local features,
//   - files of the workspace that initializeCommand, which runs on the host, and runArgs name,
//   - the directory that is mounted, which a repository above the workspace can move,
//   - where the symlinks lead to that mounts of the workspace's directories name.
//
// The absence of a file is recorded, so that its appearance is a change. Images, features from a
// registry, the build context, and files that a covered program reads or runs are not covered.
type trustInputs struct {
	loc  Location
	file configFile
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
	features map[string]entry
	// sources are paths of the workspace that mounts may name, with what followSymlinks returns for
	// them, sorted.
	sources map[string][]string
	// compose are the files of a compose project, nil for others, and model is what docker compose
	// prints for them, after addModel.
	compose *composeInputs
	model   composeModel

	size int64 // of the files that were hashed, in bytes
	// ctx and dir are those of the one operation that the inputs are collected for.
	ctx context.Context //nolint:containedctx // see above
	dir linux.UntrustedDir
	// err is the first error. Nothing is added after it.
	err error
}

// collectTrustInputs reads the trust inputs. It fails if one of them cannot be read.
func collectTrustInputs(ctx context.Context, loc Location) (*trustInputs, error) {
	canonical, err := loc.canonical(ctx)
	if err != nil {
		return nil, err
	}
	f := &trustInputs{
		loc: canonical, files: map[string]string{}, content: map[string][]byte{},
		folders: map[string]bool{}, features: map[string]entry{}, sources: map[string][]string{},
		ctx: ctx, dir: linux.UntrustedDir(canonical.Workspace),
	}
	if f.file, err = readConfig(ctx, canonical); err != nil {
		return nil, err
	}
	if !isCompose(f.file.values) {
		if f.root, err = mountRoot(ctx, loc.Workspace); err != nil {
			return nil, err
		}
		if f.realRoot, err = f.dir.RealPath(ctx, f.root); err != nil {
			return nil, err
		}
	}
	f.addCompose() // first: what is hashed is what was read
	f.addFolders()
	f.addBuild()
	f.addCommands()
	values := f.file.values
	f.addSources([]any{values["mounts"], values["workspaceMount"], values["runArgs"]})
	if err := f.failure(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *trustInputs) failure() error {
	if f.err == nil {
		return nil
	}
	return dray.Errorf(dray.CodeWorkspaceUntrusted,
		"cannot hash the devcontainer configuration of %s: %w", f.loc.Workspace, f.err).
		WithHint("fix it, or add the folder to trust.workspaces")
}

// addModel adds the model of a compose project, with the Dockerfiles and the sources of mounts in
// it. It runs docker compose.
func (f *trustInputs) addModel(ctx context.Context, compose Compose) error {
	if f.compose == nil {
		return nil
	}
	var err error
	f.model, err = f.compose.model(ctx, compose)
	f.fail(err)
	f.bindDockerfiles(f.model)
	f.addSources(f.model.values)
	return f.failure()
}

func (f *trustInputs) fail(err error) { f.err = cmp.Or(f.err, err) }

// canonical returns the location with symlinks resolved, so that a workspace has one trust.
func (l Location) canonical(ctx context.Context) (Location, error) {
	dir := linux.UntrustedDir(l.Workspace)
	folder, err := dir.RealPath(ctx, l.Workspace)
	if err != nil {
		return Location{}, dray.Errorf(dray.CodeWorkspaceNotFound,
			"resolve the workspace folder: %w", err).WithHint("check the path")
	}
	if rel, ok := lexical.Rel(l.Workspace, l.Config); ok {
		return Location{Workspace: folder, Config: filepath.Join(folder, rel)}, nil
	}
	config, err := dir.RealPath(ctx, l.Config)
	if err != nil {
		return Location{}, dray.Errorf(dray.CodeNoDevcontainer,
			"resolve the configuration file: %w", err).WithHint("check the path")
	}
	return Location{Workspace: folder, Config: config}, nil
}

// hash returns the hash of all inputs, the model included if compose was asked for it. Lengths keep
// them apart.
func (f *trustInputs) hash() string {
	h := sha256.New()
	field := func(s string) { _, _ = fmt.Fprintf(h, "%d:%s\n", len(s), s) } // a hash never fails
	field("dray trust 1")
	field(f.loc.Workspace)
	field(f.loc.Config)
	field(string(f.file.raw))
	field(f.realRoot)
	for _, path := range slices.Sorted(maps.Keys(f.files)) {
		field(path)
		field(f.files[path])
	}
	for _, path := range slices.Sorted(maps.Keys(f.sources)) {
		if followed := strings.Join(f.sources[path], "\x00"); followed != path {
			field(path)
			field(followed)
		}
	}
	if f.model.text != "" {
		field(f.model.project)
		field(f.model.text)
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

func (f *trustInputs) isDir(path string) bool {
	info, err := f.dir.Stat(f.ctx, path)
	return err == nil && info.IsDir()
}

// add adds a file, which need not exist, or that the path is a directory.
func (f *trustInputs) add(path string) {
	path = filepath.Clean(path)
	if _, done := f.files[path]; done || f.err != nil {
		return
	}
	if len(f.files) >= maxTrustFiles {
		f.fail(fmt.Errorf("it has more than %d files", maxTrustFiles))
		return
	}
	state, err := f.stateOf(path)
	f.files[path] = state
	f.fail(err)
}

// read adds a file and returns its content, which is what is hashed. It returns nil for a file that
// does not exist.
func (f *trustInputs) read(path string) []byte {
	content, done := f.content[path]
	if done || f.err != nil {
		return content
	}
	content, err := f.dir.ReadFile(f.ctx, path, jsonc.MaxBytes)
	if err != nil && !isAbsent(err) {
		f.fail(err)
		return nil
	}
	f.content[path] = content
	delete(f.files, path) // what was hashed may have been another content
	f.add(path)
	return content
}

// stateOf returns the hash of a file, that it is absent or a directory, or a symlink's target and
// its hash.
func (f *trustInputs) stateOf(path string) (string, error) {
	info, err := f.dir.Lstat(f.ctx, path)
	switch {
	case isAbsent(err):
		return "absent", nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "folder", nil
	case info.Mode().Type() != fs.ModeSymlink:
		sum, err := f.digest(path)
		return "file " + sum, err
	}
	target, err := f.dir.Readlink(f.ctx, path)
	if err != nil {
		return "", err
	}
	info, err = f.dir.Stat(f.ctx, path)
	switch {
	case isAbsent(err):
		return "link " + target, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a symlink to a directory, whose content is not covered", path)
	}
	sum, err := f.digest(path)
	return "link " + target + "\n" + sum, err
}

// digest returns the SHA-256 of a regular file, as read returned it.
func (f *trustInputs) digest(path string) (string, error) {
	content := f.content[path]
	if content == nil {
		var err error
		content, err = f.dir.ReadFile(f.ctx, path, maxTrustBytes)
		if err != nil {
			return "", err
		}
	}
	if f.size += int64(len(content)); f.size > maxTrustBytes {
		return "", fmt.Errorf("it has more than %d MiB of files", maxTrustBytes>>20)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}

// addTree adds a directory recursively, or that there is none.
func (f *trustInputs) addTree(root string) {
	if info, err := f.dir.Lstat(f.ctx, root); err == nil && info.IsDir() {
		f.addEntries(root)
		return
	}
	f.add(root)
}

func (f *trustInputs) addEntries(dir string) {
	if f.folders[dir] || f.err != nil {
		return
	}
	if len(f.folders) >= maxTrustFiles {
		f.fail(fmt.Errorf("it has more than %d directories", maxTrustFiles))
		return
	}
	f.folders[dir] = true
	entries, err := f.dir.ReadDir(f.ctx, dir, maxTrustFiles)
	if errors.Is(err, linux.ErrTooLarge) {
		err = fmt.Errorf("it has more than %d files", maxTrustFiles)
	}
	f.fail(err)
	for _, entry := range entries {
		if path := filepath.Join(dir, entry.Name()); entry.IsDir() {
			f.addEntries(path)
		} else {
			f.add(path)
		}
	}
}

// addFolders adds the directory `.devcontainer`, the lock file, and local features.
func (f *trustInputs) addFolders() {
	folders := []string{filepath.Join(f.loc.Workspace, ".devcontainer")}
	if before, _, found := strings.Cut(f.loc.Config, "/.devcontainer/"); found {
		folders = append(folders, before+"/.devcontainer")
	}
	for _, folder := range folders {
		f.addTree(folder)
	}
	features, _ := f.file.values["features"].(entry)
	f.addFeatures(features)
	f.add(featureLockPath(f.loc.Config))
}

// addFeatures adds the directories of local features, and of those that they depend on.
func (f *trustInputs) addFeatures(features entry) {
	for name := range features {
		dir := f.inConfigFolder(name)
		isLocal := strings.HasPrefix(name, ".") || filepath.IsAbs(name)
		if _, done := f.features[dir]; !isLocal || done || f.err != nil {
			continue
		}
		metadata := entry{}
		f.features[dir] = metadata
		if text := f.read(filepath.Join(dir, "devcontainer-feature.json")); text != nil {
			doc, err := jsonc.Parse(text)
			f.fail(err)
			maps.Copy(metadata, doc.Value)
		}
		f.addTree(dir)
		dependsOn, _ := metadata["dependsOn"].(entry)
		f.addFeatures(dependsOn)
	}
}

// featureLockPath returns the path of the reference's lock file of features.
func featureLockPath(config string) string {
	name := "devcontainer-lock.json"
	if strings.HasPrefix(filepath.Base(config), ".") {
		name = "." + name
	}
	return filepath.Join(filepath.Dir(config), name)
}

func (f *trustInputs) addBuild() {
	build, _ := f.file.values["build"].(entry)
	for _, name := range textsOf([]any{f.file.values["dockerFile"], build["dockerfile"]}) {
		name, err := f.expand(name)
		f.fail(err)
		f.add(f.inConfigFolder(name))
	}
}

// addCommands adds the files of the workspace that initializeCommand and runArgs name.
func (f *trustInputs) addCommands() {
	for _, word := range commandWords([]any{
		f.file.values["initializeCommand"], f.file.values["runArgs"],
	}) {
		word, err := f.expand(word)
		if err != nil || word == "" {
			continue // it depends on the host's environment
		}
		path := resolvePath(f.loc.Workspace, word)
		if rel, ok := lexical.Rel(f.loc.Workspace, path); ok && rel != "." {
			f.addCommandWord(path)
		}
	}
}

// addCommandWord adds the file that a word of a command may name. A directory is recorded like an
// absent file: `make build` must not lose its trust when a directory of that name appears.
func (f *trustInputs) addCommandWord(path string) {
	info, err := f.dir.Stat(f.ctx, path)
	switch _, done := f.files[path]; {
	case err == nil && !info.IsDir():
		f.add(path)
	case err != nil && !isAbsent(err) && !errors.Is(err, syscall.ENAMETOOLONG):
		f.fail(err)
	case !done:
		f.files[path] = "no file"
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
	case entry:
		for _, v := range value {
			words = append(words, commandWords(v)...)
		}
	}
	return words
}
