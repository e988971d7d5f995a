package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// value returns a figure of a run, or false if it was not measured.
type value func(m *measurements) (float64, bool)

// target is a figure and its limit.
type target struct {
	text    string
	limit   float64
	atLeast bool // else at most
	show    func(float64) string
	value   value
	// floor, if set, is the same figure of the floor program. Where it is so close to the limit that
	// no program could meet it, the limit is floorMargin away from the floor instead.
	floor value
}

// floorMargin is how much more than the floor a call may cost where the floor forbids the limit.
const floorMargin = 1.15

// verdict is a target with the figure of a run.
type verdict struct {
	target

	got      float64
	measured bool
	floorGot float64 // 0 if there is none
}

// met reports whether the figure meets the target. A figure that was not measured does not.
func (v verdict) met() bool {
	if v.atLeast {
		return v.measured && v.got >= v.limit
	}
	return v.measured && v.got <= v.limit
}

func (v verdict) String() string {
	switch {
	case !v.measured:
		return "not measured"
	case v.met():
		return "met"
	default:
		return "**missed**"
	}
}

// targets are all targets in the order of the table.
func targets() []target {
	const ms = float64(time.Millisecond)
	p50 := func(method string) value { return p50Of(oneCaller, method) }
	at32 := func(method string) value { return p50Of(manyCallers, method) }
	rate32 := func(method string) value { return rateOf(manyCallers, method) }
	rate256 := func(method string) value { return rateOf(parallelLoads[1], method) }
	rate128 := func(method string) value { return rateOf(auditLoads[2], method) }
	host := p50(methodHost)
	all := []target{
		{
			text: "`true` in the container over HTTP with the audit log, p50, over os/exec", limit: 2.3,
			value: over(p50(methodHTTP), host), floor: over(p50(floorRecorded), host),
		},
		{
			text: "`true` on the host over HTTP with the audit log, p50, over os/exec", limit: 1.9,
			value: over(p50(methodHostHTTP), host), floor: over(p50(floorRecorded), host),
		},
		{
			text: "`true` in the container at the executor, socket, p50, over os/exec", limit: 1.5,
			value: over(p50(methodSocket), host), floor: over(p50(floorSupervised), host),
		},
		{
			text: "32 at once over HTTP, calls/s, over os/exec's", limit: 0.62, atLeast: true,
			value: over(rate32(methodHTTP), rate32(methodHost)),
			floor: over(rate32(floorRecorded), rate32(methodHost)),
		},
		{
			text: "SWE-ReX, p50, over dray's over HTTP", limit: 1, atLeast: true,
			value: over(p50(methodRex), p50(methodHTTP)),
		},
		{
			text: "SWE-ReX, p50 of 32 at once, over dray's over HTTP", limit: 2, atLeast: true,
			value: over(at32(methodRex), at32(methodHTTP)),
		},
		{
			text: "`dray exec`, p50, over a plain HTTP client's", limit: 2.5,
			value: over(p50(methodCLI), p50(methodPlain)),
		},
		{
			text: "`dray exec`, p50, over `docker exec`", limit: 0.5,
			value: over(p50(methodCLI), p50(methodDockerExec)),
		},
		{
			text: "first call of a daemon, container running, p50", limit: 100 * ms, show: nanos,
			value: func(m *measurements) (float64, bool) {
				return float64(m.cold.quantile(0.5)), m.cold.count() > 0
			},
		},
		{
			text: "`devcontainer exec`, p50, over dray's over HTTP", limit: 160, atLeast: true,
			value: over(p50(methodDevcontainer), p50(methodHTTP)),
		},
		{
			text: "`docker exec`, p50, over dray's over HTTP", limit: 25, atLeast: true,
			value: over(p50(methodDockerExec), p50(methodHTTP)),
		},
		{
			text:  "256 at once of `sleep 0.05; echo` at the executor, calls/s, over the engine API's",
			limit: 35, atLeast: true, value: over(rate256(methodSocket), rate256(methodEngine)),
		},
		{
			text:  "256 at once of `sleep 0.05; echo` at the executor, calls/s, over os/exec's",
			limit: 0.85, atLeast: true, value: over(rate256(methodSocket), rate256(methodHost)),
		},
		{
			text: "256 at once of `sleep 0.05; echo` over HTTP, calls/s, over os/exec's", limit: 0.6,
			atLeast: true, value: over(rate256(methodHTTP), rate256(methodHost)),
		},
		{
			text:  "128 at once with the audit log on disk, calls/s, over the same in memory",
			limit: 0.8, atLeast: true, value: over(rate128(methodLogOnDisk), rate128(methodLogInMemory)),
		},
		{
			text:  "128 at once with the audit log on disk, calls/s, over the same without a log",
			limit: 0.7, atLeast: true, value: over(rate128(methodLogOnDisk), rate128(methodUnrecorded)),
		},
		{
			text:  "2 GB of stdout, socket, over 1 GB/s or 60 % of a host pipe's rate, the lesser",
			limit: 1, atLeast: true, value: streamShare(daemonSocket),
		},
		{
			text: "growth of the daemon's memory, 2 GB on both streams, socket", limit: 64 << 20,
			show: mebibytes, value: growthOf(loadBoth(daemonSocket), processDaemon),
		},
		{
			text: "growth of the daemon's memory, 2 GB on both streams, stdio", limit: 64 << 20,
			show: mebibytes, value: growthOf(loadBoth(daemonStdio), processDaemon),
		},
		{
			text: "SWE-ReX's growth at 500 MB of output, over dray's, socket", limit: 100, atLeast: true,
			value: rexGrowthRatio,
		},
		{
			text: "another call while both streams flood, p99, socket", limit: 250 * ms, show: nanos,
			value: interferenceP99(besideBoth(daemonSocket)),
		},
		{
			text: "another call while both streams flood, p99, stdio", limit: 250 * ms, show: nanos,
			value: interferenceP99(besideBoth(daemonStdio)),
		},
		{
			text: "another call beside one flooded stream, p99, socket", limit: 20 * ms, show: nanos,
			value: interferenceP99(besideOne(daemonSocket)),
		},
		{
			text: "another call beside one flooded stream, p99, stdio", limit: 60 * ms, show: nanos,
			value: interferenceP99(besideOne(daemonStdio)),
		},
		{
			text: "a tree of 50 processes from KILL to verified end, p50, socket", limit: 2 * ms,
			show: nanos, value: killP50(methodSocket),
		},
		{
			text: "a tree of 50 processes from KILL to verified end, p50, stdio", limit: 4 * ms,
			show: nanos, value: killP50(methodStdio),
		},
		{
			text: "10,000 files in memory: `docker cp` over a sync, socket", limit: 3, atLeast: true,
			value: over(syncP50(loadFiles, inMemory, syncDocker), syncP50(loadFiles, inMemory, syncSocket)),
		},
		{
			text: "10,000 files on disk: a sync, socket, over `cp -a` and syncfs", limit: 1.2,
			value: over(syncP50(loadFiles, onDisk, syncSocket), syncP50(loadFiles, onDisk, syncCopy)),
		},
		{
			text: "a file of 1 GiB: `docker cp` over a sync, socket", limit: 3, atLeast: true,
			value: over(syncP50(loadFile, inMemory, syncDocker), syncP50(loadFile, inMemory, syncSocket)),
		},
		{
			text: "a file of 1 GiB: `docker cp` over a sync, stdio", limit: 1, atLeast: true,
			value: over(syncP50(loadFile, inMemory, syncDocker), syncP50(loadFile, inMemory, syncStdio)),
		},
	}
	return slices.Concat(all, pythonTargets(), mcpTargets(), shellTargets())
}

// over returns the ratio of two figures.
func over(a, b value) value {
	return func(m *measurements) (float64, bool) {
		x, okX := a(m)
		y, okY := b(m)
		if !okX || !okY || x <= 0 || y <= 0 {
			return 0, false
		}
		return x / y, true
	}
}

func p50Of(l load, method string) value {
	return func(m *measurements) (float64, bool) {
		r := m.runs.of(l, method)
		return float64(r.quantile(0.5)), r.count() > 0
	}
}

func rateOf(l load, method string) value {
	return func(m *measurements) (float64, bool) {
		r := m.runs.of(l, method)
		return r.rate(), r.count() > 0
	}
}

// judge compares the run with every target.
func judge(m *measurements) []verdict {
	var all []verdict
	for _, t := range targets() {
		if t.show == nil {
			t.show = digits
		}
		v := verdict{target: t}
		v.got, v.measured = t.value(m)
		if t.floor != nil {
			v.restate(m)
		}
		all = append(all, v)
	}
	return all
}

// restate replaces a limit that the machine's floor forbids.
func (v *verdict) restate(m *measurements) {
	floor, ok := v.floor(m)
	if !ok {
		return
	}
	v.floorGot = floor
	if v.atLeast {
		v.limit = min(v.limit, floor/floorMargin)
	} else {
		v.limit = max(v.limit, floor*floorMargin)
	}
}

// missed reports the missed targets to tell, or as an error if check is set. Then a target that was
// not measured counts as missed.
func missed(verdicts []verdict, check bool, tell func(string)) error {
	var all []string
	for _, v := range verdicts {
		if !v.met() && (v.measured || check) {
			all = append(all, fmt.Sprintf("%s: %s, want %s", v.text, v.figure(), v.limitText()))
		}
	}
	if len(all) == 0 {
		return nil
	}
	err := fmt.Errorf("%d targets are missed:\n\t%s", len(all), strings.Join(all, "\n\t"))
	if check {
		return err
	}
	tell(err.Error())
	return nil
}

func (v verdict) figure() string {
	if !v.measured {
		return "not measured"
	}
	return v.show(v.got)
}

func (v verdict) limitText() string {
	if v.atLeast {
		return "at least " + v.show(v.limit)
	}
	return "at most " + v.show(v.limit)
}

func verdictTable(verdicts []verdict) string {
	var rows [][]string
	var others []string
	for _, v := range verdicts {
		floor := ""
		if v.floorGot > 0 {
			floor = v.show(v.floorGot)
		}
		if v.measured {
			rows = append(rows, []string{v.text, v.limitText(), floor, v.figure(), v.String()})
		} else {
			others = append(others, v.text)
		}
	}
	text := table([]string{"target", "limit", "floor", "this run", ""}, rows)
	if len(others) > 0 {
		text += "\nNot measured: " + strings.Join(others, "; ") + ".\n"
	}
	return text
}
