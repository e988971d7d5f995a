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

// Mapper maps paths by a fixed set of mappings. It may be used from several goroutines. The zero
// Mapper maps nothing.
type Mapper struct {
	// byHost and byContainer are sorted by the length of that root, longest first; mappings that tie
	// keep their order.
	byHost []Mapping
	// byContainer also has the container's folders without a name on the host; their Host is empty.
	byContainer []Mapping
}

// Direction says whose names are asked for.
type Direction string

// The directions.
const (
	ToContainer Direction = "to_container"
	ToHost      Direction = "to_host"
)

// PathResult is what became of one path.
type PathResult struct {
	// Path is the clean name on the other side. Where Mapped is false it is the path as given, byte
	// for byte.
	Path   string
	Mapped bool
	// Reason says for people why the path was not mapped; empty if it was.
	Reason string
	// atRoot says that the path is the root of its mapping, and root is that root on the host.
	atRoot bool
	root   string
}

// ToContainer gives the container's name of a host path. A path under no host root, or relative, is
// not mapped, which is no error. It fails with path_invalid for a path that has a ".." segment or
// NUL, or is a Windows path.
func (m *Mapper) ToContainer(p string) (PathResult, error) { return m.translate(ToContainer, p) }

// ToHost gives the host's name of a container path, as ToContainer does the other way round.
func (m *Mapper) ToHost(p string) (PathResult, error) { return m.translate(ToHost, p) }

// Paths maps a list, keeping its order: what is not mapped stands in out unchanged and again in
// unmapped. It fails with invalid_input if any path is one that ToContainer refuses, each with a
// pointer into {"paths": [...]}, and with invalid_request for an unknown direction.
func (m *Mapper) Paths(dir Direction, paths []string) (out, unmapped []string, err error) {
	if dir != ToContainer && dir != ToHost {
		return nil, nil, dray.Errorf(dray.CodeInvalidRequest, "direction %s is unknown",
			quote(string(dir))).
			WithHint("use %s or %s", ToHost, ToContainer)
	}
	out, unmapped = make([]string, 0, len(paths)), []string{}
	var bad pathErrors
	for i, p := range paths {
		t, err := m.translate(dir, p)
		if err != nil {
			bad.add(fmt.Sprintf("/paths/%d", i), err)
			continue
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
		return PathResult{
			Path:   p,
			Reason: "it is relative, so both sides read it from their own working folder",
		}, nil
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

// containerOf tries the host roots from the longest on: a file that is hidden through one mount may
// be visible through another.
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
			t.Reason = "the container has something else mounted at " + quote(cover.Container)
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
		return PathResult{Reason: "what is mounted at " + quote(mp.Container) +
			" is mapped to no folder of the host"}
	}
	rest, _ := relativeTo(p, mp.Container)
	return PathResult{Path: join(mp.Host, rest), Mapped: true, atRoot: rest == "", root: mp.Host}
}

// mappingAt gives what the container shows at a clean path.
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

// roots gives the roots that paths of a direction start from.
func (m *Mapper) roots(dir Direction) []string {
	var roots []string
	for _, mp := range m.byHost {
		if dir == ToHost {
			roots = append(roots, mp.Container)
		} else {
			roots = append(roots, mp.Host)
		}
	}
	return roots
}

// unmappedReason gives the reason of a clean path that lies under no root.
func (m *Mapper) unmappedReason(dir Direction, p string) string {
	const plain = "it lies under no mapping"
	if isASCII(p) {
		return plain
	}
	composed := norm.NFC.String(p)
	for _, root := range m.roots(dir) {
		if _, ok := relativeTo(composed, norm.NFC.String(root)); ok {
			return plain + ", but would lie under " + quote(root) +
				" after Unicode normalisation (NFC): write that folder's name with the very bytes of the mapping"
		}
	}
	return plain
}

func isASCII(p string) bool {
	return strings.IndexFunc(p, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// Mapping joins the host's and the container's name of one folder.
type Mapping struct {
	Host      string `json:"host"`
	Container string `json:"container"`
}

// New makes a mapper of configured mappings. It fails with path_invalid if a root is empty,
// relative, "/", a Windows path, holds a ".." segment, NUL or bytes that are not UTF-8, or is an
// ancestor of the other root; the error names both roots and the fix.
func New(mappings []Mapping) (*Mapper, error) {
	m, _, err := FromMounts(nil, mappings)
	return m, err
}

// FromMounts makes a mapper of configured mappings, under the rules of New, and a container's
// mounts. A mount that breaks them is skipped with a warning. A mount without Host is a volume or a
// tmpfs: nothing in it has a name on the host, which needs no warning. What lies beneath either is
// never mistaken for a part of the folder that it covers.
func FromMounts(mounts []dray.Mount, configured []Mapping) (m *Mapper, warnings []string,
	err error,
) {
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
	slices.SortStableFunc(m.byHost, func(a,
		b Mapping,
	) int {
		return cmp.Compare(len(b.Host), len(a.Host))
	})
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
	return dray.Errorf(dray.CodePathInvalid, "mapping of host %s to container %s: %s: %w",
		quote(mp.Host), quote(mp.Container), which, err).
		WithHint("%s", dray.AsError(err).Hint)
}

func cleanRoot(p string) (string, error) {
	if p == "" {
		return "", dray.Errorf(dray.CodePathInvalid, "it is empty").
			WithHint("write the folder's absolute path")
	}
	if !utf8.ValidString(p) {
		return "", dray.Errorf(dray.CodePathInvalid, "%s is not UTF-8, so JSON cannot carry it",
			quote(p)).WithHint("rename the folder")
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

// checkDisjoint refuses roots of which one is a true ancestor of the other: a mapped path would
// again lie under the root that it came from.
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
