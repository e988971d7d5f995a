package python

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python/assets"
	"github.com/dray-dev/dray/internal/python/pep508"
)

// packagesName is the index of the packages in the prepared folder, for source/packages.py.
const packagesName = "packages.json"

// preloadKey is the configuration of PyodideConfig.Preload.
const preloadKey = "python.pyodide.preload"

// indexedPackage is a package of the index.
type indexedPackage struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	File    string   `json:"file"`
	Imports []string `json:"imports"`
	Depends []string `json:"depends"`
	// Dynlib says that the file has shared libraries that other packages need, and is not a wheel.
	Dynlib bool `json:"dynlib"`
}

// packageIndex returns the index of the packages of a lock ([assets.Assets]), sorted by name.
func packageIndex(lock []byte) ([]byte, error) {
	var parsed struct {
		Packages map[string]struct {
			Name       string   `json:"name"`
			Version    string   `json:"version"`
			FileName   string   `json:"file_name"`
			Imports    []string `json:"imports"`
			Depends    []string `json:"depends"`
			InstallDir string   `json:"install_dir"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(lock, &parsed); err != nil {
		return nil, fmt.Errorf("read the lock of the packages: %w", err)
	}
	index := []indexedPackage{}
	for _, key := range slices.Sorted(maps.Keys(parsed.Packages)) {
		p := parsed.Packages[key]
		index = append(index, indexedPackage{
			p.Name, p.Version, p.FileName, append([]string{}, p.Imports...),
			append([]string{}, p.Depends...), p.InstallDir == "dynlib",
		})
	}
	return json.Marshal(index)
}

// CheckPreload fails with helper_missing if one of the packages of python.pyodide.preload is not in
// the asset folder, and lists those that are.
func CheckPreload(names []string, there []assets.Wheel) error {
	var have, lacking []string
	for _, wheel := range there {
		have = append(have, pep508.NormalizeName(wheel.Name))
	}
	for _, name := range names {
		if !slices.Contains(have, pep508.NormalizeName(name)) {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return dray.Errorf(dray.CodeHelperMissing,
		"%s has packages that are not in the asset folder: %s; those that are: %s",
		preloadKey, strings.Join(lacking, ", "), listOf(have)).
		WithHint("add their wheels with `dray python fetch --from DIR`, or correct %s", preloadKey)
}

// maxListedPackages is the maximum number of packages in an error.
const maxListedPackages = 40

func listOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	more := ""
	if n := len(names) - maxListedPackages; n > 0 {
		names, more = names[:maxListedPackages], fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ") + more
}
