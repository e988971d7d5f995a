package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

const passwdFile = `root:x:0:0:root:/root:/bin/bash
daemon:x:1:1::/usr/sbin:/usr/sbin/nologin

vscode:x:1000:1000:,,,:/home/vscode:/bin/zsh
1001:x:2001:2001::/home/odd:
short:x:1002:1002
bad:x:zero:0::/:/bin/sh
huge:x:4294967296:0::/:/bin/sh
nohome:x:1003:100:::
twin:x:1000:7::/home/twin:/bin/sh
`

const groupFile = `root:x:0:
docker:x:998:vscode,other
audio:x:29:other,vscode
same:x:1000:vscode
3000:x:44:
broken:x:x:vscode
numbers:x:77:4242
`

func fixture(t *testing.T) users {
	t.Helper()
	dir := t.TempDir()
	f := users{passwd: filepath.Join(dir, "passwd"), group: filepath.Join(dir, "group")}
	for path, content := range map[string]string{f.passwd: passwdFile, f.group: groupFile} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// Users and groups are those that the engine gives an exec (EX-07).
func TestLookup(t *testing.T) {
	f := fixture(t)
	for _, c := range []struct {
		arg     string
		further []string
		want    user
	}{
		{"", nil, user{0, 0, []uint32{0}, "/root", "/bin/bash"}},
		{"root", nil, user{0, 0, []uint32{0}, "/root", "/bin/bash"}},
		{"vscode", nil, user{1000, 1000, []uint32{1000, 998, 29}, "/home/vscode", "/bin/zsh"}},
		{"1000", nil, user{1000, 1000, []uint32{1000, 998, 29}, "/home/vscode", "/bin/zsh"}},
		{"01000", nil, user{1000, 1000, []uint32{1000, 998, 29}, "/home/vscode", "/bin/zsh"}},
		{"vscode:", nil, user{1000, 1000, []uint32{1000, 998, 29}, "/home/vscode", "/bin/zsh"}},
		{"vscode:audio", nil, user{1000, 29, []uint32{29}, "/home/vscode", "/bin/zsh"}},
		{"1000:5", nil, user{1000, 5, []uint32{5}, "/home/vscode", "/bin/zsh"}},
		// a number is never a name
		{"vscode:3000", nil, user{1000, 3000, []uint32{3000}, "/home/vscode", "/bin/zsh"}},
		{"1001", nil, user{1001, 0, []uint32{0}, "/", ""}},
		{"4242", nil, user{4242, 0, []uint32{0, 77}, "/", ""}},
		{"short", nil, user{1002, 1002, []uint32{1002}, "/", ""}},
		{"nohome", nil, user{1003, 100, []uint32{100}, "/", ""}},
		{"twin", nil, user{1000, 7, []uint32{7}, "/home/twin", "/bin/sh"}},
		{
			"vscode:audio",
			[]string{"docker", "4711", "29"},
			user{1000, 29, []uint32{29, 998, 4711}, "/home/vscode", "/bin/zsh"},
		},
	} {
		got, err := f.lookup(t.Context(), c.arg, c.further)
		if err != nil || got.uid != c.want.uid || got.gid != c.want.gid || got.home != c.want.home ||
			got.shell != c.want.shell ||
			!slices.Equal(got.groups, c.want.groups) {
			t.Errorf("%q %q: got %+v, %v, want %+v", c.arg, c.further, got, err, c.want)
		}
	}
}

// A missing name or an invalid id is an error, and never root.
func TestLookup_Invalid(t *testing.T) {
	f := fixture(t)
	for _, arg := range []string{
		"nobody", "bad", "huge", "-1", "4294967296", "vscode:nogroup",
		"vscode:broken", "Vscode", " vscode",
	} {
		if got, err := f.lookup(t.Context(), arg, nil); dray.CodeOf(err) != dray.CodeBadUser {
			t.Errorf("%q: got %+v, %v", arg, got, err)
		}
	}
	if _, err := f.lookup(t.Context(), "root", []string{"nogroup"}); dray.CodeOf(err) != dray.CodeBadUser {
		t.Errorf("a missing additional group: %v", err)
	}
}

func TestLookup_NoFiles(t *testing.T) {
	dir := t.TempDir()
	f := users{passwd: dir + "/none", group: dir + "/none"}
	if got, err := f.lookup(t.Context(), "", nil); err != nil || got.uid != 0 || got.home != "/" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := f.lookup(t.Context(), "root", nil); dray.CodeOf(err) != dray.CodeBadUser {
		t.Errorf("got %v", err)
	}
	for _, path := range []string{dir, "/dev/zero"} { // they are no regular files and must not block
		if _, err := (users{passwd: path, group: path}).
			lookup(t.Context(), "root", nil); dray.CodeOf(err) != dray.CodeBadUser {
			t.Errorf("%s: got %v", path, err)
		}
	}
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, []byte(strings.Repeat("x", 2<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (users{passwd: long, group: long}).
		lookup(t.Context(), "root", nil); dray.CodeOf(err) != dray.CodeBadUser {
		t.Errorf("got %v", err)
	}
}

// Large files fail at once with what is wrong, or are read quickly. A lookup ends with its call
// (EX-18).
func TestLookup_LargeFiles(t *testing.T) {
	const lines = 1_000_000
	var groups, members strings.Builder
	for i := range lines {
		fmt.Fprintf(&groups, "g::%d:\n", i)
		fmt.Fprintf(&members, "g::%d:root\n", i)
	}
	for name, c := range map[string]struct{ passwd, group, arg, want string }{
		"passwd of 20 MB":         {strings.Repeat("x:x\n", 5<<20), "", "root", "passwd has 20971520 bytes (limit 16777216)"},
		"10^6 groups":             {passwdFile, groups.String(), "root", ""},
		"10^6 groups of the user": {passwdFile, members.String(), "root", "more than 65536 groups"},
		"10^6 groups, no name":    {passwdFile, groups.String(), "root:none", `no group "none"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture(t)
			for path, content := range map[string]string{f.passwd: c.passwd, f.group: c.group} {
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := f.lookup(ctx, c.arg, nil)
			if c.want == "" && err != nil || c.want != "" && (dray.CodeOf(err) != dray.CodeBadUser ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			ctx, cancel = context.WithCancel(t.Context())
			cancel()
			if _, err := f.lookup(ctx, c.arg, nil); err == nil {
				t.Error("the lookup does not end with its call")
			}
		})
	}
}

func FuzzLookup(f *testing.F) {
	f.Add("vscode:audio", passwdFile, groupFile)
	f.Add("1000", "::::::\n:\n", "a:b:c:d")
	f.Fuzz(func(t *testing.T, arg, passwd, group string) {
		dir := t.TempDir()
		files := users{passwd: dir + "/passwd", group: dir + "/group"}
		if os.WriteFile(files.passwd, []byte(passwd), 0o600) != nil ||
			os.WriteFile(files.group, []byte(group), 0o600) != nil {
			t.Fatal("writing")
		}
		u, err := files.lookup(t.Context(), arg, nil)
		name, _, _ := strings.Cut(arg, ":")
		_, number := parseID(name)
		if err == nil && u.uid == 0 && !number && name != "" && !strings.Contains(passwd, name) {
			t.Errorf("%q was resolved to root", arg)
		}
		if err == nil && (!slices.Contains(u.groups, u.gid) || u.home == "") {
			t.Errorf("got %+v", u)
		}
	})
}

// A cached user is used until one of the files changes, even if neither size nor name differ
// (EX-07).
func TestUserCacheSeesChanges(t *testing.T) {
	c := userCache{files: fixture(t)}
	lookup := func(want uint32) {
		t.Helper()
		u, err := c.lookup(t.Context(), "vscode", []string{"audio"})
		if err != nil || !slices.Contains(u.groups, want) {
			t.Fatalf("got groups %v, %v, want %d among them", u.groups, err, want)
		}
	}
	cached := func() {
		t.Helper()
		c.stamp, c.users = "", nil
		deadline := time.Now().Add(10 * time.Second)
		for lookup(998); len(c.users) == 0; lookup(998) {
			if time.Now().After(deadline) {
				t.Fatal("the user is not cached")
			}
		}
		c.users["vscode\x00audio"] = user{groups: []uint32{4711}}
		lookup(4711)
	}
	cached()
	changed := strings.Replace(groupFile, "docker:x:998", "docker:x:997", 1)
	if err := os.WriteFile(c.files.group, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	lookup(997)
	if err := os.WriteFile(c.files.group, []byte(groupFile), 0o600); err != nil {
		t.Fatal(err)
	}
	lookup(998) // twice in a moment, with the same size
	cached()
	other := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(other, []byte(passwdFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, c.files.passwd); err != nil {
		t.Fatal(err)
	}
	lookup(998)
}

// An image without /etc/passwd and /etc/group has uid 0 and every numeric user.
func TestUserCache_NoFiles(t *testing.T) {
	dir := t.TempDir()
	c := userCache{files: users{passwd: dir + "/passwd", group: dir + "/group"}}
	for range 2 {
		if u, err := c.lookup(t.Context(), "4242:4243", nil); err != nil || u.uid != 4242 || u.gid != 4243 {
			t.Fatalf("got %+v, %v", u, err)
		}
	}
}
