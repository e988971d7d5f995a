// Command pinpython writes the pins of Deno and Pyodide: what a maintainer runs to take another
// version.
//
//	go run ./scripts/pinpython -deno 2.9.6 -deno-arm64 2.9.5 -pyodide 314.0.7 \
//	    >internal/python/assets/manifest.json
//
// It downloads each package from the npm registry, compares it with the registry's own checksum,
// and prints the SHA-256 of the package and of the files that dray uses.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/python/assets"
)

const registry = "https://registry.npmjs.org/"

// maxPackage bounds a package, packed or not, in bytes.
const maxPackage = 512 << 20

// pyodideFiles are what Pyodide needs to run: no types, source maps and pages.
var pyodideFiles = []string{
	"pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "pyodide.mjs", "python_stdlib.zip",
}

func main() {
	deno := flag.String("deno", "", "`version` of Deno")
	arm := flag.String("deno-arm64", "", "`version` of Deno on arm64 (default: that of -deno)")
	pyodide := flag.String("pyodide", "", "`version` of Pyodide")
	flag.Parse()
	if *deno == "" || *pyodide == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), *deno, cmp.Or(*arm, *deno), *pyodide); err != nil {
		fmt.Fprintln(os.Stderr, "pinpython:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, deno, arm, pyodide string) error {
	wanted := []struct {
		pkg   assets.Package
		files []string
	}{
		{
			assets.Package{Name: "@deno/linux-x64-glibc", Version: deno, Platform: "linux/amd64"},
			[]string{"deno"},
		},
		{
			assets.Package{Name: "@deno/linux-arm64-glibc", Version: arm, Platform: "linux/arm64"},
			[]string{"deno"},
		},
		{assets.Package{Name: "pyodide", Version: pyodide, Folder: "pyodide"}, pyodideFiles},
	}
	var m assets.Manifest
	for _, w := range wanted {
		if err := pin(ctx, &w.pkg, w.files); err != nil {
			return fmt.Errorf("pin %s %s: %w", w.pkg.Name, w.pkg.Version, err)
		}
		m.Packages = append(m.Packages, w.pkg)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(m)
}

// pin downloads a package and fills in its address, sizes and checksums.
func pin(ctx context.Context, pkg *assets.Package, files []string) error {
	integrity, err := publish(ctx, pkg)
	if err != nil {
		return err
	}
	tarball, err := get(ctx, pkg.URL)
	if err != nil {
		return err
	}
	sum := sha512.Sum512(tarball)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return fmt.Errorf("%s has %s, and the registry says %s", pkg.URL, got, integrity)
	}
	pkg.Size, pkg.SHA256 = int64(len(tarball)), digest(tarball)
	return pinFiles(pkg, tarball, files)
}

// publish asks the registry for the address and the checksum of a package.
func publish(ctx context.Context, pkg *assets.Package) (integrity string, err error) {
	about, err := get(ctx, registry+strings.ReplaceAll(pkg.Name, "/", "%2f")+"/"+pkg.Version)
	if err != nil {
		return "", err
	}
	var version struct {
		Dist struct{ Tarball, Integrity string }
	}
	if err := json.Unmarshal(about, &version); err != nil {
		return "", err
	}
	if !strings.HasPrefix(version.Dist.Tarball, registry) {
		return "", fmt.Errorf("the package is at %q", version.Dist.Tarball)
	}
	pkg.URL = version.Dist.Tarball
	return version.Dist.Integrity, nil
}

func pinFiles(pkg *assets.Package, tarball []byte, files []string) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return err
	}
	for r := tar.NewReader(io.LimitReader(unzipped, maxPackage)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(h.Name, "package/")
		if !slices.Contains(files, name) {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		pkg.Files = append(pkg.Files, assets.File{
			Name: name, Size: int64(len(data)), SHA256: digest(data), Executable: name == "deno",
		})
	}
	if len(pkg.Files) != len(files) {
		return fmt.Errorf("it has %d of the %d files %v", len(pkg.Files), len(files), files)
	}
	slices.SortFunc(pkg.Files, func(a, b assets.File) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPackage))
}
