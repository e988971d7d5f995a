package assets

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray"
)

// from returns options that take files from a folder with these texts.
func from(t *testing.T, files map[string]string) FetchOptions {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		writeText(t, file, text)
	}
	opts := quick()
	opts.From = dir
	return opts
}

// wheel makes a wheel with these files, beside its metadata.
func wheel(t *testing.T, metadata string, files ...string) string {
	t.Helper()
	var packed strings.Builder
	z := zip.NewWriter(&packed)
	for _, name := range append(files, "x-1.dist-info/METADATA", "x-1.dist-info/RECORD") {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "METADATA") {
			if _, err := w.Write([]byte(metadata)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

// Packages in any place that npm makes, and asset folders, are taken without a network (PY-09).
func TestFetchFrom(t *testing.T) {
	packs := map[string]string{"deno-test-1.2.3.tgz": string(denoPack), "other-name.tgz": string(pyodidePack)}
	folder, modules, flat := map[string]string{"deno": denoText}, map[string]string{}, map[string]string{}
	modules["node_modules/@deno/test/deno"], flat["deno"] = denoText, denoText
	for name, text := range pyodideTexts {
		folder["pyodide/"+name], modules["node_modules/pyodide/"+name], flat[name] = text, text, text
	}
	for name, files := range map[string]map[string]string{
		"packages": packs, "an asset folder": folder, "node_modules": modules, "files": flat,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			s := r.store(t)
			got := mustFetch(t, s, from(t, files))
			if len(r.requests) != 0 || got.Downloaded != 0 || got.DenoVersion != "1.2.3" {
				t.Errorf("requests: %q, fetched %+v", r.requests, got)
			}
			wantOnly(t, filepath.Dir(s.Dir()), "assets")
		})
	}
}

// What is wrong with the files is said, the folder stays as it was, and nothing is downloaded
// (PY-24).
func TestFetchFromRefuses(t *testing.T) {
	other := strings.Replace(string(pyodidePack), "p", "q", 1)
	own := wheel(t, "Name: own\nVersion: 1\n", "own/__init__.py")
	for name, tc := range map[string]struct {
		files map[string]string
		code  dray.Code
		words []string
	}{
		"nothing": {nil, dray.CodeNotFound, []string{
			"deno.tgz (sha256 " + sum(string(denoPack)), "pyodide.tgz", "npm pack @deno/test@1.2.3 pyodide@314.0.0",
		}},
		"one package": {
			map[string]string{"deno.tgz": string(denoPack)},
			dray.CodeNotFound,
			[]string{"files of: pyodide.tgz", "npm pack pyodide@314.0.0"},
		},
		"another package with the name": {
			map[string]string{"deno.tgz": string(denoPack), "pyodide-314.0.0.tgz": other},
			dray.CodeTransferFailed,
			[]string{
				"pyodide-314.0.0.tgz is not the pinned", "expected sha256 " + sum(string(pyodidePack)),
				"got sha256 " + sum(other), "source pyodide 314.0.0", "npm pack pyodide@314.0.0",
			},
		},
		"another file with the name": {
			map[string]string{"deno": "another"},
			dray.CodeTransferFailed,
			[]string{"/deno is not the pinned", "expected sha256 " + sum(denoText), "got sha256 " + sum("another")},
		},
		"a wheel of another build": {
			withPacks("numpy-2.4.6.whl", "numpy?"), dray.CodeTransferFailed,
			[]string{"numpy-2.4.6.whl is not the pinned", "source package numpy 2.4.6 of Pyodide's lock"},
		},
		"a wheel without what it needs": {
			withPacks("pandas-3.0.2.whl", "pandas"), dray.CodeNotFound,
			[]string{"pandas needs numpy-2.4.6.whl"},
		},
		"a wheel for another platform": {
			withPacks("own-1-cp314-cp314-manylinux_2_28_x86_64.whl", own), dray.CodeInvalidInput,
			[]string{"manylinux", "another platform", "pyemscripten_2026_0_wasm32"},
		},
		"a wheel that is no wheel": {
			withPacks("own-1-py3-none-any.whl", "text"), dray.CodeInvalidInput, []string{"own-1", "not a valid zip"},
		},
		"a wheel that needs what is not there": {
			withPacks("own-1-py3-none-any.whl", wheel(t, "Name: own\nVersion: 1\nRequires-Dist: Et.XmlFile>=1\n", "own.py")),
			dray.CodeNotFound,
			[]string{"own needs et-xmlfile"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t)
			s := r.store(t)
			_, err := s.Fetch(t.Context(), from(t, tc.files))
			known := dray.AsError(err)
			if known == nil || known.Code != tc.code || known.Hint == "" {
				t.Fatalf("Fetch: %v, want code %s and a hint", err, tc.code)
			}
			for _, word := range tc.words {
				if !strings.Contains(known.Message+" "+known.Hint, word) {
					t.Errorf("%q, hint %q, lacks %q", known.Message, known.Hint, word)
				}
			}
			if len(r.requests) > 0 {
				t.Errorf("requests: %q", r.requests)
			}
			if _, err := os.Stat(s.Dir()); !os.IsNotExist(err) {
				t.Errorf("the asset folder is there: %v", err)
			}
		})
	}
	if _, err := newRegistry(t).store(t).Fetch(t.Context(), FetchOptions{From: "/no/such"}); dray.CodeOf(
		err) != dray.CodeNotFound {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func withPacks(name, text string) map[string]string {
	return map[string]string{"deno.tgz": string(denoPack), "pyodide.tgz": string(pyodidePack), name: text}
}

// Wheels are added to what is there, are in the lock that Pyodide gets, are kept by later fetches,
// and are verified like all files (PY-20, PY-24).
func TestFetchWheels(t *testing.T) {
	s, r := fetched(t)
	before, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := wheel(t, "Metadata-Version: 2.1\nName: My.Own\nVersion: 1.0\nRequires-Dist: numpy (>=2)\n"+
		"Requires-Dist: sphinx; extra == 'doc'\n\nRequires-Dist: text\n", "my_own/__init__.py", "six.py", "my_own-1.data/x")
	got := mustFetch(t, s, from(t, map[string]string{
		"wheels/my_own-1.0-py3-none-any.whl": own, "numpy-2.4.6.whl": "numpy", "README": "not a wheel",
	}))
	want := []Wheel{
		{"my-own", "1.0", []string{"my_own", "six"}, []string{"numpy"}, "my_own-1.0-py3-none-any.whl"},
		{"numpy", "2.4.6", []string{"numpy"}, []string{}, "numpy-2.4.6.whl"},
	}
	if fmt.Sprint(got.Packages) != fmt.Sprint(want) || got.ID == before.ID {
		t.Errorf("packages %v, want %v; id %s", got.Packages, want, got.ID)
	}
	checkLock(t, got.Lock, own)
	wantOnly(t, s.Dir(), "deno", "extra-lock.json", "pyodide")

	change(t, filepath.Join(s.Dir(), "deno")) // the repair keeps the wheels
	r.requests = nil
	if again := mustFetch(t, s, quick()); again.ID != got.ID || !slices.Equal(r.requests, []string{"/deno.tgz "}) {
		t.Errorf("packages %v after a repair, requests %q", again.Packages, r.requests)
	}
	for _, name := range []string{"numpy-2.4.6.whl", "my_own-1.0-py3-none-any.whl"} {
		change(t, filepath.Join(s.Dir(), "pyodide", name))
		p, ok := asProblem(second(s.Open(t.Context())))
		if !ok || p.Kind != Mismatch || filepath.Base(p.File) != name {
			t.Errorf("Open with another %s: %v", name, p)
		}
		mustFetch(t, s, from(t, map[string]string{"my_own-1.0-py3-none-any.whl": own, "numpy-2.4.6.whl": "numpy"}))
	}
}

// checkLock checks that the lock has the two packages, as Pyodide reads it, and not pandas, whose
// wheel is not there.
func checkLock(t *testing.T, text []byte, own string) {
	t.Helper()
	var lock struct {
		Info     map[string]string         `json:"info"`
		Packages map[string]map[string]any `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	e := lock.Packages["my-own"]
	if len(lock.Packages) != 2 || lock.Packages["numpy"] == nil || lock.Info["abi_version"] != "2026_0" ||
		e["sha256"] != sum(own) || e["file_name"] != "my_own-1.0-py3-none-any.whl" ||
		e["install_dir"] != "site" || e["package_type"] != "package" {
		t.Errorf("the lock is %s", text)
	}
}

// A lock of the operator cannot name files elsewhere.
func TestExtraLockRefuses(t *testing.T) {
	for name, entry := range map[string]string{
		"a file above":    `{"name":"x","file_name":"../x.whl","sha256":"` + sum("x") + `"}`,
		"an address":      `{"name":"x","file_name":"https://x.example/x.whl","sha256":"` + sum("x") + `"}`,
		"no file":         `{"name":"x","file_name":"","sha256":"` + sum("x") + `"}`,
		"a hidden file":   `{"name":"x","file_name":".x","sha256":"` + sum("x") + `"}`,
		"no checksum":     `{"name":"x","file_name":"x.whl"}`,
		"half a checksum": `{"name":"x","file_name":"x.whl","sha256":"` + sum("x")[:32] + `"}`,
		"no name":         `{"file_name":"x.whl","sha256":"` + sum("x") + `"}`,
		"two names":       `{"name":"x","name":"y","file_name":"x.whl","sha256":"` + sum("x") + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := fetched(t)
			writeText(t, filepath.Join(s.Dir(), extraName), `{"packages":{"x":`+entry+`}}`)
			_, err := s.Open(t.Context())
			if known := dray.AsError(err); known == nil || known.Code != dray.CodeHelperMissing ||
				!strings.Contains(known.Message, extraName) || known.Hint == "" {
				t.Errorf("Open: %v", err)
			}
			mustFetch(t, s, quick()) // it is left out
		})
	}
}
