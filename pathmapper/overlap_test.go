package pathmapper_test

import (
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// For every overlap of two mappings and a volume, a host path is mapped to the container path of
// the same file, and is unmapped exactly if there is none. The container's view is computed without
// the mapper (PM-01, PM-04, PM-14).
func TestEveryOverlap(t *testing.T) {
	t.Parallel()
	hosts := []string{"/a", "/a/b", "/a/b/a", "/b"}
	containers := []string{"/x", "/x/a", "/x/b", "/x/b/a", "/y"}
	var paths []string
	for _, p := range append(hosts, containers...) {
		paths = append(paths, p, p+"/a", p+"/b", p+"/b/a", p+"b")
	}
	for h := range len(hosts) * len(hosts) {
		for c := range len(containers) * len(containers) * len(containers) {
			first := dray.Mount{Host: hosts[h%len(hosts)], Container: containers[c%len(containers)]}
			second := dray.Mount{
				Host:      hosts[h/len(hosts)],
				Container: containers[c/len(containers)%len(containers)],
			}
			volume := dray.Mount{Container: containers[c/len(containers)/len(containers)]}
			if first.Container == second.Container || first.Container == volume.Container ||
				second.Container == volume.Container {
				continue
			}
			checkOverlap(t, []dray.Mount{first, second, volume}, paths)
		}
	}
}

func checkOverlap(t *testing.T, mounts []dray.Mount, paths []string) {
	t.Helper()
	m, warnings, err := pathmapper.FromMounts(mounts, nil)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	for _, p := range paths {
		c, err := m.ToContainer(p)
		if err != nil || c.Mapped != visible(mounts, p) || c.Mapped && shown(mounts, c.Path) != p {
			t.Fatalf("%v: ToContainer(%q) = %+v, %v", mounts, p, c, err)
		}
		h, err := m.ToHost(p)
		if want := shown(mounts, p); err != nil || h.Mapped != (want != "") || h.Mapped &&
			h.Path != want {
			t.Fatalf("%v: ToHost(%q) = %+v, %v; want %q", mounts, p, h, err, want)
		}
	}
}

// shown returns the host file at a container path as the kernel resolves it: by the innermost
// mount.
func shown(mounts []dray.Mount, p string) string {
	host, depth := "", 0
	for _, mount := range mounts {
		if rest, ok := strings.CutPrefix(p+"/", mount.Container+"/"); ok && len(mount.Container) > depth {
			host, depth = "", len(mount.Container)
			if mount.Host != "" {
				host = strings.TrimSuffix(mount.Host+"/"+rest, "/")
			}
		}
	}
	return host
}

// visible reports whether a host file is visible anywhere in the container.
func visible(mounts []dray.Mount, p string) bool {
	for _, mount := range mounts {
		rest, ok := strings.CutPrefix(p+"/", mount.Host+"/")
		if ok && mount.Host != "" && shown(mounts,
			strings.TrimSuffix(mount.Container+"/"+rest, "/")) == p {
			return true
		}
	}
	return false
}
