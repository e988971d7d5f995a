package pathmapper

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/dray-dev/dray"
)

// Mapping joins the host's and the container's name of one folder.
type Mapping struct {
	Host      string `json:"host"`
	Container string `json:"container"`
}

// New makes a mapper of configured mappings. It fails with path_invalid if a root is empty, relative, "/", a Windows path, holds a
// ".." segment, NUL or bytes that are not UTF-8, or is an ancestor of the other root; the error names both roots and the fix.
func New(mappings []Mapping) (*Mapper, error) {
	m, _, err := FromMounts(nil, mappings)
	return m, err
}

// FromMounts makes a mapper of configured mappings, under the rules of New, and a container's mounts. A mount that breaks them is
// skipped with a warning. A mount without Host is a volume or a tmpfs: nothing in it has a name on the host, which needs no warning.
// What lies beneath either is never mistaken for a part of the folder that it covers.
func FromMounts(mounts []dray.Mount, configured []Mapping) (m *Mapper, warnings []string, err error) {
	m = &Mapper{}
	for _, given := range configured {
		mp, err := given.clean()
		if err != nil {
			return nil, nil, err
		}
		m.add(mp)
	}
	for _, mount := range mounts {
		if warning := m.addMount(mount); warning != "" {
			warnings = append(warnings, warning)
		}
	}
	slices.SortStableFunc(m.byHost, func(a, b Mapping) int { return cmp.Compare(len(b.Host), len(a.Host)) })
	slices.SortStableFunc(m.byContainer, func(a, b Mapping) int { return cmp.Compare(len(b.Container), len(a.Container)) })
	return m, warnings, nil
}

func (m *Mapper) add(mp Mapping) {
	if mp.Host != "" {
		m.byHost = append(m.byHost, mp)
	}
	m.byContainer = append(m.byContainer, mp)
}

func (m *Mapper) addMount(mount dray.Mount) (warning string) {
	mp, err := Mapping{Host: mount.Host, Container: mount.Container}.clean()
	if err == nil {
		m.add(mp)
		return ""
	}
	if mount.Host != "" {
		e := dray.AsError(err)
		warning = fmt.Sprintf("a mount is not used for path mapping: %s (%s)", e.Message, e.Hint)
	}
	if folder, err := cleanRoot(mount.Container); err == nil {
		m.add(Mapping{Container: folder})
	}
	return warning
}

// clean gives the mapping with clean roots, or says why it cannot be one.
func (mp Mapping) clean() (Mapping, error) {
	host, err := cleanRoot(mp.Host)
	if err != nil {
		return Mapping{}, mp.broken("the host root", err)
	}
	container, err := cleanRoot(mp.Container)
	if err != nil {
		return Mapping{}, mp.broken("the container root", err)
	}
	if err := checkDisjoint(host, container); err != nil {
		return Mapping{}, mp.broken("a root", err)
	}
	return Mapping{Host: host, Container: container}, nil
}

func (mp Mapping) broken(which string, err error) error {
	return dray.Errorf(dray.CodePathInvalid, "mapping of host %s to container %s: %s: %w", quote(mp.Host), quote(mp.Container), which, err).
		WithHint("%s", dray.AsError(err).Hint)
}

func cleanRoot(p string) (string, error) {
	if p == "" {
		return "", dray.Errorf(dray.CodePathInvalid, "it is empty").WithHint("write the folder's absolute path")
	}
	if !utf8.ValidString(p) {
		return "", dray.Errorf(dray.CodePathInvalid, "%s is not UTF-8, so JSON cannot carry it", quote(p)).WithHint("rename the folder")
	}
	cleaned, err := Clean(p)
	if err != nil {
		return "", err
	}
	if cleaned == "/" {
		return "", dray.Errorf(dray.CodePathInvalid, "%s would map every path there is", quote(p)).
			WithHint("name the folder that is shared instead of /")
	}
	return cleaned, nil
}

// checkDisjoint refuses roots of which one is a true ancestor of the other: a mapped path would again lie under the root that it came from.
func checkDisjoint(host, container string) error {
	if host == container {
		return nil
	}
	ancestor, other := host, container
	if _, ok := relativeTo(host, container); ok {
		ancestor, other = container, host
	} else if _, ok := relativeTo(container, host); !ok {
		return nil
	}
	return dray.Errorf(dray.CodePathInvalid, "%s is an ancestor of %s", quote(ancestor), quote(other)).
		WithHint("use equal roots, or roots of which neither lies under the other")
}
