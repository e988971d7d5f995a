package devcontainer

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// TrustFiles is what a trust is bound to, by name, so that it can be looked at often without being read: a call that takes a trust for granted
// asks for nothing but the times and sizes of its files.
type TrustFiles struct {
	files   []string // and what may become one
	folders []string // whose entries count
}

// IsTrusted says whether the workspace may be brought up as it stands, and what that answer rests on; nothing, where the operator's
// configuration gives it. Beside false the error says why not.
func (s *TrustStore) IsTrusted(ctx context.Context, loc Location) (bool, TrustFiles, error) {
	_, f, err := s.approve(ctx, loc)
	if err != nil || f == nil {
		return err == nil, TrustFiles{}, err
	}
	return true, TrustFiles{files: slices.Sorted(maps.Keys(f.files)), folders: slices.Sorted(maps.Keys(f.folders))}, nil
}

// Len is the number of files and folders that State looks at.
func (b TrustFiles) Len() int { return len(b.files) + len(b.folders) }

// Stamp is a text that is another one after any of the files changed, and the time of the latest change. The change times that it is made
// of are the kernel's own, which nobody can set back.
func (b TrustFiles) Stamp() (state string, latest time.Time) {
	text := make([]byte, 0, 64*b.Len())
	look := func(path string, entries bool) {
		var st syscall.Stat_t
		text = append(append(text, path...), 0)
		if syscall.Stat(path, &st) != nil {
			return
		}
		text = strconv.AppendUint(text, uint64(st.Mode&syscall.S_IFMT), 36)
		if st.Mode&syscall.S_IFMT == syscall.S_IFDIR && !entries {
			return // only that it is no file
		}
		for _, n := range []int64{int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} { //nolint:gosec // it only has to differ
			text = strconv.AppendInt(append(text, ' '), n, 36)
		}
		if at := time.Unix(0, st.Ctim.Nano()); at.After(latest) {
			latest = at
		}
	}
	for _, path := range b.files {
		look(path, false)
	}
	for _, path := range b.folders {
		look(path, true)
	}
	return string(text), latest
}
