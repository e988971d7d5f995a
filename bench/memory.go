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

// rssTracker measures the growth of resident memory of a set of processes. The kernel keeps the
// peak.
type rssTracker struct {
	before map[int]int64 // bytes by pid, when the peak was reset
}

// watchMemory resets the peak of the processes to what they use now.
func watchMemory(pids []int) (*rssTracker, error) {
	r := &rssTracker{before: map[int]int64{}}
	for _, pid := range pids {
		now, err := memoryOf(pid, "VmRSS")
		if err != nil {
			return nil, err
		}
		const peak = "5" // see proc(5)
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte(peak), 0); err != nil {
			return nil, fmt.Errorf("reset the peak of memory: %w", err)
		}
		r.before[pid] = now
	}
	return r, nil
}

// growth returns the sum of the differences between peak and former use in bytes. A process that
// was not there before counts with its whole peak, one that has ended not at all.
func (r *rssTracker) growth(pids []int) (bytes int64, err error) {
	for _, pid := range pids {
		peak, err := memoryOf(pid, "VmHWM")
		if errors.Is(err, os.ErrNotExist) {
			continue
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

// statusField returns a size in bytes from the text of /proc/PID/status. It returns
// os.ErrNotExist if there is none, as for a zombie.
func statusField(status, field string) (bytes int64, err error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no field %s in /proc/PID/status: %w", field, os.ErrNotExist)
}

// containerPIDs returns the host's pids of the container's processes whose command line contains a
// word.
func (b *testbed) containerPIDs(ctx context.Context, word string) (pids []int, err error) {
	top, err := b.api.ContainerTop(ctx, b.container.ID,
		client.ContainerTopOptions{Arguments: []string{"-eo", "pid,args"}})
	if err != nil {
		return nil, fmt.Errorf("list the container's processes: %w", err)
	}
	for _, row := range top.Processes {
		pid, err := strconv.Atoi(strings.TrimSpace(row[0]))
		if err == nil && strings.Contains(strings.Join(row[1:], " "), word) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// memoryLoad is something that is done while memory is measured.
type memoryLoad struct {
	name      string
	processes func(ctx context.Context) (map[string][]int, error) // pids by program
	run       func(ctx context.Context) error
}

// memoryGrowth is the growth of the programs under a load, in bytes.
type memoryGrowth struct {
	load string
	grew map[string]int64
}

// The programs whose memory is measured.
const (
	processDaemon = "daemon"
	processAgent  = "agents and supervisors"
	processRex    = "SWE-ReX's server"
)

func measureMemory(ctx context.Context, loads []memoryLoad) ([]memoryGrowth, error) {
	all := make([]memoryGrowth, 0, len(loads))
	for _, l := range loads {
		progress("memory: " + l.name)
		g, err := l.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		all = append(all, g)
	}
	return all, nil
}

func (l memoryLoad) measure(ctx context.Context) (memoryGrowth, error) {
	g := memoryGrowth{load: l.name, grew: map[string]int64{}}
	before, err := l.processes(ctx)
	if err != nil {
		return g, err
	}
	trackers := map[string]*rssTracker{}
	for program, pids := range before {
		if trackers[program], err = watchMemory(pids); err != nil {
			return g, err
		}
	}
	if err := l.run(ctx); err != nil {
		return g, err
	}
	after, err := l.processes(ctx)
	if err != nil {
		return g, err
	}
	for program, r := range trackers {
		if g.grew[program], err = r.growth(after[program]); err != nil {
			return g, err
		}
	}
	return g, nil
}

func memoryLoads(b *testbed) []memoryLoad {
	var all []memoryLoad
	for _, d := range b.daemons() {
		add := func(name string, argv []string, stdout, stderr int64) {
			all = append(all, memoryLoad{
				name: name,
				processes: func(ctx context.Context) (map[string][]int, error) {
					agents, err := b.containerPIDs(ctx, "dray-agent")
					return map[string][]int{processDaemon: {d.pid()}, processAgent: agents}, err
				},
				run: func(ctx context.Context) error {
					return d.flood(ctx, b.workspace, argv, stdout, stderr)
				},
			})
		}
		add(loadBoth(d.name), bothArgs(floodBytes), floodBytes, floodBytes)
		add(loadSmall(d.name), floodArgs(rexBytes), rexBytes, 0)
	}
	if b.rex != nil {
		all = append(all, memoryLoad{
			name: loadSmall(methodRex),
			processes: func(ctx context.Context) (map[string][]int, error) {
				pids, err := b.containerPIDs(ctx, "swerex.server")
				return map[string][]int{processRex: pids}, err
			},
			run: func(ctx context.Context) error { return b.rex.flood(ctx, rexBytes) },
		})
	}
	return all
}

func loadBoth(name string) string  { return name + ": 2 GB on both streams at once" }
func loadSmall(name string) string { return name + ": 500 MB of stdout" }

func memoryTable(all []memoryGrowth) string {
	var rows [][]string
	programs := []string{processDaemon, processAgent, processRex}
	for _, g := range all {
		row := []string{g.load}
		for _, program := range programs {
			cell := ""
			if bytes, ok := g.grew[program]; ok {
				cell = mebibytes(float64(bytes))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return table(append([]string{"growth of resident memory at its peak"}, programs...), rows)
}

func growthOf(load, program string) value {
	return func(m *measurements) (float64, bool) {
		for _, g := range m.memory {
			if bytes, ok := g.grew[program]; ok && g.load == load {
				return float64(bytes), true
			}
		}
		return 0, false
	}
}

// rexGrowthRatio compares what all processes of each needed; less than a page counts as one.
func rexGrowthRatio(m *measurements) (float64, bool) {
	const page = 4096
	theirs, ok := growthOf(loadSmall(methodRex), processRex)(m)
	daemon, measured := growthOf(loadSmall(daemonSocket), processDaemon)(m)
	agents, _ := growthOf(loadSmall(daemonSocket), processAgent)(m)
	return theirs / max(page, daemon+agents), ok && measured
}
