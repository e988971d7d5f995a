package pathmapper

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/dray-dev/dray"
)

// Mapper maps paths by a fixed set of mappings. It is safe for concurrent use. The zero Mapper maps
// nothing.
type Mapper struct {
	// byHost and byContainer are sorted by the length of that root, longest first; mappings that tie
	// keep their order.
	byHost []Mapping
	// byContainer also has container directories without a host path; their Host is empty.
	byContainer []Mapping
}

// Direction is the side that paths are mapped to.
type Direction string

// The directions.
const (
	ToContainer Direction = "to_container"
	ToHost      Direction = "to_host"
)

// PathResult is the result of mapping one path.
type PathResult struct {
	// Path is the clean path on the other side, or the unchanged path if Mapped is false.
	Path   string
	Mapped bool
	// Reason explains why the path was not mapped; empty if it was.
	Reason string
	// atRoot reports whether the path is the root of its mapping; root is the host root.
	atRoot bool
	root   string
}

// ToContainer returns the container path of a host path. A path under no host root and a relative
// path are not mapped, without an error. ToContainer fails with path_invalid for a path with a ".."
// segment or NUL, and for a Windows path.
func (m *Mapper) ToContainer(p string) (PathResult, error) { return m.translate(ToContainer, p) }

// ToHost returns the host path of a container path, with the rules of ToContainer.
func (m *Mapper) ToHost(p string) (PathResult, error) { return m.translate(ToHost, p) }

// CheckHostPath returns an error if the host path name must not be returned, where root is the host
// root of its mapping. Nil accepts all.
type CheckHostPath func(root, name string) error

// check applies c to the result of mapping a path to the host.
func (c CheckHostPath) check(t PathResult) error {
	if c == nil || !t.Mapped {
		return nil
	}
	return c(t.root, t.Path)
}

// Paths maps a list and preserves its order. Unmapped paths are unchanged in out and repeated in
// unmapped, as are those whose host path check refuses. Paths fails with invalid_input if
// ToContainer refuses any of them, each with a pointer into {"paths": [...]}, and with
// invalid_request for an unknown direction.
func (m *Mapper) Paths(dir Direction, paths []string, check CheckHostPath,
) (out, unmapped []string, err error) {
	if dir != ToContainer && dir != ToHost {
		return nil, nil, dray.Errorf(dray.CodeInvalidRequest, "direction %s is unknown",
			quote(string(dir))).WithHint("use %s or %s", ToHost, ToContainer)
	}
	out, unmapped = make([]string, 0, len(paths)), []string{}
	var bad pathErrors
	for i, p := range paths {
		t, err := m.translate(dir, p)
		if err != nil {
			bad.add(fmt.Sprintf("/paths/%d", i), err)
			continue
		}
		if dir == ToHost && check.check(t) != nil {
			t = PathResult{Path: p}
		}
		out = append(out, t.Path)
		if !t.Mapped {
			unmapped = append(unmapped, p)
		}
	}
	if err := bad.asError(dray.CodeInvalidInput); err != nil {
		return nil, nil, err
	}
	return out, unmapped, nil
}

func (m *Mapper) translate(dir Direction, p string) (PathResult, error) {
	if err := invalidPathError(p); err != nil {
		return PathResult{}, err
	}
	switch {
	case p == "":
		return PathResult{Reason: "it is empty"}, nil
	case p[0] != '/':
		return PathResult{Path: p, Reason: "it is relative to the working directory"}, nil
	}
	find := m.containerOf
	if dir == ToHost {
		find = m.hostOf
	}
	cleaned := clean(p)
	t := find(cleaned)
	if !t.Mapped {
		t.Path = p
		if t.Reason == "" {
			t.Reason = m.unmappedReason(dir, cleaned)
		}
	}
	return t, nil
}

// containerOf tries the host roots, longest first: a file that one mount hides may be visible
// through another.
func (m *Mapper) containerOf(p string) PathResult {
	var t PathResult
	for _, mp := range m.byHost {
		rest, ok := relativeTo(p, mp.Host)
		if !ok {
			continue
		}
		to := join(mp.Container, rest)
		cover, _ := m.mappingAt(to)
		if len(cover.Container) == len(mp.Container) {
			return PathResult{Path: to, Mapped: true, atRoot: rest == ""}
		}
		if t.Reason == "" {
			t.Reason = "the container has another mount at " + quote(cover.Container)
		}
	}
	return t
}

func (m *Mapper) hostOf(p string) PathResult {
	mp, ok := m.mappingAt(p)
	switch {
	case !ok:
		return PathResult{}
	case mp.Host == "":
		return PathResult{Reason: "the mount at " + quote(mp.Container) + " has no host directory"}
	}
	rest, _ := relativeTo(p, mp.Container)
	return PathResult{Path: join(mp.Host, rest), Mapped: true, atRoot: rest == "", root: mp.Host}
}

// mappingAt returns the mapping of a clean container path.
func (m *Mapper) mappingAt(p string) (Mapping, bool) {
	i := slices.IndexFunc(m.byContainer, func(mp Mapping) bool {
		_, ok := relativeTo(p, mp.Container)
		return ok
	})
	if i < 0 {
		return Mapping{}, false
	}
	return m.byContainer[i], true
}

// unmappedReason returns the reason for a clean path under no root.
func (m *Mapper) unmappedReason(dir Direction, p string) string {
	const plain = "it is under no mapping"
	if strings.IndexFunc(p, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return plain
	}
	composed := norm.NFC.String(p)
	for _, mp := range m.byHost {
		root := mp.Host
		if dir == ToHost {
			root = mp.Container
		}
		if _, ok := relativeTo(composed, norm.NFC.String(root)); ok {
			return plain + ", but would be under " + quote(root) +
				" after Unicode normalization (NFC): use the bytes of the mapping"
		}
	}
	return plain
}

// Mapping is the host path and the container path of one directory.
type Mapping struct {
	Host      string `json:"host"`
	Container string `json:"container"`
}

// New returns a mapper of configured mappings. It fails with path_invalid if a root is empty,
// relative, "/", a Windows path, contains a ".." segment, NUL or invalid UTF-8, or is an ancestor
// of the other root.
func New(mappings []Mapping) (*Mapper, error) {
	m, _, err := FromMounts(nil, mappings)
	return m, err
}

// FromMounts returns a mapper of configured mappings, with the rules of New, and a container's
// mounts. A mount that violates the rules is skipped with a warning. A mount without Host is a
// volume or a tmpfs, which has no host path and needs no warning. Paths beneath either are never
// mapped as a part of the directory that it covers.
func FromMounts(mounts []dray.Mount, configured []Mapping) (*Mapper, []string, error) {
	m := &Mapper{}
	var warnings []string
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
	slices.SortStableFunc(m.byHost,
		func(a, b Mapping) int { return cmp.Compare(len(b.Host), len(a.Host)) })
	slices.SortStableFunc(m.byContainer,
		func(a, b Mapping) int { return cmp.Compare(len(b.Container), len(a.Container)) })
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
	if dir, err := cleanRoot(mount.Container); err == nil {
		m.add(Mapping{Container: dir})
	}
	return warning
}

// clean returns the mapping with clean roots, or an error if it is invalid.
func (mp Mapping) clean() (Mapping, error) {
	host, err := cleanRoot(mp.Host)
	if err != nil {
		return Mapping{}, mp.invalid("the host root", err)
	}
	container, err := cleanRoot(mp.Container)
	if err != nil {
		return Mapping{}, mp.invalid("the container root", err)
	}
	if err := checkDisjoint(host, container); err != nil {
		return Mapping{}, mp.invalid("a root", err)
	}
	return Mapping{Host: host, Container: container}, nil
}

func (mp Mapping) invalid(which string, err error) error {
	return dray.Errorf(dray.CodePathInvalid, "mapping of host %s to container %s: %s: %w",
		quote(mp.Host), quote(mp.Container), which, err).
		WithHint("%s", dray.AsError(err).Hint)
}

func cleanRoot(p string) (string, error) {
	if p == "" {
		return "", dray.Errorf(dray.CodePathInvalid, "it is empty").
			WithHint("write the absolute path of the directory")
	}
	if !utf8.ValidString(p) {
		return "", dray.Errorf(dray.CodePathInvalid, "%s is not UTF-8, which JSON requires", quote(p)).
			WithHint("rename the directory")
	}
	cleaned, err := Clean(p)
	if err != nil {
		return "", err
	}
	if cleaned == "/" {
		return "", dray.Errorf(dray.CodePathInvalid, "%s would map every path", quote(p)).
			WithHint("use the shared directory instead of /")
	}
	return cleaned, nil
}

// checkDisjoint refuses roots of which one is a proper ancestor of the other: a mapped path would
// still be under its original root.
func checkDisjoint(host, container string) error {
	for range 2 {
		if rest, ok := relativeTo(container, host); ok && rest != "" {
			return dray.Errorf(dray.CodePathInvalid, "%s is an ancestor of %s", quote(host),
				quote(container)).
				WithHint("use equal roots, or roots that do not contain each other")
		}
		host, container = container, host
	}
	return nil
}
