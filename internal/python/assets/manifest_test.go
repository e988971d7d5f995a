package assets

import (
	"bytes"
	"encoding/hex"
	"net/url"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
)

// Each platform has Deno and Pyodide, each with a checksum, from the registry of npm (PY-24).
func TestManifest(t *testing.T) {
	var all Manifest
	err := json.Unmarshal(bytes.TrimSpace(pinned), &all, json.RejectUnknownMembers(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all.Packages {
		u, err := url.Parse(p.URL)
		if err != nil || u.Scheme != "https" || u.Host != "registry.npmjs.org" {
			t.Errorf("%s is at %s, %v", p.Name, p.URL, err)
		}
		for _, f := range append(p.Files, File{Name: p.Name, Size: p.Size, SHA256: p.SHA256}) {
			if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != 32 || f.Size < 1 {
				t.Errorf("%s %s has %d bytes and the checksum %q", p.Name, f.Name, f.Size, f.SHA256)
			}
		}
	}
	want := []string{
		"deno", "pyodide/pyodide-lock.json", "pyodide/pyodide.asm.mjs", "pyodide/pyodide.asm.wasm",
		"pyodide/pyodide.mjs", "pyodide/python_stdlib.zip",
	}
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		var got []string
		for _, p := range all.forPlatform(platform).pins() {
			got = append(got, p.path)
			if p.Executable != (p.path == denoName) {
				t.Errorf("%s: %s is executable: %v", platform, p.path, p.Executable)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", platform, got, want)
		}
	}
}

// FuzzLocks: locks never name a file outside of the folder, and Pyodide gets only what is there.
func FuzzLocks(f *testing.F) {
	f.Add([]byte(lockText), []byte(`{"packages":{"x":{"name":"x","file_name":"x.whl","sha256":"`+sum("x")+`"}}}`))
	f.Add([]byte(lockText), []byte(`{"packages":{"numpy":{"name":"numpy","file_name":"../n","sha256":"`+sum("x")+`"}}}`))
	there := []string{"numpy-2.4.6.whl", "pyodide.mjs"}
	f.Fuzz(func(t *testing.T, main, extra []byte) {
		made, err := mergeLocks(main, extra, there)
		if err != nil {
			return
		}
		var lock struct {
			Packages map[string]lockEntry `json:"packages"`
		}
		if err := json.Unmarshal(made.text, &lock); err != nil {
			t.Fatalf("the lock cannot be read: %v", err)
		}
		for _, e := range lock.Packages {
			if !slices.ContainsFunc(made.files, func(w wheelFile) bool { return w.Name == e.FileName && w.SHA256 == e.SHA256 }) {
				t.Errorf("the file of %+v is not verified: %+v", e, made.files)
			}
			if e.check() != nil {
				t.Errorf("the lock has %+v", e)
			}
		}
	})
}
