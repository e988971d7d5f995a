package python

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wheel is a package of the index that tests make.
type wheel struct {
	name, version string
	requires      []string // metadata lines of Requires-Dist
	extras        []string
	files         map[string]string // beside the module of the name
}

// wheels are the packages of the index. numpy, pandas and openpyxl are stand-ins with these names.
var wheels = []wheel{
	{name: "numpy", version: "1.26.4"},
	{name: "numpy", version: "2.1.0"},
	{
		name: "pandas", version: "2.2.3", requires: []string{"numpy>=1.26", `openpyxl>=3; extra == "excel"`},
		extras: []string{"excel"},
	},
	{name: "openpyxl", version: "3.1.5"},
	{name: "shared", version: "1.0"},
	{name: "shared", version: "2.0"},
	{name: "one", version: "1.0", requires: []string{"shared==1.0"}},
	{name: "two", version: "1.0", requires: []string{"shared==2.0"}},
	{name: "evil", version: "1.0", files: map[string]string{
		"evil.pth": "import os; open('/tmp/canary', 'a').write('pth\\n')\n",
	}},
}

// writeIndex writes a package index as files (PEP 503) and returns its directory. The container has
// it as /srv/index.
func writeIndex(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{}
	for _, w := range wheels {
		files[fmt.Sprintf("%s/%s-%s-py3-none-any.whl", w.name, w.name, w.version)] = w.pack(t)
	}
	files["source/source-1.0.tar.gz"] = sdist(t)
	links := map[string]string{}
	for _, name := range sortedNames(files) {
		package_, file := filepath.Split(name)
		links[package_] += fmt.Sprintf("<a href=%q>%s</a>\n", file, file)
	}
	for package_, html := range links {
		files[package_+"index.html"] = []byte(html)
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// pack returns the wheel as a file.
func (w wheel) pack(t testing.TB) []byte {
	t.Helper()
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.name, w.version)
	for _, extra := range w.extras {
		meta += "Provides-Extra: " + extra + "\n"
	}
	for _, other := range w.requires {
		meta += "Requires-Dist: " + other + "\n"
	}
	info := fmt.Sprintf("%s-%s.dist-info/", w.name, w.version)
	files := map[string]string{
		w.name + "/__init__.py": fmt.Sprintf("__version__ = %q\n", w.version),
		info + "METADATA":       meta,
		info + "WHEEL":          "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	}
	maps.Copy(files, w.files)
	record := ""
	for _, name := range sortedNames(files) {
		sum := sha256.Sum256([]byte(files[name]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", name,
			base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
	}
	files[info+"RECORD"] = record + info + "RECORD,,\n"
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range sortedNames(files) {
		f, err := z.Create(name)
		if err == nil {
			_, err = f.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// backend is a build backend in the source package itself. Running it leaves a canary.
const backend = `
import os, zipfile
open("/tmp/canary", "a").write("built\n")
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "source-1.0-py3-none-any.whl"
    info = "source-1.0.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("source/__init__.py", "")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "")
    return name
`

// sdist returns a package that has to be built.
func sdist(t testing.TB) []byte {
	t.Helper()
	files := map[string]string{
		"source-1.0/PKG-INFO":   "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n",
		"source-1.0/backend.py": backend,
		"source-1.0/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"backend\"\n" +
			"backend-path = [\".\"]\n[project]\nname = \"source\"\nversion = \"1.0\"\n",
	}
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	tw := tar.NewWriter(gz)
	for _, name := range sortedNames(files) {
		err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))})
		if err == nil {
			_, err = tw.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := cmp.Or(tw.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// lines returns the non-empty lines of a text.
func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}
