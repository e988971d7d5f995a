package main

import (
	"fmt"
	"strings"
	"time"
)

// target is what must hold. Value gives what a run says of it, and false where that was not
// measured.
type target struct {
	text    string
	bound   float64
	atLeast bool // else at most
	show    func(float64) string
	value   func(f *measurements) (float64, bool)
}

// verdict is a target with what a run says of it.
type verdict struct {
	target

	got      float64
	measured bool
}

// met says whether it holds. What was not measured is not met.
func (v verdict) met() bool {
	if v.atLeast {
		return v.measured && v.got >= v.bound
	}
	return v.measured && v.got <= v.bound
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

func atMost(text string, bound float64, show func(float64) string,
	value func(*measurements) (float64, bool),
) target {
	return target{text: text, bound: bound, show: show, value: value}
}

func atLeast(text string, bound float64, show func(float64) string,
	value func(*measurements) (float64, bool),
) target {
	return target{text: text, bound: bound, atLeast: true, show: show, value: value}
}

// targets are all that must hold, in the order of the table.
func targets() []target {
	const ms = float64(time.Millisecond)
	return []target{
		atMost("a warm `true` at the executor, p50, over host os/exec", 1.5, factor, serialRatio(waySocket, wayHost)),
		atMost("a warm `true` over HTTP with the trail, p50, over host os/exec", 2.3, factor, serialRatio(wayDray, wayHost)),
		atLeast("`devcontainer exec`, p50, over dray, HTTP", 160, factor, serialRatio(wayDevcontainer, wayDray)),
		atLeast("`docker exec`, p50, over dray, HTTP", 25, factor, serialRatio(wayDockerExec, wayDray)),
		atLeast("SWE-ReX, p50, over dray, HTTP", 1, factor, serialRatio(wayRex, wayDray)),
		atMost("32 at once of `true`, p50, over SWE-ReX's", 1.0/3, factor, crowdRatio(32, wayDray, wayRex)),
		atLeast("256 at once of `sleep 0.05; echo` at the executor, calls a second, over the engine API's", 35, factor, rateRatio(waySocket, wayEngine)),
		atLeast("256 at once of `sleep 0.05; echo` at the executor, calls a second, over host os/exec's", 0.85, factor, rateRatio(waySocket, wayHost)),
		atLeast("256 at once of `sleep 0.05; echo` over HTTP with the trail, calls a second, over host os/exec's", 0.6, factor, rateRatio(wayDray, wayHost)),
		atLeast("2 GB of stdout on the socket, over 1 GB/s or 60% of a host pipe, whichever is less", 1,
			factor, flowShare(daemonSocket)),
		atMost("growth of the daemon's memory, 2 GB on both streams at once, socket", 64<<20, mebibytes,
			grown(loadBoth(daemonSocket), partDaemon)),
		atMost("growth of the daemon's memory, 2 GB on both streams at once, stdio", 64<<20, mebibytes,
			grown(loadBoth(daemonStdio), partDaemon)),
		atLeast("SWE-ReX's growth at 500 MB of output, over dray's (daemon, agent and supervisors), socket", 100, factor, rexShare),
		atMost("p99 of another call while both streams flood, socket", 250*ms, nanos,
			besideP99(besideBoth(daemonSocket))),
		atMost("p99 of another call while both streams flood, stdio", 250*ms, nanos,
			besideP99(besideBoth(daemonStdio))),
		atMost("p99 of another call beside one bulk stream, socket", 20*ms, nanos,
			besideP99(interferenceOne(daemonSocket))),
		atMost("p99 of another call beside one bulk stream, stdio", 60*ms, nanos,
			besideP99(interferenceOne(daemonStdio))),
		atMost("a tree of 50 escapees from KILL to verified empty, p50, socket (with a cgroup)", 2*ms,
			nanos, killP50(waySocket)),
		atMost("a tree of 50 escapees from KILL to verified empty, p50, stdio (without)", 4*ms, nanos,
			killP50(wayStdio)),
		atLeast("mapping a document of 10 MB where the schema says so", 300e6, perSecond,
			passageRate(passageSchema)),
		atLeast("mapping a document of 10 MB by the heuristic", 300e6, perSecond,
			passageRate(passageHeuristic)),
		atLeast("mapping a document of 10 MB where the schema says so, over `encoding/json`'s rate", 5, factor, passageRatio(passageSchema, passageJSON)),
		atLeast("rewriting the paths of 1 GB of text", 500e6, perSecond, passageRate(passageRewrite)),
		atMost("growth of memory, 1 GB of text rewritten", 16<<20, mebibytes,
			passageGrowth(passageRewrite)),
		atLeast("10,000 files of 4 KiB in memory: `docker cp` over a sync, socket", 2, factor,
			haulRatio(loadFiles, inMemory, haulDocker, haulSocket)),
		atMost("10,000 files of 4 KiB on disk: a sync, socket, over `cp -a` and syncfs", 1.5, factor,
			haulRatio(loadFiles, onDisk, haulSocket, haulCopy)),
		atLeast("a file of 1 GiB: `docker cp` over a sync, socket", 3, factor, haulRatio(loadFile, inMemory, haulDocker, haulSocket)),
		atLeast("a file of 1 GiB: `docker cp` over a sync, stdio", 1, factor, haulRatio(loadFile, inMemory, haulDocker, haulStdio)),
	}
}

func serialRatio(way, base string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		return divided(float64(f.latency.of(way, runTrue).quantile(0.5)),
			float64(f.latency.of(base, runTrue).quantile(0.5)))
	}
}

func crowdRatio(callers int, way, base string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		a, b := f.crowds.of(callers, runTrue, way), f.crowds.of(callers, runTrue, base)
		if a == nil || b == nil {
			return 0, false
		}
		return divided(float64(a.quantile(0.5)), float64(b.quantile(0.5)))
	}
}

func rateRatio(way, base string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		return divided(f.crowds.of(mostCallers, runSleep, way).rate(),
			f.crowds.of(mostCallers, runSleep, base).rate())
	}
}

// flowShare is a flow's rate over what it has to reach.
func flowShare(name string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		rates := map[string]float64{}
		for _, flow := range f.flows {
			rates[flow.name] = flow.rate()
		}
		return divided(rates[name], min(1e9, 0.6*rates[flowHost]))
	}
}

func grown(load, part string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		for _, h := range f.memory {
			if bytes, ok := h.grew[part]; ok && h.load == load {
				return float64(bytes), true
			}
		}
		return 0, false
	}
}

// rexShare compares what all parts of each needed. Less than a page is told as one.
func rexShare(f *measurements) (float64, bool) {
	theirs, ok := grown(loadSmall(wayRex), partRex)(f)
	daemon, measured := grown(loadSmall(daemonSocket), partDaemon)(f)
	agents, _ := grown(loadSmall(daemonSocket), partAgent)(f)
	const page = 4096
	return theirs / max(page, daemon+agents), ok && measured
}

func besideP99(name string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		for _, b := range f.neighbours {
			if b.name == name {
				return float64(b.quantile(0.99)), b.count() > 0
			}
		}
		return 0, false
	}
}

func killP50(name string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		for _, k := range f.kills {
			if k.name == killOf(name) {
				return float64(k.quantile(0.5)), k.count() > 0
			}
		}
		return 0, false
	}
}

// divided is a over b, and false where one of them was not measured.
func divided(a, b float64) (float64, bool) {
	if a <= 0 || b <= 0 {
		return 0, false
	}
	return a / b, true
}

// judge holds the run against every target.
func judge(f *measurements) []verdict {
	var all []verdict
	for _, t := range targets() {
		v := verdict{target: t}
		v.got, v.measured = t.value(f)
		all = append(all, v)
	}
	return all
}

// missed tells which targets were missed. Where they are checked that is an error, and what was not
// measured counts as missed.
func missed(verdicts []verdict, check bool, tell func(string)) error {
	var all []string
	for _, v := range verdicts {
		if !v.met() && (v.measured || check) {
			all = append(all, v.text+": "+v.figure()+", and should be "+v.limit())
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

func (v verdict) limit() string {
	if v.atLeast {
		return "at least " + v.show(v.bound)
	}
	return "at most " + v.show(v.bound)
}

func verdictTable(verdicts []verdict) string {
	rows := make([][]string, 0, len(verdicts))
	for _, v := range verdicts {
		rows = append(rows, []string{v.text, v.limit(), v.figure(), v.String()})
	}
	return table([]string{"target", "should be", "this run", ""}, rows)
}
