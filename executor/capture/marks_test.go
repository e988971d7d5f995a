package capture_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// The figures of a redacted stream count what the tool wrote, and what was kept is the redacted
// stream (CA-02).
func TestSummary_Redacted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mark := []byte("[redacted:0123456789abcdef]")
	for i := range 100 {
		view := 1 + rng.IntN(200)
		s := newStore(t, 1<<20, view)
		c := s.New(fmt.Sprint("call", i), dray.Stdout)
		var redacted []byte
		var wrote []int64 // bytes that the tool wrote up to the end of each redacted byte's piece
		total := int64(0)
		for range rng.IntN(40) {
			if rng.IntN(2) == 0 {
				text := bytes.Repeat([]byte("x"), rng.IntN(60))
				_, _ = c.Write(text)
				redacted = append(redacted, text...)
				for range text {
					total++
					wrote = append(wrote, total)
				}
				continue
			}
			size := int64(1 + rng.IntN(80))
			_ = c.WriteMark(mark, size)
			redacted = append(redacted, mark...)
			total += size
			for range mark {
				wrote = append(wrote, total)
			}
		}
		_ = c.Close()
		head := min(view, len(redacted))
		tail := min(view, len(redacted)-head)
		at := func(n int) int64 {
			if n == 0 {
				return 0
			}
			return wrote[n-1]
		}
		headBytes := at(head)
		if len(redacted) > 2*view { // a mark that the end of the head divides is omitted
			for head > 0 && head < len(redacted) && wrote[head-1] == wrote[head] {
				head--
			}
			headBytes = at(head)
		}
		sum := c.Summary()
		if sum.TotalBytes != total || sum.KeptBytes != int64(len(redacted)) || sum.Truncated ||
			sum.HeadBytes != headBytes || sum.HeadBytes+sum.OmittedBytes != at(len(redacted)-tail) ||
			sum.HeadBytes+sum.OmittedBytes+sum.TailBytes != total {
			t.Fatalf("call %d: %+v of %d redacted bytes, %d written, a view of %d",
				i, sum, len(redacted), total, view)
		}
		if omitted := len(redacted) > 2*view; omitted != strings.Contains(sum.Text, "bytes omitted") {
			t.Errorf("%d bytes with a view of %d: %q", len(redacted), view, sum.Text)
		}
		c.Release()
	}
}
