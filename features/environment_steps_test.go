package features

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/cucumber/godog"
)

func (w *world) placeSteps(sc *godog.ScenarioContext) {
	sc.Given(`^the workspace (\S+)$`, w.inWorkspace)
	sc.Given(`^a separate container$`, func(ctx context.Context) error { return w.ownContainer(ctx) })
	sc.Given(`^a container where nothing can be installed$`, func(ctx context.Context) error {
		return w.ownContainer(ctx, "--read-only", "--tmpfs", "/dev/.dray-agent:ro")
	})
	sc.Given(`^a container with (\d+m) of memory$`, func(ctx context.Context, size string) error {
		return w.ownContainer(ctx, "--memory", size, "--memory-swap", size)
	})
	sc.When(`^the container is killed$`, w.killContainer)
	sc.Then(`^no process "(.*)" runs in the container$`, w.noProcess)
	sc.Then(`^the file (\S+) contains (".*") and is owned by (\d+)$`, w.fileHolds)
	sc.Then(`^no container of the workspace exists$`, w.noContainer)
	sc.Then(`^/items contains a running workspace$`, w.workspaceRuns)
	sc.When(`^I map these paths (to_host|to_container)$`, w.pathsMapped)
}

func (w *world) inWorkspace(folder string) { w.body["workspace"] = w.named(folder) }

// ownContainer runs a container for this scenario, in which its calls run.
func (w *world) ownContainer(ctx context.Context, options ...string) error {
	id, err := runContainer(ctx, options...)
	if err != nil {
		return err
	}
	w.later(func(ctx context.Context) error {
		_, err := docker(ctx, "rm", "--force", id)
		return err
	})
	w.names["own container"] = id
	w.body = map[string]any{"container": id}
	return nil
}

func (w *world) killContainer(ctx context.Context) error {
	if _, err := docker(ctx, "kill", w.names["own container"]); err != nil {
		return err
	}
	return w.await(ctx, "/v1/invocations/"+w.answer.id())
}

// noProcess reads the processes from the engine, since a tool could hide them in the container.
func (w *world) noProcess(ctx context.Context, command string) error {
	out, err := docker(ctx, "top", w.names["container"], "-eo", "pid,args")
	if err == nil && strings.Contains(out, command) {
		err = fmt.Errorf("the processes are:\n%s", out)
	}
	return err
}

func (w *world) noContainer(ctx context.Context) error {
	ids, err := containersOf(ctx, w.names["workspace"])
	if err == nil && len(ids) > 0 {
		err = fmt.Errorf("there are %v", ids)
	}
	return err
}

func (w *world) fileHolds(path, text string, uid int) error {
	want, err := w.quoted(text)
	if err != nil {
		return err
	}
	info, err := os.Lstat(w.named(path))
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != uid {
		return errors.New("it belongs to somebody else")
	}
	content, err := os.ReadFile(w.named(path))
	if err != nil {
		return err
	}
	return differ(string(content), want)
}

// pathsMapped maps the first column and compares the result with the second. If that is empty, the
// path must be unchanged and listed as unmapped.
func (w *world) pathsMapped(ctx context.Context, direction string, table *godog.Table) error {
	var given, want, unmapped []any
	for _, row := range table.Rows {
		from, to := w.named(row.Cells[0].Value), w.named(row.Cells[1].Value)
		if to == "" {
			to = from
			unmapped = append(unmapped, from)
		}
		given, want = append(given, from), append(want, to)
	}
	a, err := w.daemon.ask(ctx, http.MethodPost, "/v1/paths",
		map[string]any{"workspace": w.names["workspace"], "direction": direction, "paths": given})
	if err != nil {
		return err
	}
	if !same(a.at("/paths"), want) || len(unmapped) > 0 && !same(a.at("/unmapped"), unmapped) {
		return fmt.Errorf("the response is %s, want %v, unmapped %v", a.raw, want, unmapped)
	}
	return nil
}

func (w *world) workspaceRuns() error {
	items, _ := w.answer.at("/items").([]any)
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok && fields["folder"] == w.names["workspace"] &&
			fields["state"] == "running" && fields["trusted"] == true {
			return nil
		}
	}
	return fmt.Errorf("the response does not: %s", w.answer.raw)
}
