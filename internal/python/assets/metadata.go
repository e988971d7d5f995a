package assets

import (
	"archive/zip"
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/textproto"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray/internal/python/pep508"
)

// maxMetadata bounds the metadata of a wheel in bytes, maxWheelMembers its files.
const (
	maxMetadata     = 1 << 20
	maxWheelMembers = 50_000
)

// raw returns the entry as Pyodide reads it.
func (e lockEntry) raw() (jsontext.Value, error) {
	return json.Marshal(struct {
		lockEntry
		InstallDir string `json:"install_dir"`
		Type       string `json:"package_type"`
		Tests      bool   `json:"unvendored_tests"`
	}{e, "site", "package", false}, json.Deterministic(true))
}

// readWheel returns the entry of a wheel from its own metadata. A compiled wheel must be for the
// platform abi.
func readWheel(file, abi string) (lockEntry, error) {
	e := lockEntry{FileName: filepath.Base(file)}
	if !strings.HasSuffix(e.FileName, "-none-any.whl") &&
		!strings.HasSuffix(e.FileName, "-"+abi+".whl") {
		return e, errors.New("it is for another platform")
	}
	z, err := zip.OpenReader(file)
	if err != nil {
		return e, err
	}
	defer func() { _ = z.Close() }()
	if len(z.File) > maxWheelMembers {
		return e, fmt.Errorf("it has more than %d files", maxWheelMembers)
	}
	if err := e.readMetadata(&z.Reader); err != nil {
		return e, err
	}
	e.Imports = importsOf(&z.Reader)
	return e, nil
}

// readMetadata reads name, version and dependencies.
func (e *lockEntry) readMetadata(z *zip.Reader) error {
	at := slices.IndexFunc(z.File, func(f *zip.File) bool {
		dir, name := path.Split(f.Name)
		return name == "METADATA" && strings.Count(dir, "/") == 1 && strings.HasSuffix(dir, ".dist-info/")
	})
	if at < 0 {
		return errors.New("it has no METADATA")
	}
	in, err := z.File[at].Open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	head, err := textproto.NewReader(bufio.NewReader(io.LimitReader(in, maxMetadata))).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read METADATA: %w", err)
	}
	e.Name, e.Version = pep508.NormalizeName(head.Get("Name")), head.Get("Version")
	if e.Name == "" || e.Version == "" {
		return errors.New("its METADATA has no name or no version")
	}
	e.Depends = dependsOf(head["Requires-Dist"])
	return nil
}

var requirementName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*`)

// dependsOf returns the packages that a package always needs. Requirements with a marker are left
// out: most are for an extra, another system or another Python.
func dependsOf(requirements []string) []string {
	all := map[string]bool{}
	for _, r := range requirements {
		if !strings.Contains(r, ";") {
			all[pep508.NormalizeName(requirementName.FindString(r))] = true
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(all))...)
}

// importsOf returns the modules and packages at the top of a wheel.
func importsOf(z *zip.Reader) []string {
	all := map[string]bool{}
	for _, f := range z.File {
		top, rest, below := strings.Cut(f.Name, "/")
		switch {
		case below && rest != "" && isIdentifier(top):
			all[top] = true
		case !below && strings.HasSuffix(top, ".py") && isIdentifier(strings.TrimSuffix(top, ".py")):
			all[strings.TrimSuffix(top, ".py")] = true
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(all))...)
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isIdentifier(s string) bool { return identifier.MatchString(s) }

// writeNew writes a new small file and syncs it.
func writeNew(into *os.Root, name string, data []byte) error {
	f, err := into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close())
}
