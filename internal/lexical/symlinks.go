package lexical

import "path"

// MaxSymlinks bounds the symlinks of a path, as the kernel does.
const MaxSymlinks = 40

// FollowSymlinks returns the symlinks that an absolute path leads through, and last the path
// without symlinks, which need not exist. After MaxSymlinks of them it may lead through more. A
// program that can replace one of them decides where the path leads.
func FollowSymlinks(readlink func(name string) (string, error), name string) []string {
	var followed []string
	for range MaxSymlinks {
		link, target := firstLink(readlink, name)
		if link == "" {
			break
		}
		followed = append(followed, link)
		name = Resolve(path.Dir(link), target) + name[len(link):]
	}
	return append(followed, path.Clean(name))
}

// firstLink returns the first symlink of an absolute path and its target.
func firstLink(readlink func(name string) (string, error), name string) (link, target string) {
	for i := 1; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		if target, err := readlink(name[:i]); err == nil {
			return name[:i], target
		}
	}
	return "", ""
}
