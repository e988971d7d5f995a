package transfer

import (
	"cmp"
	"path"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// source is one file or folder that is to be moved.
type source struct {
	// input is what the caller wrote, shown the name under which it is reported: the caller's own.
	input, display string
	// path is its absolute name on the side that it comes from, root the folder that it is opened
	// beneath, and name the way from there.
	path, root, name string
	// target is its name beneath the folder that it goes to; "." is that folder.
	target string
	// order is its place among those that the caller named.
	order int
}

// at gives what an entry of the source is called on the side that it comes from, in the caller's
// terms, and where it lands. rest is the way from the source to the entry, "." for the source
// itself.
func (s source) at(rest string) (from, shown, lands string) {
	return path.Join(s.path, rest), path.Join(s.display, rest), path.Join(s.target, rest)
}

// findSources finds the sources of a call in a container (SY-02). What may not be taken is refused.
func (j *syncJob) findSources(given []string) {
	roots := append(j.paths.roots(j.s.cfg.Sources), j.paths.configuredDirs(j.s.cfg.Root)...)
	for i, g := range given {
		src, err := j.source(g, roots)
		if err != nil {
			j.refuse(g, err)
			continue
		}
		src.order = i
		j.sources = append(j.sources, src)
	}
}

func (j *syncJob) source(given string, roots []string) (source, error) {
	p, err := j.paths.inContainer(given)
	if err != nil {
		return source{}, err
	}
	root, name, ok := nearest(p, roots)
	if !ok {
		return source{}, dray.Errorf(dray.CodeDenied, "%s is not in a folder that files may come from",
			quote(given)).
			WithHint("they come from the workspace folder, bind mounts, /tmp, and the folders of sandbox.sources")
	}
	src := source{input: given, display: path.Clean(given), path: p, root: root, name: name}
	if !path.IsAbs(given) {
		src.display = j.paths.display(p)
	}
	src.target, err = j.landing(p)
	return src, err
}

// landing gives where a source lands beneath the sandbox root.
func (j *syncJob) landing(p string) (string, error) {
	if j.req.Destination == "" {
		if lands, ok := j.paths.configured(p, j.s.cfg.Root); ok {
			return lands, nil
		}
	}
	if j.declared {
		return path.Join(j.req.ID, j.paths.relToWorkspace(p)), nil
	}
	if p == "/" {
		return "", invalid("the whole file system has no name to land at").WithHint("name folders in it")
	}
	return path.Join(j.destination, path.Base(p)), nil
}

// dedupe drops the sources that come with another, and refuses those that would land where another
// does, or within it.
func (j *syncJob) dedupe() {
	var kept []source
	for _, s := range slices.SortedStableFunc(slices.Values(j.sources),
		func(a, b source) int { return cmp.Compare(a.target, b.target) }) {
		i := slices.IndexFunc(kept,
			func(k source) bool { _, in := lexical.Rel(k.target, s.target); return in })
		if i < 0 {
			kept = append(kept, s)
			continue
		}
		rest, _ := lexical.Rel(kept[i].target, s.target)
		if path.Join(kept[i].path, rest) != s.path {
			j.refuse(s.input, invalid("%s would land where %s does", quote(s.input), quote(kept[i].input)).
				WithHint("bring them home one at a time, each to a destination of its own"))
		}
	}
	slices.SortFunc(kept, func(a, b source) int { return cmp.Compare(a.order, b.order) })
	j.sources = kept
}

// sourceGroup are sources beneath one folder, none of which lies in another.
type sourceGroup struct {
	root    string
	sources []source
}

// groups puts the sources together that are opened beneath the same folder.
func groups(sources []source) []sourceGroup {
	var all []sourceGroup
	for _, s := range sources {
		i := slices.IndexFunc(all, func(g sourceGroup) bool { return g.root == s.root && g.accepts(s) })
		if i < 0 {
			all = append(all, sourceGroup{root: s.root, sources: []source{s}})
			continue
		}
		all[i].sources = append(all[i].sources, s)
	}
	return all
}

func (g sourceGroup) accepts(s source) bool {
	return !slices.ContainsFunc(g.sources, func(o source) bool {
		_, in := lexical.Rel(o.path, s.path)
		_, around := lexical.Rel(s.path, o.path)
		return in || around
	})
}

// of gives the source that an entry belongs to, and the way from there to it.
func (g sourceGroup) of(name string) (s source, rest string, ok bool) {
	for _, s := range g.sources {
		if rest, ok := lexical.Rel(s.name, name); ok {
			return s, rest, true
		}
	}
	return source{}, "", false
}

func (g sourceGroup) names() []string {
	names := make([]string, len(g.sources))
	for i, s := range g.sources {
		names[i] = s.name
	}
	return names
}
