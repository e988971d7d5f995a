package transfer

import (
	"path"
	"slices"
	"sync"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// Declaration has the declared outputs of a running call. If two calls that run at the same time
// declare the same path, or one inside the other, it is not known which of them wrote a file there,
// and neither gets it. Each call has a directory of its own in DRAY_RESULTS.
type Declaration struct {
	all       *declarations
	container string   // id; empty for the host
	paths     []string // in the environment, absolute

	shared map[string]bool // of paths; guarded by all.mu
}

// declarations are those of all running calls.
type declarations struct {
	mu      sync.Mutex
	running []*Declaration
}

// Declare registers the declared outputs of a call that is about to start. The caller calls End
// when they were fetched. Invalid paths are left to FetchDeclared.
func (s *Syncer) Declare(env dray.Environment, req Request) *Declaration {
	caps := env.Capabilities()
	d := &Declaration{all: &s.declared, shared: map[string]bool{}}
	if caps.Container != nil {
		d.container = caps.Container.ID
	}
	if paths, err := newPathResolver(caps, req); err == nil {
		for _, input := range req.Paths {
			if p, err := paths.inContainer(input); err == nil {
				d.paths = append(d.paths, p)
			}
		}
	}
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	for _, other := range d.all.running {
		if other.container == d.container {
			d.markShared(other)
			other.markShared(d)
		}
	}
	d.all.running = append(d.all.running, d)
	return d
}

// markShared marks the paths that another call declares too.
func (d *Declaration) markShared(other *Declaration) {
	for _, p := range d.paths {
		for _, o := range other.paths {
			if lexical.Contains(p, o) || lexical.Contains(o, p) {
				d.shared[p] = true
			}
		}
	}
}

func (d *Declaration) isShared(p string) bool {
	if d == nil {
		return false
	}
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	return d.shared[p]
}

// End removes the declaration: calls that start later share nothing with it.
func (d *Declaration) End() {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	d.all.running = slices.DeleteFunc(d.all.running, func(o *Declaration) bool { return o == d })
}

// refuseShared refuses the sources that another call declared while this one ran.
func (j *syncJob) refuseShared() {
	j.sources = slices.DeleteFunc(j.sources, func(s source) bool {
		shared := j.req.Declaration.isShared(s.path)
		if shared {
			j.refuse(s.display, dray.Errorf(dray.CodeConflict,
				"another call that ran at the same time declares %s too, so its files may be of either",
				quote(s.display)).
				WithHint("write result files to the directory in DRAY_RESULTS, which each call has for itself"))
		}
		return shared
	})
}

// addResultsDir adds the directory in DRAY_RESULTS to the sources. Its files are copied even if the
// host sees them through a mount, because it is removed afterwards.
func (j *syncJob) addResultsDir() {
	dir := j.req.ResultsDir
	if dir == "" {
		return
	}
	j.sources = append(j.sources, source{
		input: dir, display: dir, path: dir, root: path.Dir(dir), name: path.Base(dir),
		target: path.Join(j.req.ID, resultsTarget), order: len(j.req.Paths),
	})
}

// resultsTarget is the directory of the files of DRAY_RESULTS, in that of the invocation.
const resultsTarget = "results"

// refuseInTree adds an entry that was refused when a tree was read. A source that does not exist is
// missing too.
func (j *syncJob) refuseInTree(e entry, display string, why *dray.Error) {
	if e.relPath == "." && why.Code == dray.CodeNotFound {
		j.addMissing(e.source)
	}
	j.refuseEntry(e.source, display, why)
}

// addMissing adds a declared output that does not exist.
func (j *syncJob) addMissing(s source) {
	if j.declared && len(j.missing) < maxMissing {
		j.missing = append(j.missing, dray.PrintablePath(s.display))
	}
}

// maxMissing bounds the missing outputs in a report. It is more than a call can declare.
const maxMissing = 1000
