package assets

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray/internal/python/pep508"
)

// lockFile is a pyodide-lock.json. Its packages are kept as text.
type lockFile struct {
	Info     jsontext.Value            `json:"info,omitzero"`
	Packages map[string]jsontext.Value `json:"packages"`
}

// lockEntry is the part of a package of a lock that dray uses.
type lockEntry struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	FileName string   `json:"file_name"`
	SHA256   string   `json:"sha256"`
	Imports  []string `json:"imports"`
	Depends  []string `json:"depends"`
	// Size is only in extra-lock.json.
	Size int64 `json:"size,omitzero"`
}

// locks is the lock of Pyodide merged with the operator's, for the files that are there.
type locks struct {
	text   []byte
	python string
	wheels []Wheel
	files  []wheelFile
}

// wheelFile is a wheel that must have the content of its lock.
type wheelFile struct {
	File
	source string
}

// readExtra returns the operator's lock, or nil if there is none.
func readExtra(name string) ([]byte, error) {
	data, err := readSmall(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// mergeLocks returns the packages of both locks whose files are among the names in there. A package
// of the operator replaces one of Pyodide. All of the operator's must be there.
func mergeLocks(pinned, extra []byte, there []string) (*locks, error) {
	main, err := parseLock(pinned)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", lockPath, err)
	}
	made := &locks{}
	merged := lockFile{Info: main.Info, Packages: map[string]jsontext.Value{}}
	var info struct {
		Python string `json:"python"`
	}
	if err := json.Unmarshal(main.Info, &info); err != nil {
		return nil, fmt.Errorf("read %s: %w", lockPath, err)
	}
	made.python = info.Python
	if err := made.add(&merged, main, there, "Pyodide's lock"); err != nil {
		return nil, err
	}
	if extra != nil {
		own, err := parseLock(extra)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", extraName, err)
		}
		if err := made.add(&merged, own, there, extraName); err != nil {
			return nil, err
		}
	}
	made.text, err = json.Marshal(merged, json.Deterministic(true))
	return made, err
}

func parseLock(data []byte) (lockFile, error) {
	var l lockFile
	err := json.Unmarshal(data, &l)
	return l, err
}

// add adds the packages of one lock.
func (l *locks) add(merged *lockFile, from lockFile, there []string, source string) error {
	for _, key := range slices.Sorted(maps.Keys(from.Packages)) {
		var e lockEntry
		if err := json.Unmarshal(from.Packages[key], &e); err != nil {
			return fmt.Errorf("read package %s of %s: %w", key, source, err)
		}
		if err := e.check(); err != nil {
			return fmt.Errorf("read package %s of %s: %w", key, source, err)
		}
		if _, found := slices.BinarySearch(there, e.FileName); !found && source != extraName {
			continue
		}
		l.remove(e.Name)
		merged.Packages[key] = from.Packages[key]
		l.wheels = append(l.wheels, Wheel{e.Name, e.Version, e.Imports, e.Depends, e.FileName})
		l.files = append(l.files, wheelFile{
			File{Name: e.FileName, Size: e.Size, SHA256: e.SHA256},
			fmt.Sprintf("package %s %s of %s", e.Name, e.Version, source),
		})
	}
	slices.SortFunc(l.wheels, func(a, b Wheel) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func (l *locks) remove(name string) {
	name = pep508.NormalizeName(name)
	l.wheels = slices.DeleteFunc(l.wheels, func(w Wheel) bool {
		return pep508.NormalizeName(w.Name) == name
	})
}

// check refuses an entry whose file is not one name in the folder.
func (e lockEntry) check() error {
	sum, err := hex.DecodeString(e.SHA256)
	switch {
	case e.Name == "":
		return errors.New("it has no name")
	case e.FileName == "" || path.Base(e.FileName) != e.FileName || strings.HasPrefix(e.FileName, "."):
		return fmt.Errorf("its file %q is not a file name", e.FileName)
	case err != nil || len(sum) != 32 || strings.ToLower(e.SHA256) != e.SHA256:
		return fmt.Errorf("its checksum %q is not a SHA-256", e.SHA256)
	default:
		return nil
	}
}
