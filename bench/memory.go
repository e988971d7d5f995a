package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/moby/client"
)

// rssTracker is what a set of processes holds in memory. The kernel keeps the peak, so none is
// missed between two looks.
type rssTracker struct {
	before map[int]int64 // bytes by pid, when the peak was set back
}

// watchMemory sets the peak of processes back to what they hold now.
func watchMemory(pids []int) (*rssTracker, error) {
	r := &rssTracker{before: map[int]int64{}}
	for _, pid := range pids {
		now, err := memoryOf(pid, "VmRSS")
		if err != nil {
			return nil, err
		}
		const peak = "5" // see proc(5)
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(peak), 0); err != nil {
			return nil, fmt.Errorf("setting the peak of memory back: %w", err)
		}
		r.before[pid] = now
	}
	return r, nil
}

// growth is by how many bytes the peaks of those that still live lie above what they held before,
// added up. One that was not there before counts with its whole peak.
func (r *rssTracker) growth(pids []int) (bytes int64, err error) {
	for _, pid := range pids {
		peak, err := memoryOf(pid, "VmHWM")
		if errors.Is(err, os.ErrNotExist) {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		bytes += max(0, peak-r.before[pid])
	}
	return bytes, nil
}

func memoryOf(pid int, field string) (bytes int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return statusField(string(b), field)
}

// statusField reads one size of proc(5)'s status file.
func statusField(status, field string) (bytes int64, err error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel tells no %s: %w", field, os.ErrNotExist)
}

// containerPIDs gives the host's pids of the container's processes whose command line has a word.
func (r *testbed) containerPIDs(ctx context.Context, word string) (pids []int, err error) {
	top, err := r.api.ContainerTop(ctx, r.container.ID,
		client.ContainerTopOptions{Arguments: []string{"-eo", "pid,args"}})
	if err != nil {
		return nil, fmt.Errorf("listing the container's processes: %w", err)
	}
	for _, row := range top.Processes {
		pid, err := strconv.Atoi(strings.TrimSpace(row[0]))
		if err == nil && strings.Contains(strings.Join(row[1:], " "), word) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// The words by which the processes in the container are known.
const (
	agentWord = "dray-agent"
	rexWord   = "swerex.server"
)

// memoryLoad is something that is done while memory is watched.
type memoryLoad struct {
	name string
	who  func(ctx context.Context) (map[string][]int, error) // pids by part
	run  func(ctx context.Context) error
}

// memoryGrowth is by how much the parts grew under a load, in bytes.
type memoryGrowth struct {
	load string
	grew map[string]int64
}

// The parts whose memory is told.
const (
	partDaemon = "daemon"
	partAgent  = "agents and supervisors"
	partRex    = "SWE-ReX's server"
)

// memory watches each load.
func memory(ctx context.Context, loads []memoryLoad, progress func(string)) ([]memoryGrowth,
	error,
) {
	all := make([]memoryGrowth, 0, len(loads))
	for _, l := range loads {
		progress("memory: " + l.name)
		h, err := l.watched(ctx)
		if err != nil {
			return nil, fmt.Errorf("memory under %s: %w", l.name, err)
		}
		all = append(all, h)
	}
	return all, nil
}

func (l memoryLoad) watched(ctx context.Context) (memoryGrowth, error) {
	h := memoryGrowth{load: l.name, grew: map[string]int64{}}
	before, err := l.who(ctx)
	if err != nil {
		return h, err
	}
	parts := map[string]*rssTracker{}
	for part, pids := range before {
		if parts[part], err = watchMemory(pids); err != nil {
			return h, err
		}
	}
	if err := l.run(ctx); err != nil {
		return h, err
	}
	after, err := l.who(ctx)
	if err != nil {
		return h, err
	}
	for part, r := range parts {
		if h.grew[part], err = r.growth(after[part]); err != nil {
			return h, err
		}
	}
	return h, nil
}

// loads are what memory is watched under.
func loads(r *testbed, bytes int64) []memoryLoad {
	var all []memoryLoad
	for _, d := range r.daemons() {
		who := func(ctx context.Context) (map[string][]int, error) {
			agents, err := r.containerPIDs(ctx, agentWord)
			return map[string][]int{partDaemon: {d.pid()}, partAgent: agents}, err
		}
		all = append(all,
			memoryLoad{
				loadOne(d.name), who,
				func(ctx context.Context) error { return d.flood(ctx, r.workspace, floodOf(bytes), bytes, 0) },
			},
			memoryLoad{
				loadBoth(d.name), who,
				func(ctx context.Context) error { return d.flood(ctx, r.workspace, bothOf(bytes), bytes, bytes) },
			},
			memoryLoad{
				loadSmall(d.name), who,
				func(ctx context.Context) error { return d.flood(ctx, r.workspace, floodOf(rexBytes), rexBytes, 0) },
			},
		)
	}
	if r.rex != nil {
		who := func(ctx context.Context) (map[string][]int, error) {
			pids, err := r.containerPIDs(ctx, rexWord)
			return map[string][]int{partRex: pids}, err
		}
		all = append(all, memoryLoad{
			loadSmall(wayRex), who,
			func(ctx context.Context) error { return r.rex.flood(ctx, rexBytes) },
		})
	}
	return all
}

func loadOne(name string) string   { return name + ": 2 GB of stdout" }
func loadBoth(name string) string  { return name + ": 2 GB on both streams at once" }
func loadSmall(name string) string { return name + ": 500 MB of stdout" }
