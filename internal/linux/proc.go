package linux

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is one line of a mountinfo file (proc(5), /proc/pid/mountinfo).
type Mount struct {
	ID int // unique among the present mounts
	// Device is the file system's device, "major:minor".
	Device string
	// Root is the directory of the file system that is mounted, Point the path it is mounted on.
	Root, Point string
	// ReadOnly is the flag of this mount, whatever that of the file system is.
	ReadOnly bool
	// FSType is the type of the file system. Options are those of the superblock.
	FSType  string
	Options []string
}

// Mounts returns the mounts of a mountinfo file in its order. It skips malformed lines.
func Mounts(table []byte) iter.Seq[Mount] {
	return func(yield func(Mount) bool) {
		for line := range bytes.Lines(table) {
			if m, ok := parseMount(string(line)); ok && !yield(m) {
				return
			}
		}
	}
}

func parseMount(line string) (Mount, bool) {
	head, tail, _ := strings.Cut(line, " - ")
	fields, super := strings.Fields(head), strings.Fields(tail)
	if len(fields) < 6 || len(super) < 1 {
		return Mount{}, false
	}
	id, err := strconv.Atoi(fields[0])
	if err != nil {
		return Mount{}, false
	}
	m := Mount{
		ID: id, Device: fields[2], Root: unescape.Replace(fields[3]), Point: unescape.Replace(fields[4]),
		ReadOnly: slices.Contains(strings.Split(fields[5], ","), "ro"), FSType: super[0],
	}
	if len(super) >= 3 {
		m.Options = strings.Split(super[2], ",")
	}
	return m, true
}

// unescape replaces the octal escapes that the kernel writes for separators.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// ReadFile reads a file of /proc or /sys. It makes three system calls for a file below 1 KiB, and
// does not register the file with the runtime's poller.
func ReadFile(path string) ([]byte, error) {
	fd, err := Openat(unix.AT_FDCWD, path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer Close(fd)
	return ReadAll(fd)
}

// ReadAll reads a file of /proc, /sys or a cgroup from its start, whatever the offset of fd is.
func ReadAll(fd int) ([]byte, error) {
	b := make([]byte, 0, 1024)
	for {
		n, err := RetryValue(func() (int, error) {
			return unix.Pread(fd, b[len(b):cap(b)], int64(len(b)))
		})
		if err != nil {
			return nil, err
		}
		b = b[:len(b)+n]
		if n == 0 || len(b) < cap(b) { // the kernel fills the buffer unless the file ends
			return b, nil
		}
		b = append(b, 0)[:len(b)]
	}
}

// Field returns what follows name at the start of a line of text, without white space at its ends;
// nil if no line starts with name. Files of /proc and cgroups have one such line for each name.
func Field(text []byte, name string) []byte {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return bytes.TrimSpace(rest)
		}
	}
	return nil
}

// Numbers returns the decimal numbers in text, which are separated by white space. It skips other
// words.
func Numbers(text []byte) (list []int) {
	for field := range bytes.FieldsSeq(text) {
		if n, err := strconv.Atoi(string(field)); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// Poll waits until one of fds is ready or the timeout has elapsed. A negative timeout waits
// forever. An interrupted wait returns with no fd ready.
func Poll(fds []unix.PollFd, timeout time.Duration) {
	var limit *unix.Timespec
	if timeout >= 0 {
		ts := unix.NsecToTimespec(timeout.Nanoseconds())
		limit = &ts
	}
	_, _ = unix.Ppoll(fds, limit, nil) // what is ready is in fds
}
