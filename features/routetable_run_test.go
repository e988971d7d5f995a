package features

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray/internal/soakreport"
)

var routeTablePage = soakreport.Page{
	File: "routing.md", Title: "Every combination of routing rules",
	Text: `Each cell is a combination of what the call, the plan, the project and the tool say, whether
the workspace has a devcontainer, and the state of the containers. *Explained* counts the cells for
which POST /v1/route gave the predicted rule, environment and error. *Executed* counts the calls;
cells that differ only in levels below the deciding one share a call. *Other* counts cells that were
explained or executed differently. *On the host* counts files that only a run on the host can leave,
in calls that no rule sends to the host.`,
	Target:  "no other, none on the host",
	Columns: []string{"containers", "cells", "explained", "executed", "other", "on the host"},
	Key:     1, Setup: func() string { return "nine configurations; busybox containers" },
}

// tableCount is what routeTablePage reports of one state.
type tableCount struct{ cells, explained, executed, other, onHost int }

func (c *tableCount) row() []soakreport.Cell {
	return []soakreport.Cell{
		soakreport.Value(c.cells), soakreport.Exactly(c.explained, c.cells), soakreport.Value(c.executed),
		soakreport.Exactly(c.other, 0), soakreport.Exactly(c.onHost, 0),
	}
}

// In every combination of levels, tools, devcontainers, states of the containers and presence of
// the engine the predicted route is the explained one and the executed one, and nothing runs on the
// host unless a rule says so (RT-01, RT-02, RT-03).
func TestSoakRouteTable(t *testing.T) {
	t.Parallel()
	needsEngine(t)
	table := newRouteTable(t)
	for _, state := range tableStates {
		t.Run(state, func(t *testing.T) {
			count := &tableCount{}
			routeTablePage.Row(t, []string{state}, count.row)
			table.enter(t, state)
			cells := tableCells(state)
			if !soakreport.Enabled() { // a random eighth of them
				table.random.Shuffle(len(cells), func(i, k int) { cells[i], cells[k] = cells[k], cells[i] })
				cells = cells[:len(cells)/8]
			}
			count.cells = len(cells)
			table.explainAll(t, cells, count)
			table.executeSome(t, cells, count)
			table.checkHostRuns(t, count)
		})
	}
}

// routeTable has a daemon for each configuration.
type routeTable struct {
	root, box string
	daemons   map[[3]string]*daemon // by override, fallback and whether the engine is away
	hostRuns  map[string]bool       // ids of the calls that a rule sends to the host
	random    *rand.Rand
}

func newRouteTable(t *testing.T) *routeTable {
	t.Helper()
	table := &routeTable{
		root: newDir(t), daemons: map[[3]string]*daemon{}, hostRuns: map[string]bool{},
		random: soakreport.Rand(t),
	}
	config := withImages(`{"image": "BUSYBOX", "updateRemoteUserUID": false}`)
	writeFiles(t, table.root, map[string]string{
		"trusted/.devcontainer.json": config, "untrusted/.devcontainer.json": config,
		"plain/x": "",
	})
	if err := os.Mkdir(table.root+"/host", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeContainers(t, table.root+"/trusted") })
	table.box = plainContainer(t)
	for _, override := range tableNames {
		for _, fallback := range tableNames {
			for away, engine := range map[string]string{"": "", "away": "unix://" + table.root + "/none"} {
				table.daemons[[3]string{override, fallback, away}] = startDaemon(t,
					tableConfig(table.root, table.box, engine, override, fallback))
			}
		}
	}
	return table
}

func (r *routeTable) docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := docker(context.WithoutCancel(t.Context()), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *routeTable) daemonOf(c cell) *daemon {
	away := ""
	if c.state == "away" {
		away = c.state
	}
	return r.daemons[[3]string{c.projectOverride, c.projectFallback, away}]
}

// enter puts the containers into a state, and waits until every daemon sees it.
func (r *routeTable) enter(t *testing.T, state string) {
	t.Helper()
	if state == "running" {
		c := cell{state: state, nearest: true, target: "container", tool: "auto"}
		if got, _ := r.execute(t, c); got != c.predict() {
			t.Fatalf("the workspace does not start: %+v", got)
		}
	}
	r.restore(t, state, true)
	for of, d := range r.daemons {
		if state == "away" || of[2] == "away" {
			continue
		}
		if err := r.awaitState(t.Context(), d, state); err != nil {
			t.Fatal(err)
		}
	}
}

// restore puts the containers into a state again. The calls of a table bring up only that of the
// workspace.
func (r *routeTable) restore(t *testing.T, state string, entering bool) {
	t.Helper()
	ids, err := containersOf(t.Context(), r.root+"/trusted")
	if err != nil {
		t.Fatal(err)
	}
	if entering {
		ids = append(ids, r.box)
	}
	change := map[string][]string{
		"paused": {"pause"}, "stopped": {"stop", "--time", "0"}, "removed": {"rm", "--force"},
	}[state]
	if change == nil || len(ids) == 0 || state == "paused" && !entering {
		return
	}
	if entering && state == "stopped" {
		r.docker(t, append([]string{"unpause"}, ids...)...)
	}
	r.docker(t, append(change, ids...)...)
}

// awaitState waits until a daemon has heard of the state from the engine.
func (r *routeTable) awaitState(ctx context.Context, d *daemon, state string) error {
	probe := map[string]any{"tool": "exec", "container": "box-of-table"}
	want := cell{state: state}.availability("box")
	for deadline := time.Now().Add(30 * time.Second); ; {
		a, err := d.ask(ctx, http.MethodPost, "/v1/route", probe)
		got, _ := a.at("/error/code").(string)
		if err != nil || got == want {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the daemon sees %q of %q", got, want)
		}
	}
}

// explainAll compares the dry run of every cell with the prediction.
func (r *routeTable) explainAll(t *testing.T, cells []cell, count *tableCount) {
	byDaemon := map[*daemon][]cell{}
	for _, c := range cells {
		byDaemon[r.daemonOf(c)] = append(byDaemon[r.daemonOf(c)], c)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for d, cells := range byDaemon {
		group.Go(func() {
			for _, c := range cells {
				a, err := d.ask(t.Context(), http.MethodPost, "/v1/route", c.body(r.root))
				got := r.outcome(a, "")
				mu.Lock()
				if err == nil && got == c.predict() {
					count.explained++
				} else {
					count.report(t, c, "explained", got, err)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
}

func (c *tableCount) report(t *testing.T, at cell, how string, got prediction, err error) {
	t.Helper()
	if c.other++; c.other <= 10 {
		t.Errorf("%+v\n %s %+v (%v)\n want %+v", at, how, got, err, at.predict())
	}
}

// outcome returns what a response says, below a prefix.
func (r *routeTable) outcome(a answer, route string) prediction {
	text := func(pointer string) string { s, _ := a.at(pointer).(string); return s }
	p := prediction{rule: text(route + "/rule"), code: text("/error/code")}
	if p.code == "" {
		p.code = text("/code")
	}
	environment, container := text(route+"/environment"), text(route+"/container")
	switch {
	case environment == "host":
		p.place = "host"
	case container == "box-of-table":
		p.place = "box"
	case container == "nobody-of-table":
		p.place = "nobody"
	case environment == "container":
		p.place = "workspace"
	}
	return p
}

// executeSome makes a call for each kind of outcome, or for all cells whose stronger levels differ.
func (r *routeTable) executeSome(t *testing.T, cells []cell, count *tableCount) {
	type kind struct {
		prediction
		cell
	}
	groups := map[kind][]cell{}
	for _, c := range cells {
		k := kind{prediction: c.predict()}
		if soakreport.Enabled() {
			k.cell = c.withoutWeaker()
		}
		groups[k] = append(groups[k], c)
	}
	for _, k := range slices.SortedFunc(maps.Keys(groups), func(a, b kind) int {
		return len(groups[a]) - len(groups[b])
	}) {
		for range soakreport.Count(1, 2) {
			c := groups[k][r.random.IntN(len(groups[k]))]
			got, err := r.execute(t, c)
			if count.executed++; err != nil || got != c.predict() {
				count.report(t, c, "executed", got, err)
			}
			if got.place == "workspace" && got.code == "" {
				r.restore(t, c.state, false)
			}
		}
	}
}

// execute makes a call and returns its outcome, with the place where it ran by the container's id.
func (r *routeTable) execute(t *testing.T, c cell) (prediction, error) {
	a, err := r.daemonOf(c).call(t.Context(), "?wait_ms=60000", c.body(r.root))
	if err != nil {
		return prediction{}, err
	}
	got := r.outcome(a, "/route")
	if p := c.predict(); p.place == "host" && p.code == "" {
		r.hostRuns[a.id()] = true
	}
	if a.status != http.StatusOK || got.code != "" || got.place == "host" {
		return got, nil
	}
	id, _ := a.at("/metadata/container/id").(string)
	if exit := fmt.Sprint(a.at("/exit_code")); exit != "42" || (id == r.box) != (got.place == "box") {
		return got, fmt.Errorf("exit code %s in container %q: %s", exit, id, a.raw)
	}
	return got, nil
}

// checkHostRuns compares the files of runs on the host with the calls that were sent there.
func (r *routeTable) checkHostRuns(t *testing.T, count *tableCount) {
	files, err := filepath.Glob(r.root + "/host/*")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for _, f := range files {
		ran[filepath.Base(f)] = true
		if !r.hostRuns[filepath.Base(f)] {
			count.onHost++
		}
	}
	if count.onHost > 0 || len(ran) != len(r.hostRuns) {
		t.Errorf("%d calls ran on the host, %d were sent there", len(ran), len(r.hostRuns))
	}
}
