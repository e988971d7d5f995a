package assetstest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Wheel is a package that a test makes. It has the module of its name, with __version__.
type Wheel struct {
	Name, Version string
	Requires      []string          // metadata lines of Requires-Dist
	Files         map[string]string // more files, or another __init__.py
	// More adds what no proper wheel has, after the files. It may be nil.
	More func(z *zip.Writer) error
}

// File returns the name of the wheel's file.
func (w Wheel) File() string { return w.Name + "-" + w.Version + "-py3-none-any.whl" }

// Pack returns the content of the wheel's file.
func (w Wheel) Pack(tb testing.TB) []byte {
	tb.Helper()
	var meta strings.Builder
	fmt.Fprintf(&meta, "Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.Name, w.Version)
	for _, other := range w.Requires {
		fmt.Fprintf(&meta, "Requires-Dist: %s\n", other)
	}
	info := fmt.Sprintf("%s-%s.dist-info/", w.Name, w.Version)
	files := map[string]string{
		w.Name + "/__init__.py": fmt.Sprintf("__version__ = %q\n", w.Version),
		info + "METADATA":       meta.String(),
		info + "WHEEL":          "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":         "",
	}
	maps.Copy(files, w.Files)
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := z.Create(name)
		if err == nil {
			_, err = f.Write([]byte(files[name]))
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if w.More != nil {
		if err := w.More(z); err != nil {
			tb.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}
