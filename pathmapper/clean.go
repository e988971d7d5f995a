package pathmapper

import (
	"path"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
)

// Clean gives the one form in which dray compares, checks and uses an absolute path; the package
// documentation has the rules. It fails with path_invalid for a path that is relative, has a ".."
// segment or NUL, or is a Windows path.
func Clean(p string) (string, error) {
	if err := invalidPathError(p); err != nil {
		return "", err
	}
	if !strings.HasPrefix(p, "/") {
		return "", dray.Errorf(dray.CodePathInvalid, "%s is not an absolute path", quote(p)).
			WithHint("write it from / on")
	}
	return clean(p), nil
}

// clean is path.Clean for an absolute path, faster for those that are clean already, as nearly all
// are.
func clean(p string) string {
	if len(p) > 1 && p[len(p)-1] != '/' && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	return path.Clean(p)
}

// invalidPathError gives the error of a path that is never accepted, absolute or not.
func invalidPathError(p string) error {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return dray.Errorf(dray.CodePathInvalid, "%s contains a NUL byte", quote(p)).
			WithHint("no file can have that name: remove the NUL")
	case isWindows(p):
		return dray.Errorf(dray.CodePathInvalid, "%s is a Windows path", quote(p)).
			WithHint("dray maps Linux paths only; on Windows run it inside WSL and write /mnt/c/... for C:\\...")
	case hasDotDot(p):
		return dray.Errorf(dray.CodePathInvalid, `%s has a ".." segment`, quote(p)).
			WithHint("write the path that is meant without ..: links decide where .. leads, so it is not resolved here")
	}
	return nil
}

// isWindows knows "C:", "C:\x", "C:/x" and "\\server\share". "C:x" and "\x" could be meant so too,
// but are plain Linux names.
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

func hasDotDot(p string) bool { return dotDot(p) >= 0 }

// dotDot gives the offset of the first ".." segment, or -1.
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

// relativeTo gives what follows root in p, without a slash between them, if p is root or lies under
// it. Both are clean.
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

// join is the inverse of below.
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

// trailingSlash gives the "/" or "/." at the end of a path, which cleaning takes away.
func trailingSlash(p string) string {
	switch {
	case strings.HasSuffix(p, "/."):
		return "/."
	case strings.HasSuffix(p, "/"):
		return "/"
	default:
		return ""
	}
}

// quote writes a path for people: escaped, because it may come from a container, and cut, because
// it may be long.
func quote(p string) string {
	const limit = 200
	if len(p) > limit {
		return strconv.Quote(p[:limit]) + "..."
	}
	return strconv.Quote(p)
}
