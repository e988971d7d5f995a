package trust

import (
	"context"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/dray-dev/dray/internal/linux"
)

// Files are the paths of the trust inputs. Stamp detects a change by times and sizes, without
// reading them.
type Files struct {
	dir     linux.UntrustedDir
	files   []string // absent ones included
	folders []string
}

// Len returns the number of paths that Stamp examines.
func (b Files) Len() int { return len(b.files) + len(b.folders) }

// Stamp returns a text that differs after any of the files has changed, and the time of the latest
// change. It uses the files' change times, which programs cannot set. It fails if the files cannot
// be examined in time.
func (b Files) Stamp(ctx context.Context) (state string, latest time.Time, err error) {
	paths := slices.Concat(b.files, b.folders)
	if len(paths) == 0 {
		return "", time.Time{}, nil
	}
	stats, err := b.dir.StatAll(ctx, paths)
	text := make([]byte, 0, 64*len(stats))
	for i := range stats {
		st := &stats[i]
		text = append(append(text, paths[i]...), 0)
		if st.Mode == 0 {
			continue // it does not exist
		}
		text = strconv.AppendUint(text, uint64(st.Mode&syscall.S_IFMT), 36)
		if st.Mode&syscall.S_IFMT == syscall.S_IFDIR && i < len(b.files) {
			continue // only its type counts
		}
		//nolint:gosec // it only has to differ
		for _, n := range []int64{int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()} {
			text = strconv.AppendInt(append(text, ' '), n, 36)
		}
		if at := time.Unix(0, st.Ctim.Nano()); at.After(latest) {
			latest = at
		}
	}
	return string(text), latest, err
}
