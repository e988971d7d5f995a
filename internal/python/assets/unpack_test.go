package assets

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A package that is not as npm makes them is refused, and nothing outside of the folder is touched
// (PY-24).
func TestUnpackRefuses(t *testing.T) {
	good := member{name: "package/deno", text: "deno"}
	pkg := &Package{Name: "deno", Files: []File{{Name: "deno", Size: 4, SHA256: sum("deno")}}}
	link := func(kind byte, name, target string) member {
		return member{name: name, header: tar.Header{Typeflag: kind, Linkname: target}}
	}
	var many []member
	for i := range maxMembers + 1 {
		many = append(many, member{name: fmt.Sprintf("package/%d", i)})
	}
	for name, tc := range map[string]struct {
		packed []byte
		want   string
	}{
		"as it should be":        {pack(good, member{name: "package/x", text: "y"}), ""},
		"a name that leads up":   {pack(member{name: "package/../deno", text: "deno"}), "leads out"},
		"a deep name that does":  {pack(member{name: "package/a/../../../deno", text: "x"}, good), "leads out"},
		"an absolute name":       {pack(member{name: "/package/deno", text: "deno"}), "leads out"},
		"two slashes":            {pack(member{name: "package//etc/passwd", text: "x"}, good), "leads out"},
		"another folder":         {pack(member{name: "pack/deno", text: "deno"}), "leads out"},
		"a symlink":              {pack(link(tar.TypeSymlink, "package/deno", "/bin/sh")), "neither a file nor a directory"},
		"a symlink beside":       {pack(link(tar.TypeSymlink, "package/x", ".."), good), "neither a file nor a directory"},
		"a hard link":            {pack(link(tar.TypeLink, "package/deno", "package/x")), "neither a file nor a directory"},
		"a device":               {pack(link(tar.TypeChar, "package/deno", "")), "neither a file nor a directory"},
		"a pipe":                 {pack(link(tar.TypeFifo, "package/deno", "")), "neither a file nor a directory"},
		"a folder with the name": {pack(link(tar.TypeDir, "package/deno/", "")), "has 0 bytes and not 4"},
		"the file twice":         {pack(good, good), "twice"},
		"another file twice":     {pack(member{name: "package/x"}, member{name: "package/x"}, good), "twice"},
		"without the file":       {pack(member{name: "package/x"}), "it has no deno"},
		"a longer file":          {pack(member{name: "package/deno", text: "deno!"}), "has 5 bytes and not 4"},
		"another file":           {pack(member{name: "package/deno", text: "Deno"}), "not the pinned file"},
		"too many files":         {pack(append(many, good)...), "more than 10000 members"},
		"a bomb":                 {pack(member{name: "package/x", text: strings.Repeat("0", maxSkipped)}, good), "longer than"},
		"cut off":                {pack(good)[:60], "unexpected EOF"},
		"no package":             {[]byte("deno"), "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			into, err := os.OpenRoot(filepath.Join(outside, mkdir(t, outside, "into")))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = into.Close() }()
			err = unpack(t.Context(), bytes.NewReader(tc.packed), pkg, into)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("unpack: %v, want %q", err, tc.want)
			}
			wantOnly(t, outside, "into")
		})
	}
}

func mkdir(t *testing.T, dir, name string) string {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// Whatever a package has, only the pinned content is written.
func FuzzUnpack(f *testing.F) {
	pkg := &Package{Name: "deno", Files: []File{{Name: "deno", Size: 4, SHA256: sum("deno")}}}
	f.Add(pack(member{name: "package/deno", text: "deno"}))
	f.Add(pack(member{name: "package/../deno", text: "deno"}))
	f.Add(pyodidePack[:100])
	f.Fuzz(func(t *testing.T, packed []byte) {
		outside := t.TempDir()
		dir := filepath.Join(outside, mkdir(t, outside, "into"))
		into, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = into.Close() }()
		err = unpack(context.Background(), bytes.NewReader(packed), pkg, into)
		wantOnly(t, outside, "into")
		text, readErr := os.ReadFile(filepath.Join(dir, "deno"))
		if err == nil && (readErr != nil || string(text) != "deno") {
			t.Errorf("unpacked %q, %v", text, readErr)
		}
	})
}

// A reader that ends with its context ends the unpacking.
func TestUnpackEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := copyTo(ctx, io.Discard, strings.NewReader("x")); err == nil {
		t.Error("copied after the end")
	}
}
