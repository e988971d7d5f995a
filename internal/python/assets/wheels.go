package assets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
)

// wheelSet has the wheels of the next folder.
type wheelSet struct {
	pinned lockFile
	// byFile are the packages of Pyodide's lock by the names of their files.
	byFile map[string]lockEntry
	// own are packages that Pyodide's lock does not have, as extra-lock.json has them.
	own lockFile
	// files are the names of all wheels.
	files []string
}

// wheels copies the wheels of the asset folder and of opts.From into the next folder.
func (f *fetch) wheels(ctx context.Context) error {
	set, err := f.openWheelSet()
	if err != nil {
		return err
	}
	if err := f.keepWheels(ctx, set); err != nil {
		return err
	}
	if f.opts.From != "" {
		for _, dir := range []string{".", pyodideName, "wheels"} {
			if err := f.addWheels(ctx, set, filepath.Join(f.opts.From, dir)); err != nil {
				return err
			}
		}
	}
	return f.writeExtra(set)
}

func (f *fetch) openWheelSet() (*wheelSet, error) {
	text, err := f.next.ReadFile(lockPath)
	if err != nil {
		return nil, err
	}
	set := &wheelSet{
		byFile: map[string]lockEntry{}, own: lockFile{Packages: map[string]jsontext.Value{}},
	}
	if set.pinned, err = parseLock(text); err != nil {
		return nil, fmt.Errorf("read %s: %w", lockPath, err)
	}
	for _, raw := range set.pinned.Packages {
		var e lockEntry
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, fmt.Errorf("read %s: %w", lockPath, err)
		}
		set.byFile[e.FileName] = e
	}
	return set, nil
}

// keepWheels copies the wheels of the asset folder that match their locks.
func (f *fetch) keepWheels(ctx context.Context, set *wheelSet) error {
	extra, err := readExtra(filepath.Join(f.dir, extraName))
	if err != nil || extra == nil {
		extra = []byte(`{"packages":{}}`)
	}
	own, err := parseLock(extra)
	if err != nil {
		own = lockFile{}
	}
	for key, raw := range own.Packages {
		var e lockEntry
		if json.Unmarshal(raw, &e) != nil || e.check() != nil {
			continue
		}
		kept, err := f.copyFile(ctx, path.Join(pyodideName, e.FileName), e.file(),
			filepath.Join(f.dir, pyodideName, e.FileName))
		if err != nil {
			return err
		}
		if kept {
			set.own.Packages[key] = raw
			set.files = append(set.files, e.FileName)
		}
	}
	return f.keepPinned(ctx, set)
}

func (f *fetch) keepPinned(ctx context.Context, set *wheelSet) error {
	there, err := names(filepath.Join(f.dir, pyodideName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range there {
		e, ok := set.byFile[name]
		if !ok || slices.Contains(set.files, name) {
			continue
		}
		kept, err := f.copyFile(ctx, path.Join(pyodideName, name), e.file(),
			filepath.Join(f.dir, pyodideName, name))
		if err != nil {
			return err
		}
		if kept {
			set.files = append(set.files, name)
		}
	}
	return nil
}

func (e lockEntry) file() File { return File{Name: e.FileName, Size: e.Size, SHA256: e.SHA256} }

// addWheels copies the wheels of one folder. A wheel with the name of one of Pyodide's lock must
// have its content.
func (f *fetch) addWheels(ctx context.Context, set *wheelSet, dir string) error {
	there, err := names(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range there {
		_, pinned := set.byFile[name]
		if !pinned && !strings.HasSuffix(name, ".whl") || slices.Contains(set.files, name) {
			continue
		}
		if err := f.addWheel(ctx, set, filepath.Join(dir, name)); err != nil {
			return err
		}
		set.files = append(set.files, name)
	}
	return nil
}

func (f *fetch) addWheel(ctx context.Context, set *wheelSet, file string) error {
	name := filepath.Base(file)
	e, pinned := set.byFile[name]
	sum, size, err := fileDigest(ctx, file)
	if err != nil {
		return err
	}
	switch {
	case pinned && sum != e.SHA256:
		return &Problem{
			Kind: Mismatch, File: file, Expected: "sha256 " + e.SHA256, Got: "sha256 " + sum,
			Source: fmt.Sprintf("package %s %s of Pyodide's lock", e.Name, e.Version),
			Fix:    "bring the file of this Pyodide release",
		}
	case !pinned:
		if e, err = readWheel(file, set.abi()); err != nil {
			return dray.Errorf(dray.CodeInvalidInput, "read the wheel %s: %w", file, err).
				WithHint("bring wheels for any platform, or for this Pyodide: %s", set.abi())
		}
		e.SHA256, e.Size = sum, size
		if set.own.Packages[e.Name], err = e.raw(); err != nil {
			return err
		}
	}
	copied, err := f.copyFile(ctx, path.Join(pyodideName, name), e.file(), file)
	if err == nil && !copied {
		err = fmt.Errorf("%s changed while it was read", file)
	}
	return err
}

func fileDigest(ctx context.Context, name string) (sum string, size int64, err error) {
	in, err := openSource(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return "", 0, err
	}
	sum, err = digestOf(ctx, in, info.Size())
	return sum, info.Size(), err
}

// abi returns the platform tag of compiled wheels for this Pyodide.
func (set *wheelSet) abi() string {
	var info struct {
		ABI string `json:"abi_version"`
	}
	_ = json.Unmarshal(set.pinned.Info, &info) // the file is pinned
	return "pyemscripten_" + info.ABI + "_wasm32"
}

// writeExtra writes extra-lock.json if it is needed, after a check that no dependency is missing.
func (f *fetch) writeExtra(set *wheelSet) error {
	slices.Sort(set.files)
	if err := set.complete(); err != nil {
		return err
	}
	if len(set.own.Packages) == 0 {
		return nil
	}
	text, err := json.Marshal(set.own, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return writeNew(f.next, extraName, append(text, '\n'))
}

// complete refuses a set in which a package lacks one that it depends on.
func (set *wheelSet) complete() error {
	there := map[string]lockEntry{}
	for _, file := range set.files {
		if e, ok := set.byFile[file]; ok {
			there[e.Name] = e
		}
	}
	for _, raw := range set.own.Packages {
		var e lockEntry
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		there[e.Name] = e
	}
	var lacking []string
	for _, name := range slices.Sorted(maps.Keys(there)) {
		for _, need := range there[name].Depends {
			if _, ok := there[need]; !ok {
				lacking = append(lacking, fmt.Sprintf("%s needs %s", name, set.fileFor(need)))
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return dray.Errorf(dray.CodeNotFound, "wheels are missing: %s", strings.Join(lacking, ", ")).
		WithHint("put them beside the others, and run it again")
}

// fileFor returns the file that a dependency is in, if Pyodide's lock has it.
func (set *wheelSet) fileFor(name string) string {
	for _, e := range set.byFile {
		if e.Name == name {
			return e.FileName
		}
	}
	return name
}
