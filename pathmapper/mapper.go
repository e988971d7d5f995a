package pathmapper

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/dray-dev/dray"
)

// Mapper maps paths by a fixed set of mappings. It may be used from several goroutines. The zero Mapper maps nothing.
type Mapper struct {
	// byHost and byContainer are sorted by the length of that root, longest first; mappings that tie keep their order.
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
	// Path is the clean name on the other side. Where Mapped is false it is the path as given, byte for byte.
	Path   string
	Mapped bool
	// Reason says for people why the path was not mapped; empty if it was.
	Reason string
	// atRoot says that the path is the root of its mapping, and root is that root on the host.
	atRoot bool
	root   string
}

// ToContainer gives the container's name of a host path. A path under no host root, or relative, is not mapped, which is no error. It
// fails with path_invalid for a path that has a ".." segment or NUL, or is a Windows path.
func (m *Mapper) ToContainer(p string) (PathResult, error) { return m.translate(ToContainer, p) }

// ToHost gives the host's name of a container path, as ToContainer does the other way round.
func (m *Mapper) ToHost(p string) (PathResult, error) { return m.translate(ToHost, p) }

// Paths maps a list, keeping its order: what is not mapped stands in out unchanged and again in unmapped. It fails with
// invalid_input if any path is one that ToContainer refuses, each with a pointer into {"paths": [...]}, and with invalid_request for
// an unknown direction.
func (m *Mapper) Paths(dir Direction, paths []string) (out, unmapped []string, err error) {
	if dir != ToContainer && dir != ToHost {
		return nil, nil, dray.Errorf(dray.CodeInvalidRequest, "direction %s is unknown", quote(string(dir))).
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
		return PathResult{Path: p, Reason: "it is relative, so both sides read it from their own working folder"}, nil
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

// containerOf tries the host roots from the longest on: a file that is hidden through one mount may be visible through another.
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
		return PathResult{Reason: "what is mounted at " + quote(mp.Container) + " is mapped to no folder of the host"}
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
