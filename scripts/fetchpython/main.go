// Command fetchpython makes an asset folder of Pyodide for tests, as `dray python fetch` does, and
// without the rest of dray, so that it is compiled in seconds.
//
//	go run ./scripts/fetchpython DIR [WHEELS]
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python/assets"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: fetchpython DIR [WHEELS]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1], os.Args[2:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "fetchpython: %v\nhint: %s\n", err, dray.AsError(err).Hint)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, wheels []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	store := assets.New(assets.Options{Dir: dir})
	found, err := store.Fetch(ctx, assets.FetchOptions{Plan: func(p assets.Plan) {
		fmt.Printf("fetching %d MB: %v\n", p.Bytes/1e6, p.Packages)
	}})
	for i := 0; i < len(wheels) && err == nil; i++ {
		found, err = store.Fetch(ctx, assets.FetchOptions{From: wheels[i]})
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: Deno %s, Pyodide %s, Python %s, %d wheels\n", found.Root, found.DenoVersion,
		found.PyodideVersion, found.PythonVersion, len(found.Packages))
	return nil
}
