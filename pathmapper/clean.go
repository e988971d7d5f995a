package pathmapper

import (
	"path"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
)

// Clean returns the cleaned form of an absolute path, by the rules of the package documentation. It
// fails with path_invalid for a relative path, a ".." segment, NUL, and a Windows path.
func Clean(p string) (string, error) {
	if err := invalidPathError(p); err != nil {
		return "", err
	}
	if !strings.HasPrefix(p, "/") {
		return "", dray.Errorf(dray.CodePathInvalid, "%s is not an absolute path", quote(p)).
			WithHint("write the full path, beginning with /")
	}
	return clean(p), nil
}

// clean is path.Clean for an absolute path, faster for a clean one.
func clean(p string) string {
	if len(p) > 1 && p[len(p)-1] != '/' && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	return path.Clean(p)
}

// invalidPathError returns the error of an invalid path, absolute or not.
func invalidPathError(p string) error {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return dray.Errorf(dray.CodePathInvalid, "%s contains a NUL byte", quote(p)).
			WithHint("remove the NUL")
	case isWindows(p):
		return dray.Errorf(dray.CodePathInvalid, "%s is a Windows path", quote(p)).
			WithHint("dray maps Linux paths only; on Windows run it inside WSL and write /mnt/c/... for " +
				"C:\\...")
	case dotDot(p) >= 0:
		return dray.Errorf(dray.CodePathInvalid, `%s has a ".." segment`, quote(p)).
			WithHint("write the path without .. segments: their target depends on symlinks")
	}
	return nil
}

// isWindows reports whether p has the form "C:", "C:\x", "C:/x" or "\\server\share". "C:x" and "\x"
// are names on Linux.
func isWindows(p string) bool {
	if strings.HasPrefix(p, `\\`) {
		return true
	}
	if len(p) < 2 || p[1] != ':' || !isLetter(p[0]) {
		return false
	}
	return len(p) == 2 || p[2] == '\\' || p[2] == '/'
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// dotDot returns the offset of the first ".." segment, or -1.
func dotDot(p string) int {
	for from := 0; ; {
		i := strings.Index(p[from:], "..")
		if i < 0 {
			return -1
		}
		i += from
		end := i + 2
		if (i == 0 || p[i-1] == '/') && (end == len(p) || p[end] == '/') {
			return i
		}
		from = end
	}
}

// relativeTo returns the path of p relative to root, and whether p is under root. Both are clean.
func relativeTo(p, root string) (rest string, ok bool) {
	if root == "/" {
		return p[1:], true
	}
	rest, ok = strings.CutPrefix(p, root)
	if !ok || rest == "" {
		return "", ok
	}
	if rest[0] != '/' {
		return "", false
	}
	return rest[1:], true
}

// join is the inverse of relativeTo.
func join(root, rest string) string {
	switch {
	case rest == "":
		return root
	case root == "/":
		return "/" + rest
	default:
		return root + "/" + rest
	}
}

// quote returns a path for errors: escaped, because it may be from a container, and truncated.
func quote(p string) string {
	const limit = 200
	if len(p) > limit {
		return strconv.Quote(p[:limit]) + "..."
	}
	return strconv.Quote(p)
}
