package pathmapper

import (
	"testing"

	"github.com/dray-dev/dray"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ give, want string }{
		{"/", "/"},
		{"//", "/"},
		{"//srv///app", "/srv/app"},
		{"/srv/./app/.", "/srv/app"},
		{"/srv/app//", "/srv/app"},
		{"/srv/...", "/srv/..."},
		{"/srv/..app/app..", "/srv/..app/app.."},
		{"/srv/a\nb", "/srv/a\nb"},
		{`/srv/a\b`, `/srv/a\b`},
		{"/C:/x", "/C:/x"},
		{"/srv/\xff", "/srv/\xff"},
	} {
		if got, err := Clean(c.give); err != nil || got != c.want {
			t.Errorf("Clean(%q) = %q, %v; want %q", c.give, got, err, c.want)
		}
	}
}

// ".." segments and NUL are refused at any position (PM-05), and Windows paths (PM-15).
func TestCleanRefuses(t *testing.T) {
	t.Parallel()
	for _, p := range []string{
		"", "srv", ".", "..", "/..", "/../srv", "/srv/..", "/srv/../app", "/srv//..//app", "/srv/../", "../srv",
		"\x00", "/srv\x00", "/srv/\x00/app",
		`C:`, `C:\`, `c:\srv`, `C:/srv`, `\\server\share`, `\\?\C:\srv`,
	} {
		got, err := Clean(p)
		if dray.CodeOf(err) != dray.CodePathInvalid {
			t.Errorf("Clean(%q) = %q, %v; want path_invalid", p, got, err)
			continue
		}
		if dray.AsError(err).Hint == "" {
			t.Errorf("Clean(%q): no hint in %v", p, err)
		}
	}
}

func TestDotDot(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]int{
		"": -1, ".": -1, "...": -1, "/a..": -1, "/..a": -1, "/a/...": -1, "/....": -1,
		"..": 0, "/..": 1, "/a/..": 3, "/a../..": 5, "/.../../x": 5, "../..": 0,
	} {
		if got := dotDot(p); got != want {
			t.Errorf("dotDot(%q) = %d, want %d", p, got, want)
		}
	}
}

// A path is under a root by whole segments (PM-01), also for the root "/" (PM-03).
func TestRelativeToAndJoin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, root, rest string
		ok               bool
	}{
		{"/srv/sandbox", "/srv/sandbox", "", true},
		{"/srv/sandbox/a", "/srv/sandbox", "a", true},
		{"/srv/sandbox/a/b", "/srv/sandbox", "a/b", true},
		{"/srv/sandboxevil", "/srv/sandbox", "", false},
		{"/srv/sandbox.", "/srv/sandbox", "", false},
		{"/srv", "/srv/sandbox", "", false},
		{"/SRV/sandbox", "/srv/sandbox", "", false},
		{"/", "/srv", "", false},
		{"/", "/", "", true},
		{"/srv", "/", "srv", true},
		{"/srv/a", "/", "srv/a", true},
	} {
		rest, ok := relativeTo(c.path, c.root)
		if rest != c.rest || ok != c.ok {
			t.Errorf("below(%q, %q) = %q, %v; want %q, %v", c.path, c.root, rest, ok, c.rest, c.ok)
		}
		if ok && join(c.root, rest) != c.path {
			t.Errorf("join(%q, %q) = %q, want %q", c.root, rest, join(c.root, rest), c.path)
		}
	}
}

// The mapping is correct for the root "/", which no constructor accepts (PM-03).
func TestSlashAsRoot(t *testing.T) {
	t.Parallel()
	mp := []Mapping{{Host: "/", Container: "/host"}}
	m := &Mapper{byHost: mp, byContainer: mp}
	for host, container := range map[string]string{
		"/": "/host", "/etc": "/host/etc",
		"/etc/hosts": "/host/etc/hosts",
	} {
		if got, err := m.ToContainer(host); err != nil || got.Path != container {
			t.Errorf("ToContainer(%q) = %q, %v; want %q", host, got.Path, err, container)
		}
		if got, err := m.ToHost(container); err != nil || got.Path != host {
			t.Errorf("ToHost(%q) = %q, %v; want %q", container, got.Path, err, host)
		}
	}
	if got, err := m.ToHost("/hostile"); err != nil || got.Mapped {
		t.Errorf("ToHost(/hostile) = %+v, %v; want it unmapped", got, err)
	}
}
