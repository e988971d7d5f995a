package tool

import (
	"context"
	"slices"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// project is the workspace that declares the tools of a registry. Nil is the daemon.
type project struct {
	folder  string
	trusted func(ctx context.Context) error
	daemon  *Registry
}

// Project returns a registry for the tools that a workspace declares (RT-15). folder is the
// workspace with symlinks resolved. A tool runs only while trusted returns nil, and its name must
// not resemble that of a tool of r.
func (r *Registry) Project(folder string, trusted func(ctx context.Context) error) *Registry {
	return &Registry{
		Options: r.Options, tools: map[string]*dray.Tool{},
		project: &project{folder: folder, trusted: trusted, daemon: r},
	}
}

// check fails unless the tools may run.
func (p *project) check(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.trusted(ctx)
}

// stateKey returns the key of a tool in States. Symlinks are resolved in it, so that a tool has one
// state.
func (p *project) stateKey(name string) string {
	if p == nil {
		return name
	}
	return name + "@" + p.folder
}

// resembling returns the name of a tool of the daemon that a name could be taken for, or "".
func (p *project) resembling(name string) string {
	if p == nil {
		return ""
	}
	known := p.daemon.names()
	i := slices.IndexFunc(known, func(other string) bool {
		return lexical.Normalize(other) == lexical.Normalize(name)
	})
	if i < 0 {
		return ""
	}
	return known[i]
}
