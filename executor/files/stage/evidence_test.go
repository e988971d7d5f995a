package stage

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var soaking = os.Getenv("DRAY_TEST_SOAK") == "1"

// page is one page of docs/evidence.
type page struct {
	file, title, text string
	columns           []string
}

var (
	swapping = page{
		"swaps.md", "What is exchanged while a tree is placed",
		`Somebody exchanged folders, files and links in the destination all the time while trees were placed there. Each came as a whole (*exact*), or with
an error and nothing of it (*refused*); every file was compared. *events* counts what inotify saw happen outside the root, where the links lead.`,
		[]string{"exchanged", "trees", "files each", "exact", "refused", "events"},
	}
	killing = page{
		"kills.md", "What is left of a process that is killed while it places a tree",
		`Each time a process that placed one tree after the other was killed by SIGKILL, mostly when its journal had just been written. After the
recovery, which was killed too in some cases (*recoveries killed*), all files were of one tree: of the one that was being placed (*new*), always so where
its journal was whole, or of the one before (*old*). *left* counts stage folders that were there afterwards.`,
		[]string{"where", "kills", "whole journals", "recoveries killed", "new", "old", "left"},
	}
)

type row struct {
	Cells        []string
	Seed         uint64
	Commit, Date string
}

var (
	writing sync.Mutex
	seeds   sync.Map // test -> the seed it printed
)

// report says what a test found, and where the published counts are run writes it down, in the place of what was found before.
func report(t *testing.T, p page, cells ...string) {
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
	if err := p.write(cells[0], row{cells, number, commitName(), time.Now().UTC().Format(time.DateOnly)}); err != nil {
		t.Error(err)
	}
}

func (p page) write(key string, r row) error {
	writing.Lock()
	defer writing.Unlock()
	const top = "../../../"
	store := top + ".tools/test/evidence/" + strings.TrimSuffix(p.file, ".md") + ".json"
	rows := map[string]row{}
	if b, err := os.ReadFile(store); err == nil {
		if err := json.Unmarshal(b, &rows); err != nil {
			return fmt.Errorf("reading %s: %w", store, err)
		}
	}
	rows[key] = r
	b, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	for path, text := range map[string][]byte{store: b, top + "docs/evidence/" + p.file: p.markdown(rows)} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p page) markdown(rows map[string]row) []byte {
	var b strings.Builder
	columns := append(slices.Clone(p.columns), "seed", "commit", "date")
	fmt.Fprintf(&b, "# %s\n\nWritten by `make soak` on %s.\n\n%s\n\n", p.title, machine(), p.text)
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		fmt.Fprintf(&b, "| %s |\n", strings.Join(append(slices.Clone(r.Cells), fmt.Sprint(r.Seed), r.Commit, r.Date), " | "))
	}
	return []byte(b.String())
}

// machine is what the figures depend on, without anything that names the machine.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	return fmt.Sprintf("%d cores, Linux %s, Go %s, with the race detector", runtime.NumCPU(), release, strings.TrimPrefix(runtime.Version(), "go"))
}

// commitName names what was tested, and says so if it was changed since; what is written here is no change.
func commitName() string {
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(out))
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs/evidence").Run() != nil {
		name += ", changed"
	}
	return name
}
