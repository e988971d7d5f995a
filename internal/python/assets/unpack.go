package assets

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// maxSkipped bounds the unpacked bytes of a package besides its pinned files, maxMembers the number
// of its members.
const (
	maxSkipped = 8 << 20
	maxMembers = 10_000
)

// unpack writes the pinned files of a package into a folder. It refuses members that lead out of
// the package or are no files, second members of the same name, and any content but the pinned one.
func unpack(ctx context.Context, from io.Reader, pkg *Package, into *os.Root) error {
	unzipped, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", pkg.Name, err)
	}
	wanted := int64(maxSkipped)
	for _, f := range pkg.Files {
		wanted += f.Size
	}
	limited := &io.LimitedReader{R: unzipped, N: wanted}
	missing, err := unpackMembers(ctx, tar.NewReader(limited), pkg, into)
	switch {
	case limited.N <= 0:
		return fmt.Errorf("read %s: it is longer than %d bytes", pkg.Name, wanted)
	case err != nil:
		return fmt.Errorf("read %s: %w", pkg.Name, err)
	}
	for name := range missing {
		return fmt.Errorf("read %s: it has no %s", pkg.Name, name)
	}
	return nil
}

// unpackMembers returns the pinned files that were not found.
func unpackMembers(ctx context.Context, r *tar.Reader, pkg *Package, into *os.Root,
) (missing map[string]File, err error) {
	missing, seen := map[string]File{}, map[string]bool{}
	for _, f := range pkg.Files {
		missing[f.Name] = f
	}
	for range maxMembers {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return missing, nil
		}
		if err != nil {
			return nil, err
		}
		name, err := memberName(h)
		if err == nil && seen[name] {
			err = fmt.Errorf("%q is in it twice", h.Name)
		}
		if err != nil {
			return nil, err
		}
		seen[name] = true
		f, ok := missing[name]
		if !ok {
			continue
		}
		delete(missing, name)
		if h.Size != f.Size {
			return nil, fmt.Errorf("%s has %d bytes and not %d", name, h.Size, f.Size)
		}
		if err := writeFile(ctx, into, path.Join(pkg.Folder, name), f, r); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("it has more than %d members", maxMembers)
}

// memberName returns the name of a member in its package, empty for a folder.
func memberName(h *tar.Header) (string, error) {
	name, inside := strings.CutPrefix(h.Name, "package/")
	clean := strings.TrimSuffix(name, "/")
	if !inside || strings.HasPrefix(clean, "/") || path.Clean("/"+clean) != "/"+clean {
		return "", fmt.Errorf("%q leads out of the package", h.Name)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return name, nil
	case tar.TypeDir:
		return clean, nil
	default:
		return "", fmt.Errorf("%q is neither a file nor a directory", h.Name)
	}
}

// errOther is returned for a file with other content than the pinned one.
var errOther = errors.New("not the pinned file")

// writeFile writes a new file with the content that is pinned, and syncs it.
func writeFile(ctx context.Context, into *os.Root, name string, want File, from io.Reader) error {
	mode := os.FileMode(0o444)
	if want.Executable {
		mode = 0o555
	}
	f, err := into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	err = copyTo(ctx, io.MultiWriter(f, sum), from)
	if got := hexOf(sum); err == nil && got != want.SHA256 {
		err = fmt.Errorf("%w: %s has sha256 %s and not %s", errOther, name, got, want.SHA256)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
