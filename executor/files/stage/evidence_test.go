package stage

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/dray-dev/dray/internal/evidence"
)

var soaking = os.Getenv("DRAY_TEST_SOAK") == "1"

var (
	swapping = evidence.Page{
		File: "swaps.md", Title: "What is exchanged while a tree is placed",
		Text: `Somebody exchanged folders, files and links in the destination all the time while trees were placed there. Each came as a whole (*exact*), or with
an error and nothing of it (*refused*); every file was compared. *events* counts what inotify saw happen outside the root, where the links lead.`,
		Columns: []string{"exchanged", "trees", "files each", "exact", "refused", "events"},
		Key:     1, Machine: machine,
	}
	killing = evidence.Page{
		File: "kills.md", Title: "What is left of a process that is killed while it places a tree",
		Text: `Each time a process that placed one tree after the other was killed by SIGKILL, mostly when its journal had just been written. After the
recovery, which was killed too in some cases (*recoveries killed*), all files were of one tree: of the one that was being placed (*new*), always so where
its journal was whole, or of the one before (*old*). *left* counts stage folders that were there afterwards.`,
		Columns: []string{"where", "kills", "whole journals", "recoveries killed", "new", "old", "left"},
		Key:     1, Machine: machine,
	}
)

var seeds sync.Map // test -> the seed it printed

// report says what a test found, and where the published counts are run writes it down, in the
// place of what was found before.
func report(t *testing.T, p evidence.Page, cells ...string) {
	t.Helper()
	t.Log(strings.Join(cells, " | "))
	if !soaking || t.Failed() {
		return
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	seed, ok := seeds.Load(t.Name())
	if !ok {
		seed, _ = seeds.Load(name)
	}
	number, _ := seed.(uint64)
	if err := p.WriteRow(number, cells...); err != nil {
		t.Error(err)
	}
}

// machine is what the figures depend on.
func machine() string {
	return fmt.Sprintf("%d cores, %s, %s, with the race detector", runtime.NumCPU(), evidence.Kernel(),
		evidence.Go())
}
