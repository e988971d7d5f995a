package tool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// The result files of a call are fetched however it ended, and their directory is removed; the
// result has the outcome (EX-23).
func TestResultsDirIsFetched(t *testing.T) {
	for name, script := range map[string]string{
		"succeeded": `touch "$DRAY_RESULTS/a"`, "failed": `touch "$DRAY_RESULTS/a"; exit 3`,
		"killed": `touch "$DRAY_RESULTS/a"; kill -9 $$`, "empty": "true",
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			fetch := &fakeTransfer{report: dray.SyncReport{State: dray.SyncComplete}}
			b.tools.Transfer = fetch
			res := b.call(t, "shell", object{"command": script + `; echo "$DRAY_RESULTS"`})
			if len(fetch.asked) != 1 {
				if name != "empty" || res.Metadata.Sync != nil {
					t.Errorf("got %d requests, %+v", len(fetch.asked), res.Metadata.Sync)
				}
				return
			}
			dir := fetch.asked[0].ResultsDir
			if name == "empty" || !filepath.IsAbs(dir) || res.Metadata.Sync == nil {
				t.Errorf("got %q, %+v", dir, res.Metadata)
			}
			if name == "succeeded" && strings.TrimSpace(res.Stdout.Text) != dir {
				t.Errorf("the tool had %q, and %q was fetched", res.Stdout.Text, dir)
			}
			if _, err := os.Lstat(dir); err == nil {
				t.Errorf("%s is still there", dir)
			}
		})
	}
}
