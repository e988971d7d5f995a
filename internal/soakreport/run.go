package soakreport

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Enabled reports whether the tests run at their published counts, as `make soak` runs them.
func Enabled() bool { return os.Getenv("DRAY_TEST_SOAK") == "1" }

// Count returns the number of repetitions: in a soak DRAY_TEST_SOAK_SHARE percent of full, at least
// one, and all of them without that variable; otherwise brief.
func Count(full, brief int) int {
	if !Enabled() {
		return brief
	}
	if share, err := strconv.Atoi(os.Getenv("DRAY_TEST_SOAK_SHARE")); err == nil {
		return max(full*share/100, 1)
	}
	return full
}

// Size returns the size of one repetition: full in a soak, otherwise brief.
func Size(full, brief int64) int64 {
	if Enabled() {
		return full
	}
	return brief
}

var seeds sync.Map // test name -> seed

// Rand returns a generator for t and logs its seed, which DRAY_TEST_SEED sets.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DRAY_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("DRAY_TEST_SEED: %v", err)
		}
	}
	t.Logf("DRAY_TEST_SEED=%d", seed)
	seeds.Store(t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test must be repeatable
}

// seedOf returns the seed of t, else that of the nearest test above it, else 0.
func seedOf(t testing.TB) uint64 {
	for name := t.Name(); ; {
		if seed, ok := seeds.Load(name); ok {
			return seed.(uint64) //nolint:errcheck // the map holds nothing else
		}
		slash := strings.LastIndexByte(name, '/')
		if slash < 0 {
			return 0
		}
		name = name[:slash]
	}
}

// Series collects durations. It is safe for concurrent use.
type Series struct {
	mu  sync.Mutex
	all []time.Duration
}

// Add adds a duration.
func (s *Series) Add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

// Len returns the number of durations.
func (s *Series) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// Percentile returns the duration at the given percentile: 0 is the smallest, 100 the largest. It
// returns 0 if there is none.
func (s *Series) Percentile(percent int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return 0
	}
	slices.Sort(s.all)
	return s.all[min(len(s.all)*percent/100, len(s.all)-1)]
}

// machine describes the machine and the build without anything that identifies it.
var machine = sync.OnceValue(func() string {
	text := fmt.Sprintf("%d cores, %s of memory, Linux %s, Go %s", runtime.NumCPU(), memoryTotal(),
		kernelVersion(), strings.TrimPrefix(runtime.Version(), "go"))
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		text += ", race detector"
	}
	return text
})

func kernelVersion() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	version, _, _ := strings.Cut(strings.TrimSpace(string(b)), "-")
	return version
}

func memoryTotal() string {
	b, _ := os.ReadFile("/proc/meminfo")
	var kib int
	if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kib); err != nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%d GiB", (kib+1<<19)>>20)
}

// packageDir is the directory of the package under test: tests start in it, and may leave it.
var packageDir, _ = os.Getwd()

// moduleRoot returns the directory of go.mod.
var moduleRoot = sync.OnceValue(func() string {
	for dir := packageDir; len(dir) > 1; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	panic("soakreport: no go.mod above the directory of the package")
})

// uncommitted marks the commit of a run whose sources had changed since.
const uncommitted = " + changes"

// commit returns the commit that the test ran at. The pages themselves do not count as changes.
var commit = sync.OnceValue(func() string {
	out, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "unknown"
	}
	if _, err := git("diff", "--quiet", "HEAD", "--", ":/",
		":(top,exclude)docs/evidence"); err != nil {
		return out + uncommitted
	}
	return out
})

// inHistory reports whether the commit of a row is HEAD or one of its ancestors.
func inHistory(commit string) bool {
	_, err := git("merge-base", "--is-ancestor", strings.TrimSuffix(commit, uncommitted), "HEAD")
	return err == nil
}

func git(args ...string) (string, error) {
	cmd := exec.Command("git", args...) //nolint:gosec,noctx // short; arguments of this package
	cmd.Dir = moduleRoot()
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
