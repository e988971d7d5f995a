package command

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/python/assets"
)

func newPythonFetch(a *app) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Fetch what Python needs outside of containers",
		Long: `fetch downloads Deno and Pyodide, which run Python outside of containers, to the asset
folder: python.pyodide.assets, or a folder below ~/.local/share/dray/python. Both come
from the npm registry, at the versions that this program was built for; each file must
have its SHA-256. Files that have it are kept, and only the others are downloaded.
After an interruption, run it again: it goes on where it was.

With --from nothing is downloaded. The directory has the packages as "npm pack" makes
them, or node_modules, or is the asset folder of another machine. Wheels in it, of this
Pyodide release or for any platform, are checked and kept: sessions can import them.

No daemon is needed. One that runs uses the files from the next session on. Then try:
dray python --runtime pyodide -c 'print(1 + 1)'`,
		Example: "  dray python fetch\n  dray python fetch --from ~/Downloads/pyodide",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&from, "from", "", "take everything from this `directory`")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		if cmd.Flags().Changed("from") && from == "" {
			return usagef("--from is empty").WithHint("name a directory")
		}
		return a.runPythonFetch(ctx, from)
	})
	return cmd
}

// assetStore returns the assets that a configuration names.
func assetStore(cfg *config.Config) *assets.Store {
	return assets.New(assets.Options{Dir: cfg.Python.Pyodide.Assets, Deno: cfg.Python.Pyodide.Deno})
}

func (a *app) runPythonFetch(ctx context.Context, from string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if from != "" {
		if from, err = filepath.Abs(from); err != nil {
			return fmt.Errorf("find the directory: %w", err)
		}
	}
	p := &fetchProgress{progress: newProgress(a.err, 0)}
	defer p.clear()
	found, err := assetStore(cfg).Fetch(ctx, assets.FetchOptions{
		From: from, Plan: p.plan, Progress: p.report,
	})
	if err != nil {
		return err
	}
	p.clear()
	report := newFetchReport(found, cfg)
	if a.json {
		return a.printJSON(report)
	}
	_, err = fmt.Fprint(a.out, report.text())
	return outputError(err)
}

// fetchProgress prints the progress of a download. On a stderr that is no terminal it prints a line
// for each quarter.
type fetchProgress struct {
	*progress
	quarter int64
}

func (p *fetchProgress) plan(plan assets.Plan) {
	fmt.Fprintln(p.w, escapeLine(fmt.Sprintf("dray: fetching %s (%s) into %s", formatBytes(plan.Bytes),
		strings.Join(plan.Packages, ", "), plan.Dir)))
}

func (p *fetchProgress) report(now assets.Progress) {
	if now.Waiting != "" {
		p.show("fetch", "waiting: "+now.Waiting)
		return
	}
	quarter := now.Done * 4 / max(now.Total, 1)
	if p.terminal || quarter > p.quarter {
		p.show("fetch", fmt.Sprintf("%s of %s", formatBytes(now.Done), formatBytes(now.Total)))
	}
	p.quarter = max(quarter, p.quarter)
}

// fetchReport is what --json prints.
type fetchReport struct {
	Dir     string         `json:"dir"`
	Deno    fetchedPart    `json:"deno"`
	Pyodide fetchedPart    `json:"pyodide"`
	Python  string         `json:"python"`
	Wheels  []assets.Wheel `json:"packages"`
	// Downloaded is in bytes. Reused says that everything was there already.
	Downloaded int64    `json:"downloaded_bytes"`
	Reused     bool     `json:"reused"`
	Next       []string `json:"next"`
}

type fetchedPart struct {
	Version string `json:"version"`
	Path    string `json:"path"`
}

func newFetchReport(found assets.Fetched, cfg *config.Config) fetchReport {
	r := fetchReport{
		Dir: found.Root, Deno: fetchedPart{found.DenoVersion, found.Deno},
		Pyodide: fetchedPart{found.PyodideVersion, found.Dir}, Python: found.PythonVersion,
		Wheels: append([]assets.Wheel{}, found.Packages...), Downloaded: found.Downloaded,
		Reused: found.Reused, Next: []string{},
	}
	if cfg.Python.Runtime != config.PythonPyodide {
		r.Next = append(r.Next, "use it: dray python --runtime pyodide -c 'print(1 + 1)', or set "+
			"python.runtime to pyodide")
	}
	return r
}

func (r fetchReport) text() string {
	var b strings.Builder
	what := "downloaded " + formatBytes(r.Downloaded)
	switch {
	case r.Reused:
		what = "complete already"
	case r.Downloaded == 0:
		what = "complete, nothing downloaded"
	}
	fmt.Fprintf(&b, "%s: %s\n", escapeLine(r.Dir), what)
	fmt.Fprintf(&b, "Deno      %-9s  %s\n", r.Deno.Version, escapeLine(r.Deno.Path))
	fmt.Fprintf(&b, "Pyodide   %-9s  %s\n", r.Pyodide.Version, escapeLine(r.Pyodide.Path))
	fmt.Fprintf(&b, "Python    %s\n", r.Python)
	var names []string
	for _, w := range r.Wheels {
		names = append(names, w.Name+" "+w.Version)
	}
	wheels := "none"
	if len(names) > 0 {
		wheels = strings.Join(names, ", ")
	}
	fmt.Fprintf(&b, "wheels    %s\n", escapeLine(wheels))
	for _, next := range r.Next {
		fmt.Fprintf(&b, "next: %s\n", next)
	}
	return b.String()
}
