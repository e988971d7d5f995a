package python

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/python/pep508"
)

// Manifest is the packages that a session asks for. Only operation prepare changes it.
type Manifest struct {
	// Packages are sorted by name; each name occurs once.
	Packages []pep508.Requirement `json:"packages"`
	// PythonVersion is "3.N" or "3.N.P". Empty means the version of the environment's python3.
	PythonVersion string `json:"python_version,omitempty"`
}

// DefaultManifest returns the manifest of a new session (PY-14).
func DefaultManifest() Manifest {
	return Manifest{Packages: []pep508.Requirement{{Name: "numpy"}}}
}

// Names returns the requirements in their normal form.
func (m Manifest) Names() []string {
	names := make([]string, 0, len(m.Packages))
	for _, r := range m.Packages {
		names = append(names, r.String())
	}
	return names
}

// Equal reports whether two manifests ask for the same.
func (m Manifest) Equal(other Manifest) bool {
	return m.PythonVersion == other.PythonVersion && slices.Equal(m.Names(), other.Names())
}

// apply returns the manifest as a request changes it. The receiver does not change.
func (m Manifest) apply(req PrepareRequest) Manifest {
	switch req.Action {
	case ActionSet:
		return Manifest{PythonVersion: req.PythonVersion}.with(req.Packages)
	case ActionRemove:
		return m.without(req)
	default:
		next := m.with(req.Packages)
		if req.PythonVersion != "" {
			next.PythonVersion = req.PythonVersion
		}
		return next
	}
}

// with returns the manifest with more packages. A requirement replaces the one of the same name.
func (m Manifest) with(packages []pep508.Requirement) Manifest {
	next := Manifest{PythonVersion: m.PythonVersion, Packages: slices.Clone(packages)}
	for _, old := range m.Packages {
		if !hasPackage(packages, old.Name) {
			next.Packages = append(next.Packages, old)
		}
	}
	slices.SortFunc(next.Packages, func(a, b pep508.Requirement) int {
		return strings.Compare(a.Name, b.Name)
	})
	return next
}

func (m Manifest) without(req PrepareRequest) Manifest {
	next := Manifest{PythonVersion: m.PythonVersion}
	for _, old := range m.Packages {
		if !hasPackage(req.Packages, old.Name) {
			next.Packages = append(next.Packages, old)
		}
	}
	if req.PythonVersion == m.PythonVersion {
		next.PythonVersion = ""
	}
	return next
}

func hasPackage(packages []pep508.Requirement, name string) bool {
	return slices.ContainsFunc(packages, func(r pep508.Requirement) bool { return r.Name == name })
}

// satisfiedBy reports whether installed packages, versions by normalized name, certainly satisfy
// the manifest.
func (m Manifest) satisfiedBy(installed map[string]string) bool {
	return !slices.ContainsFunc(m.Packages, func(r pep508.Requirement) bool {
		version, ok := installed[r.Name]
		return !ok || !r.SatisfiedBy(version)
	})
}

// key returns the name of the virtual environments that are made for the manifest under a policy.
func (m Manifest) key(policy PreparePolicy) string {
	h := sha256.New()
	fmt.Fprintf(h, "1\n%q\n%q\n%t\n%q\n",
		m.Names(), m.PythonVersion, policy.SourceBuilds, policy.Index)
	return hex.EncodeToString(h.Sum(nil))[:24]
}
