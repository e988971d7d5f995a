package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// found makes findings in which serial calls of `true` took always the same time.
func found(took map[string]time.Duration) *measurements {
	f := &measurements{latency: newResults(nil)}
	for name, d := range took {
		f.latency.of(name, runTrue).add([]time.Duration{d, d})
	}
	return f
}

func TestSerialTargets(t *testing.T) {
	const us = time.Microsecond
	all := map[string]time.Duration{
		waySocket: 1500 * us, wayDray: 2300 * us, wayHost: 1000 * us, wayDevcontainer: 368_000 * us, wayDockerExec: 57_500 * us, wayRex: 2300 * us,
	}
	tests := map[string]struct {
		change map[string]time.Duration
		missed []string
	}{
		"exactly is met": {nil, nil},
		"the executor is too slow": {
			map[string]time.Duration{waySocket: 1501 * us},
			[]string{"at the executor, p50"},
		},
		"HTTP is too slow for all":    {map[string]time.Duration{wayDray: 2301 * us}, []string{"over HTTP with the trail, p50", "devcontainer", "`docker exec`", "SWE-ReX, p50"}},
		"what was not measured fails": {map[string]time.Duration{wayRex: 0}, []string{"SWE-ReX, p50"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			took := map[string]time.Duration{}
			for _, from := range []map[string]time.Duration{all, tt.change} {
				maps.Copy(took, from)
			}
			var got []string
			for _, v := range judge(found(took))[:5] {
				if !v.met() {
					got = append(got, v.text)
				}
			}
			if len(got) != len(tt.missed) {
				t.Fatalf("missed are %q, and should be %q", got, tt.missed)
			}
			for i, text := range tt.missed {
				if !strings.Contains(got[i], text) {
					t.Errorf("missed is %q, and should be that with %q", got[i], text)
				}
			}
		})
	}
}

func TestOtherTargets(t *testing.T) {
	const ms = time.Millisecond
	took := func(d time.Duration) sample { return sample{rounds: [][]time.Duration{{d}}} }
	tests := map[string]struct {
		text   string
		f      measurements
		want   float64
		absent bool
	}{
		"rate of a crowd": {
			text: "at the executor, calls a second, over the engine", want: 40,
			f: measurements{crowds: concurrentRuns{
				{256, runSleep.name}: {
					waySocket: {sample: took(ms), took: 10 * ms}, wayEngine: {sample: took(ms), took: 400 * ms},
				},
			}},
		},
		"p50 of a crowd": {text: "over SWE-ReX's", want: 0.25, f: measurements{crowds: concurrentRuns{
			{32, runTrue.name}: {wayDray: {sample: took(ms)}, wayRex: {sample: took(4 * ms)}},
		}}},
		"a quick pipe asks for 1 GB/s": {
			text: "2 GB of stdout", want: 0.5,
			f: measurements{flows: []*flow{
				{name: daemonSocket, bulk: bulk{1e9, took(2 * time.Second)}}, {
					name: flowHost,
					bulk: bulk{3e9, took(time.Second)},
				},
			}},
		},
		"a slow pipe asks for 60% of it": {
			text: "2 GB of stdout", want: 1,
			f: measurements{flows: []*flow{
				{name: daemonSocket, bulk: bulk{6e8, took(time.Second)}}, {
					name: flowHost,
					bulk: bulk{1e9, took(time.Second)},
				},
			}},
		},
		"SWE-ReX's memory over the sum of dray's": {
			text: "SWE-ReX's growth", want: 100,
			f: measurements{memory: []memoryGrowth{
				{loadSmall(daemonSocket), map[string]int64{
					partDaemon: 6 << 20,
					partAgent:  4 << 20,
				}}, {loadSmall(wayRex), map[string]int64{partRex: 1000 << 20}},
			}},
		},
		"memory that did not grow is measured": {
			text: "growth of the daemon's memory", want: 0,
			f: measurements{memory: []memoryGrowth{
				{loadBoth(daemonSocket), map[string]int64{partDaemon: 0}},
			}},
		},
		"p99 beside": {
			text: "beside one bulk stream", want: float64(7 * ms),
			f: measurements{neighbours: []*interference{{interferenceOne(daemonSocket), took(7 * ms)}}},
		},
		"p50 of a kill": {
			text: "(with a cgroup)", want: float64(ms),
			f: measurements{kills: []*killRun{{name: killOf(waySocket), sample: took(ms)}}},
		},
		"nothing": {text: "(with a cgroup)", absent: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.f.latency = newResults(nil)
			for _, v := range judge(&tt.f) {
				if strings.Contains(v.text, tt.text) {
					if v.measured == tt.absent || v.got != tt.want {
						t.Errorf("%s: %v, measured %t; want %v", v.text, v.got, v.measured, tt.want)
					}
					return
				}
			}
			t.Fatalf("there is no target with %q", tt.text)
		})
	}
}

func TestMissed(t *testing.T) {
	holds := verdict{target: atMost("a", 2, factor, nil), got: 2, measured: true}
	fails := verdict{target: atLeast("b", 2, factor, nil), got: 1, measured: true}
	absent := verdict{target: atMost("c", 2, factor, nil)}
	for _, tt := range []struct {
		verdicts []verdict
		fails    bool   // with -check
		told     string // without
	}{
		{[]verdict{holds}, false, ""},
		{[]verdict{holds, fails}, true, "b: 1.00, and should be at least 2.00"},
		{[]verdict{absent}, true, ""},
	} {
		var told string
		if err := missed(tt.verdicts, true, quiet); (err != nil) != tt.fails {
			t.Errorf("with -check: %v", err)
		}
		if err := missed(tt.verdicts, false, func(text string) { told += text }); err != nil ||
			!strings.Contains(told, tt.told) || (tt.told == "") != (told == "") {
			t.Errorf("without -check: %v, told %q, want %q", err, told, tt.told)
		}
	}
	text := verdictTable([]verdict{holds, fails, absent})
	for _, want := range []string{
		"| a | at most 2.00 | 2.00 | met |",
		"| b | at least 2.00 | 1.00 | **missed** |", "| c | at most 2.00 | not measured | not measured |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
