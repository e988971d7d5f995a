package files

import (
	"io"
	"syscall"

	"github.com/dray-dev/dray"
)

// hardLinks are the files with several names that were come to. Whether all of their names were, is known at the end.
type hardLinks struct {
	names []linkName
	seen  map[inode]uint64 // how many names of a file were come to
}

type linkName struct {
	name  string
	inode inode
}

// inode is a file whatever its names.
type inode struct{ dev, ino uint64 }

func inodeOf(s *syscall.Stat_t) inode { return inode{s.Dev, s.Ino} }

func (s *hardLinks) add(name string, stat *syscall.Stat_t) {
	if s.seen == nil {
		s.seen = map[inode]uint64{}
	}
	s.seen[inodeOf(stat)]++
	s.names = append(s.names, linkName{name, inodeOf(stat)})
}

// next gives the next of the names, io.EOF after the last.
func (s *hardLinks) next(c *treeReader) (item, error) {
	if len(s.names) == 0 {
		return noItem, io.EOF
	}
	n := s.names[0]
	s.names = s.names[1:]
	dir, element, err := c.descend(n.name)
	if err != nil {
		return c.openError(n.name, err)
	}
	defer dir.close()
	var stat syscall.Stat_t
	there, err := dir.look(element, &stat)
	if err != nil {
		return c.openError(n.name, err)
	}
	defer there.close()
	switch {
	case stat.Mode&syscall.S_IFMT != syscall.S_IFREG || inodeOf(&stat) != n.inode:
		return noItem, changed(n.name)
	case uint64(stat.Nlink) != s.seen[n.inode]: //nolint:unconvert // it is shorter on arm64
		return refused(n.name, dray.Errorf(dray.CodePathInvalid, "%.200q has %d names, of which %d are taken: a hard link to elsewhere",
			n.name, stat.Nlink, s.seen[n.inode]))
	default:
		return c.file(there, n.name, &stat)
	}
}
