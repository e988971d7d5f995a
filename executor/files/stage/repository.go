package stage

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
)

// IsRepository reports whether git takes a directory for a repository, as is_git_directory in its
// setup.c does. Git then runs what the configuration there names, or the configuration of the
// directory that commondir names. has reports whether the directory has a name.
func IsRepository(has func(name string) (bool, error)) (bool, error) {
	head, err := has("HEAD")
	if err != nil || !head {
		return false, err
	}
	linked, err := has("commondir")
	if err != nil || linked {
		return linked, err
	}
	objects, err := has("objects")
	if err != nil || !objects {
		return false, err
	}
	return has("refs")
}

// RepositoryError returns the error for a directory that may not become a repository, or is one.
func RepositoryError(name string) *dray.Error {
	return dray.Errorf(dray.CodeDenied,
		"git would take the directory %q for a repository, and run what its configuration names", name).
		WithHint("copy less of it, or choose another directory: HEAD together with objects and refs, " +
			"or with commondir, makes a repository")
}

// checkRepositories fails if git would take a directory that the tree writes to for a repository.
// What exists there counts as well. A directory ".git" may be one: the names in it that run code
// are refused.
func (t *transaction) checkRepositories(dest *dirCache) error {
	if !t.how.RefuseRepositories {
		return nil
	}
	written := map[string]bool{} // folded, as the file system may ignore case
	for name := range t.byName {
		written[Fold(name)] = true
	}
	for name, it := range t.byName {
		_, base := split(name)
		if !it.dir || Fold(base) == ".git" {
			continue
		}
		found, err := IsRepository(t.hasName(dest, it, written))
		if err != nil {
			return opError("inspect", name, err)
		}
		if found {
			return RepositoryError(name + "/")
		}
	}
	return nil
}

// hasName returns a function that reports whether a directory of the tree will have a name.
func (t *transaction) hasName(dest *dirCache, dir *item, written map[string]bool,
) func(name string) (bool, error) {
	return func(name string) (bool, error) {
		full := name
		if dir.name != "" {
			full = dir.name + "/" + name
		}
		if written[Fold(full)] || dir.existing.kind != directory || t.removed[full] != nil {
			return written[Fold(full)], nil
		}
		fd, err := dest.get(dir.name)
		if err != nil {
			return false, err
		}
		var st unix.Stat_t
		err = t.stat(fd, name, &st)
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return err == nil, err
	}
}

// Fold returns the same text for names that are one name on a file system that ignores case,
// including letters with special forms, such as the long s, and invisible characters.
func Fold(name string) string {
	if strings.IndexFunc(name, needsFold) < 0 {
		return name
	}
	return strings.ToLower(strings.ToUpper(strings.Map(visible, name)))
}

func needsFold(r rune) bool { return r >= utf8.RuneSelf || 'A' <= r && r <= 'Z' }

func visible(r rune) rune {
	if r >= utf8.RuneSelf && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector) {
		return -1
	}
	return r
}
