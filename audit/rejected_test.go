package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// stateBytes returns the size of the files of the log, as the disk has them.
func stateBytes(t *testing.T, path string) (sum int64) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(path + suffix)
		must(t, err)
		sum += info.Size()
	}
	return sum
}

// rejected returns the recorded counts, and their sum.
func rejected(t *testing.T, s *Store) (counts []RequestsRejected, sum int64) {
	t.Helper()
	for _, e := range events(t, s, EventQuery{Kind: "rejected", Limit: 1000}) {
		var b RequestsRejected
		must(t, json.Unmarshal(e.Body, &b))
		counts = append(counts, b)
		sum += b.Count
	}
	return counts, sum
}

// A flood of rejected requests of many principals adds a bounded number of bytes to the disk, and
// none is lost when the log is closed (AU-09).
func TestFloodOfRejectionsIsBounded(t *testing.T) {
	const flood = 100_000
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	before := stateBytes(t, opts.Path)
	for i := range flood {
		s.CountRejection(fmt.Sprint("uid:", i%1000), dray.CodeInvalidRequest)
	}
	if now := stateBytes(t, opts.Path); now != before {
		t.Errorf("the files have %d bytes more before the window ends", now-before)
	}
	s.rejections.timer.Reset(0) // the window ends
	for n := 0; n == 0; {
		counts, sum := rejected(t, s)
		if n = len(counts); n > 0 && (n != maxRejections+1 || sum != flood) {
			t.Errorf("%d events count %d requests", n, sum)
		}
	}
	if more := stateBytes(t, opts.Path) - before; more > 256<<10 {
		t.Errorf("%d rejections add %d bytes", flood, more)
	}
	s.CountRejection("uid:1", dray.CodeBusy)
	must(t, s.Close(t.Context()))
	s, _ = reopen(t, opts)
	if counts, sum := rejected(t, s); sum != flood+1 || counts[0].Code != dray.CodeBusy ||
		counts[0].Principal != "uid:1" || counts[0].FirstAt.IsZero() {
		t.Errorf("%d requests after the close, the last is %+v", sum, counts[0])
	}
	checkChain(t, s)
}

// While the log cannot be written, rejections are counted in memory, and none is lost (AU-09).
func TestRejectionsOfAnOutageAreCounted(t *testing.T) {
	opts := impatient(t.TempDir())
	s := open(t, opts)
	s.rejections.window = time.Millisecond
	unlock := lockDatabase(t, opts.Path)
	for range 3 {
		s.CountRejection("uid:1", dray.CodeBusy)
		_ = refused(t, s, newInvocation("exec"))
	}
	unlock()
	for sum := int64(0); sum != 3; _, sum = rejected(t, s) {
		must(t, t.Context().Err())
	}
	if counts, _ := rejected(t, s); len(counts) > 2 {
		t.Errorf("%d events", len(counts))
	}
}

// checkChain checks what checkLog does of the table events alone.
func checkChain(t *testing.T, s *Store) {
	t.Helper()
	if gaps := scan[int](t, s.read, `SELECT max(seq) - count(*) FROM events`); gaps != 0 {
		t.Errorf("%d events are missing", gaps)
	}
	checkLeaves(t, s.read)
}
