package policy

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// outsideMounts stands for a path of the container that is no path of the host.
const outsideMounts = "\x00container"

// Directory returns the working directory of a call as its caller named it, else the workspace. It
// is empty if there is neither.
func Directory(call dray.Call) string {
	inv := call.Invocation
	dir := inv.Cwd
	if call.Tool.InWorkspace {
		dir = ""
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(cmp.Or(call.Route.Workspace, inv.Workspace), dir)
	}
	return dir
}

// RealPath returns a path of the host without symlinks, empty for a relative one, and if the file
// system does not answer in time.
func RealPath(ctx context.Context, dir string) string {
	done := make(chan string, 1)
	go func() { done <- realPath(dir) }() // may outlive the call on a file system that hangs
	ctx, cancel := context.WithTimeout(ctx, pathTimeout)
	defer cancel()
	select {
	case found := <-done:
		return found
	case <-ctx.Done():
		return ""
	}
}

// side maps the paths of a call to the host. It requests the mounts at most once, when a path needs
// them. It must not be used concurrently.
type side struct {
	call   dray.Call
	mounts MountsFunc
	// ofCommand reports whether the paths are those of a command, which are the container's unless
	// they were rewritten.
	ofCommand bool
	// ofHost reports whether all paths are the host's, also if the caller uses the container's.
	ofHost bool

	asked  bool               // for the mounts
	mapper *pathmapper.Mapper // nil without mounts
}

// cwd returns the host directory of the call. unknown reports whether it is a directory of the
// container without a path of the host; it is then "".
func (s *side) cwd(ctx context.Context) (dir string, unknown bool) {
	inv := s.call.Invocation
	if s.call.Tool.InWorkspace || inv.Paths != dray.PathsOfContainer || !filepath.IsAbs(inv.Cwd) {
		return Directory(s.call), false
	}
	if dir = s.toHost(ctx, inv.Cwd); dir == outsideMounts {
		return "", true
	}
	return dir, false
}

// hostPath returns the host path of an absolute path of the call.
func (s *side) hostPath(ctx context.Context, p string) string {
	switch {
	case s.call.Route.Environment == dray.KindHost || s.ofHost:
		return p
	case s.call.Invocation.Paths == dray.PathsOfContainer:
		return s.toHost(ctx, p)
	case s.ofCommand:
		if mapped := s.toHost(ctx, p); mapped != outsideMounts {
			return mapped
		}
	}
	return p
}

// toHost returns the host path of an absolute path of the container, or outsideMounts.
func (s *side) toHost(ctx context.Context, p string) string {
	if !s.asked && s.mounts != nil {
		route := s.call.Route
		ctx, cancel := context.WithTimeout(ctx, pathTimeout)
		defer cancel()
		if mounts, err := s.mounts(ctx, route.Workspace, route.Container); err == nil {
			s.mapper, _, _ = pathmapper.FromMounts(mounts, nil) // nil if they are invalid
		}
	}
	s.asked = true
	if s.mapper == nil {
		return outsideMounts
	}
	t, err := s.mapper.ToHost(p)
	if err != nil || !t.Mapped {
		return outsideMounts
	}
	return t.Path
}
