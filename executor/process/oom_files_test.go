package process

import (
	"slices"
	"testing"
)

// The files with the kernel's count: hybrid layout on a host and in a container, cgroup v2 with and
// without a cgroup namespace.
func TestOOMFiles(t *testing.T) {
	const (
		v1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
		in = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime master:9 - cgroup cgroup " +
			"rw,memory\n"
		v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	)
	for name, c := range map[string]struct {
		groups, mounts string
		want           []string
	}{
		"version 1": {
			"4:memory:/user\n0::/\n", v1,
			[]string{"/sys/fs/cgroup/memory/user/memory.oom_control"},
		},
		"version 1, in it": {
			"4:memory:/docker/abc\n", in,
			[]string{"/sys/fs/cgroup/memory/memory.oom_control"},
		},
		"version 1, another group": {"4:memory:/docker/other\n", in, nil},
		"controllers together": {
			"4:cpu,memory:/a\n", v1,
			[]string{"/sys/fs/cgroup/memory/a/memory.oom_control"},
		},
		"version 2": {
			"0::/a/b\n", v2,
			[]string{
				"/sys/fs/cgroup/a/b/memory.events", "/sys/fs/cgroup/a/memory.events",
				"/sys/fs/cgroup/memory.events",
			},
		},
		"version 2, a namespace": {"0::/\n", v2, []string{"/sys/fs/cgroup/memory.events"}},
		"nothing mounted":        {"4:memory:/user\n0::/\n", "", nil},
		"no groups":              {"nonsense\n", v1 + v2, nil},
	} {
		if got := oomFiles(c.groups, []byte(c.mounts)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
