package assets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/dray-dev/dray"
)

// packages copies, unpacks or downloads the pinned files of all packages into the next folder.
func (f *fetch) packages(ctx context.Context) error {
	var missing []*Package
	for i := range f.store.pins.Packages {
		pkg := &f.store.pins.Packages[i]
		if f.store.deno != "" && pkg.Files[0].Name == denoName {
			continue
		}
		found, err := f.fromFiles(ctx, pkg)
		if err == nil && !found {
			found, err = f.fromTarballs(ctx, pkg)
		}
		if err != nil {
			return err
		}
		if !found {
			missing = append(missing, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if f.opts.From != "" {
		return f.incomplete(missing)
	}
	return f.downloadAll(ctx, missing)
}

// incomplete returns the error for packages that opts.From lacks.
func (f *fetch) incomplete(missing []*Package) error {
	if f.differs != nil {
		return f.differs
	}
	var lines []string
	for _, pkg := range missing {
		lines = append(lines, fmt.Sprintf("%s (sha256 %s)", path.Base(pkg.URL), pkg.SHA256))
	}
	return dray.Errorf(dray.CodeNotFound, "%s has neither the package nor the files of: %s",
		f.opts.From, strings.Join(lines, ", ")).
		WithHint("where there is a network: npm pack %s; or run `dray python fetch` first",
			strings.Join(specs(missing), " "))
}

// specs returns the packages as npm writes them: name@version.
func specs(packages []*Package) []string {
	var all []string
	for _, p := range packages {
		all = append(all, p.Name+"@"+p.Version)
	}
	return all
}

// fromFiles copies the files of a package from the asset folder or from opts.From. It reports false
// and copies none unless all are there and match their pins.
func (f *fetch) fromFiles(ctx context.Context, pkg *Package) (bool, error) {
	for i, file := range pkg.Files {
		name := path.Join(pkg.Folder, file.Name)
		found, err := f.copyFirst(ctx, name, pin{file, name, pkg}, f.places(pkg, file))
		if err != nil {
			return false, err
		}
		if !found {
			return false, f.removeFiles(pkg, pkg.Files[:i])
		}
	}
	return true, nil
}

// places returns the paths where a file of a package may be: in an asset folder, in node_modules,
// in an unpacked package, or at the top.
func (f *fetch) places(pkg *Package, file File) []string {
	all := []string{filepath.Join(f.dir, pkg.Folder, file.Name)}
	if f.opts.From == "" {
		return all
	}
	for _, dir := range []string{
		pkg.Folder, path.Join("node_modules", pkg.Name), pkg.Name, "package", ".",
	} {
		all = append(all, filepath.Join(f.opts.From, dir, file.Name))
	}
	return all
}

// copyFirst copies the file from the first of the places that has its content.
func (f *fetch) copyFirst(ctx context.Context, name string, want pin, places []string,
) (bool, error) {
	for i, place := range places {
		found, err := f.copyFile(ctx, name, want.File, place)
		if found || err != nil {
			return found, err
		}
		if i > 0 {
			err = f.noteOther(ctx, want, place)
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// noteOther keeps, for the error, the first file of opts.From that has the name of a pinned file
// and not its content.
func (f *fetch) noteOther(ctx context.Context, want pin, place string) error {
	sum, _, err := fileDigest(ctx, place)
	if err != nil || f.differs != nil {
		return context.Cause(ctx) // whatever it is, it is not the pinned file
	}
	f.differs = &Problem{
		Kind: Mismatch, File: place, Expected: "sha256 " + want.SHA256, Got: "sha256 " + sum,
		Source: want.from.Name + " " + want.from.Version,
		Fix:    "bring this version: npm pack " + specs([]*Package{want.from})[0],
	}
	return nil
}

// copyFile copies a file. It reports false if the file is missing or has another content.
func (f *fetch) copyFile(ctx context.Context, name string, want File, from string) (bool, error) {
	in, err := openSource(from)
	if err != nil {
		return false, nil
	}
	defer func() { _ = in.Close() }()
	if info, err := in.Stat(); err != nil || want.Size > 0 && info.Size() != want.Size {
		return false, err
	}
	err = writeFile(ctx, f.next, name, want, in)
	if errors.Is(err, errOther) {
		return false, f.next.Remove(name)
	}
	return err == nil, err
}

func (f *fetch) removeFiles(pkg *Package, files []File) error {
	var errs []error
	for _, file := range files {
		errs = append(errs, f.next.Remove(path.Join(pkg.Folder, file.Name)))
	}
	return errors.Join(errs...)
}

// fromTarballs unpacks a package from a .tgz file of opts.From with any name.
func (f *fetch) fromTarballs(ctx context.Context, pkg *Package) (bool, error) {
	if f.opts.From == "" {
		return false, nil
	}
	all, err := filepath.Glob(filepath.Join(escapeGlob(f.opts.From), "*.tgz"))
	if err != nil {
		return false, err
	}
	for _, name := range all {
		found, err := f.fromTarball(ctx, pkg, name)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// escapeGlob returns a pattern that matches only the name.
func escapeGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

func (f *fetch) fromTarball(ctx context.Context, pkg *Package, name string) (bool, error) {
	in, err := openSource(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() != pkg.Size && !isNamed(pkg, name) {
		return false, nil
	}
	whole := File{Name: filepath.Base(name), Size: pkg.Size, SHA256: pkg.SHA256}
	if sum, err := digestOf(ctx, in, info.Size()); err != nil || sum != pkg.SHA256 {
		if isNamed(pkg, name) {
			err = errors.Join(err, f.noteOther(ctx, pin{whole, whole.Name, pkg}, name))
		}
		return false, err
	}
	if _, err := in.Seek(0, 0); err != nil {
		return false, err
	}
	return true, unpack(ctx, in, pkg, f.next)
}

// isNamed reports whether a file has the name that the registry or npm gives the package.
func isNamed(pkg *Package, file string) bool {
	base := filepath.Base(file)
	packed := strings.ReplaceAll(strings.TrimPrefix(pkg.Name, "@"), "/", "-") + "-" + pkg.Version
	return base == path.Base(pkg.URL) || base == packed+".tgz"
}

// downloadAll downloads packages and unpacks them.
func (f *fetch) downloadAll(ctx context.Context, packages []*Package) error {
	plan := Plan{Dir: f.dir, Packages: specs(packages)}
	var files []*os.File
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	for _, pkg := range packages {
		file, err := os.OpenFile(filepath.Join(f.work, pkg.SHA256+".partial"),
			os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		files = append(files, file)
		info, err := file.Stat()
		if err != nil {
			return err
		}
		plan.Bytes += max(pkg.Size-info.Size(), 0)
		f.total += pkg.Size
	}
	f.opts.Plan(plan)
	for i, pkg := range packages {
		if err := f.download(ctx, pkg, files[i]); err != nil {
			return err
		}
		f.done += pkg.Size
	}
	f.downloaded = plan.Bytes
	return nil
}

func (f *fetch) download(ctx context.Context, pkg *Package, file *os.File) error {
	err := f.opts.downloader.download(ctx, pkg, file, func(done int64, waiting string) {
		f.opts.Progress(Progress{specs([]*Package{pkg})[0], f.done + done, f.total, waiting})
	})
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, 0); err != nil {
		return err
	}
	return unpack(ctx, file, pkg, f.next)
}
