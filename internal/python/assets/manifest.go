package assets

import (
	"bytes"
	_ "embed"
	"fmt"
	"path"
	"runtime"

	"github.com/go-json-experiment/json"
)

// Manifest pins packages of the npm registry. scripts/pinpython writes it.
type Manifest struct {
	Packages []Package `json:"packages"`
}

// Package is one version of a package, and those of its files that are used.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Platform is GOOS/GOARCH of a package for one platform.
	Platform string `json:"platform,omitempty"`
	// Folder is where in the assets the files are. Empty is the top.
	Folder string `json:"folder,omitempty"`
	// URL, Size and SHA256 are those of the package itself, a compressed tar.
	URL    string `json:"url"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	Files  []File `json:"files"`
}

// File is one file of a package.
type File struct {
	Name       string `json:"name"`
	Size       int64  `json:"size"`
	SHA256     string `json:"sha256"`
	Executable bool   `json:"executable,omitempty"`
}

//go:embed manifest.json
var pinned []byte

// Pinned returns the pins of this build for this platform.
func Pinned() Manifest {
	var m Manifest
	if err := json.Unmarshal(bytes.TrimSpace(pinned), &m); err != nil {
		panic(fmt.Sprintf("read manifest.json: %v", err)) // a test reads it
	}
	return m.forPlatform(runtime.GOOS + "/" + runtime.GOARCH)
}

// forPlatform returns the pins without the packages of other platforms.
func (m Manifest) forPlatform(platform string) Manifest {
	var own Manifest
	for _, p := range m.Packages {
		if p.Platform == "" || p.Platform == platform {
			own.Packages = append(own.Packages, p)
		}
	}
	return own
}

// pin is a pinned file with its path in the assets and the package that it is from.
type pin struct {
	File
	path string
	from *Package
}

// pins returns all files in the order of the manifest.
func (m Manifest) pins() []pin {
	var all []pin
	for i := range m.Packages {
		for _, f := range m.Packages[i].Files {
			all = append(all, pin{f, path.Join(m.Packages[i].Folder, f.Name), &m.Packages[i]})
		}
	}
	return all
}

// version returns the version of the package that has a file.
func (m Manifest) version(file string) string {
	for _, p := range m.pins() {
		if p.path == file {
			return p.from.Version
		}
	}
	return ""
}
