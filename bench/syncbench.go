package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/container"
	"github.com/dray-dev/dray/internal/transfer"
)

const (
	// memoryMount is where the container has the folder that lies in the host's memory.
	memoryMount = "/bench-memory"
	// smallFiles of smallBytes each are one load, a file of largeBytes the other.
	smallFiles, smallBytes = 10_000, 4 << 10
	largeBytes             = 1 << 30
)

// The loads, which are folders too.
const (
	loadFiles = "small"
	loadFile  = "large"
)

// The sites.
const (
	inMemory = "in memory"
	onDisk   = "on disk"
)

// The ways of a haul.
const (
	haulSocket = "sync, streamed, socket"
	haulStdio  = "sync, streamed, stdio"
	haulDocker = "`docker cp`"
	haulCopy   = "`cp -a` on the host, and syncfs"
)

// storage is where files lie and come to: in memory or on a disk.
type storage struct {
	name string
	// from is the folder with the loads on the host, inside its name in the container, to an empty
	// folder on the same file system.
	from, inside, to string
}

// syncRun is one way to get one load out of the container.
type syncRun struct {
	site storage
	load string
	way  string
	run  func(ctx context.Context, to string) error
	sample
}

// syncRuns fill the sites and give all ways for each of them.
func syncRuns(ctx context.Context, r *testbed) (all []*syncRun, err error) {
	sites := []storage{
		{inMemory, r.memory + "/from", memoryMount + "/from", r.memory + "/to"},
		{onDisk, r.workspace + "/from", r.folder + "/from", r.dir + "/to"},
	}
	senders, err := r.senders(ctx)
	if err != nil {
		return nil, err
	}
	for i, s := range sites {
		if err := errors.Join(os.MkdirAll(s.to, 0o700), fill(s.from, i == 0)); err != nil {
			return nil, fmt.Errorf("making what is brought: %w", err)
		}
		loads := []string{loadFiles, loadFile}
		if i > 0 {
			loads = loads[:1]
		}
		for _, load := range loads {
			all = append(all, r.haulsOf(s, load, senders)...)
		}
	}
	return all, nil
}

// haulsOf are the ways for one load.
func (r *testbed) haulsOf(s storage, load string, senders []environment) []*syncRun {
	var all []*syncRun
	add := func(way string, run func(ctx context.Context, to string) error) {
		all = append(all, &syncRun{site: s, load: load, way: way, run: run})
	}
	for _, env := range senders {
		add(env.name, func(ctx context.Context,
			to string,
		) error {
			return syncOnce(ctx, env, s.inside+"/"+load, to)
		})
	}
	add(haulDocker, func(ctx context.Context, to string) error {
		// what is compared
		return quietly(exec.CommandContext(ctx, r.docker, "cp", r.container.ID+":"+s.inside+"/"+load, to)) //nolint:gosec
	})
	add(haulCopy, func(ctx context.Context, to string) error {
		// the same
		if err := quietly(exec.CommandContext(ctx, "cp", "-a", s.from+"/"+load, to)); err != nil { //nolint:gosec
			return err
		}
		return syncfs(to)
	})
	return all
}

// senders are environments whose files come in each way.
func (r *testbed) senders(ctx context.Context) (all []environment, err error) {
	for _, way := range []struct {
		name      string
		transport container.Transport
	}{{haulSocket, container.TransportSocket}, {haulStdio, container.TransportStdio}} {
		if way.transport == container.TransportSocket && r.daemon.name != daemonSocket {
			continue
		}
		engine, err := r.engineWith(container.Options{
			Transport: way.transport, RunDir: r.daemon.runDir(),
		})
		if err != nil {
			return nil, err
		}
		env, err := engine.Environment(ctx,
			container.EnvironmentSpec{
				Container: r.container, User: remoteUser, WorkspaceFolder: r.folder,
				Probe: probe,
			})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		all = append(all, environment{env, way.name})
	}
	return all, nil
}

// syncOnce is a whole sync: collected, checked, staged, hashed, durable, committed.
func syncOnce(ctx context.Context, env dray.Environment, source, to string) (err error) {
	s, err := transfer.Open(ctx, transfer.Config{
		Root: to, Sources: []string{memoryMount},
		Timeout: 5 * time.Minute,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	report, err := s.Fetch(ctx, env, transfer.Request{ID: "bench", Paths: []string{source}})
	if err != nil {
		return err
	}
	if report.State != dray.SyncComplete {
		return fmt.Errorf("the sync is %s", report.State)
	}
	return nil
}

func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

func syncfs(folder string) error {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return unix.Syncfs(int(dir.Fd()))
}

// content gives bytes that do not repeat within a file system's block.
func content(n int) []byte {
	b := make([]byte, 0, n+sha256.Size)
	for sum := sha256.Sum256(nil); len(b) < n; sum = sha256.Sum256(sum[:]) {
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// fill makes the loads.
func fill(dir string, large bool) error {
	block := content(1 << 20)
	for i := range smallFiles {
		folder := fmt.Sprintf("%s/%s/%d", dir, loadFiles, i/100)
		if i%100 == 0 {
			// the container's user reads it
			if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec
				return err
			}
		}
		at := i % 200 * smallBytes
		// the same
		if err := os.WriteFile(fmt.Sprintf("%s/%d", folder, i), block[at:at+smallBytes], 0o644); err != nil { //nolint:gosec
			return err
		}
	}
	if !large {
		return nil
	}
	if err := os.MkdirAll(dir+"/"+loadFile, 0o755); err != nil { //nolint:gosec // the same
		return err
	}
	// the same
	f, err := os.OpenFile(dir+"/"+loadFile+"/file", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec
	if err != nil {
		return err
	}
	for range largeBytes / len(block) {
		if _, err = f.Write(block); err != nil {
			break
		}
	}
	return errors.Join(err, f.Close())
}

// runSyncs runs every haul in every round. What came is counted, outside of the time.
func runSyncs(ctx context.Context, all []*syncRun, rounds int, progress func(string)) error {
	for round, order := range shuffled(rounds, len(all)) {
		progress(fmt.Sprintf("sync: round %d of %d", round+1, rounds))
		for _, i := range order {
			if err := all[i].once(ctx, round); err != nil {
				return fmt.Errorf("%s, %s, %s: %w", all[i].way, all[i].load, all[i].site.name, err)
			}
		}
	}
	return nil
}

func (h *syncRun) once(ctx context.Context, round int) error {
	to, err := os.MkdirTemp(h.site.to, fmt.Sprint(round, "-"))
	if err != nil {
		return err
	}
	if err := syncfs(to); err != nil { // nobody pays for what was written before
		return err
	}
	begun := time.Now()
	if err := h.run(ctx, to); err != nil {
		return err
	}
	h.add([]time.Duration{time.Since(begun)})
	if err := verifySynced(to, h.load); err != nil || h.site.name == onDisk {
		// what was removed from a disk slows down whoever writes there next: it goes with the rig
		return err
	}
	return os.RemoveAll(to)
}

// verifySynced counts the files and their bytes.
func verifySynced(to, load string) error {
	files, sum := 0, int64(0)
	err := filepath.WalkDir(to, func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			files++
			sum += info.Size()
		}
		return err
	})
	wantFiles, wantBytes := smallFiles, int64(smallFiles*smallBytes)
	if load == loadFile {
		wantFiles, wantBytes = 1, largeBytes
	}
	if err == nil && (files != wantFiles || sum != wantBytes) {
		err = fmt.Errorf("%d files of together %d bytes came: %w", files, sum, io.ErrUnexpectedEOF)
	}
	return err
}

// haulTable compares the ways of one load in one place.
func haulTable(all []*syncRun, load, where string) string {
	var rows [][]string
	docker, plain := haulOf(all, load, where, haulDocker).
		quantile(0.5), haulOf(all, load, where, haulCopy).quantile(0.5)
	for _, h := range all {
		if h.load != load || h.site.name != where || h.count() == 0 {
			continue
		}
		p50 := h.quantile(0.5)
		low, high := h.spread()
		rows = append(rows, []string{
			h.way, fmt.Sprint(h.count()), millis(p50), millis(low) + " to " +
				millis(high), factor(ratio(docker, p50)), factor(ratio(p50, plain)),
		})
	}
	return unlessEmpty([]string{"way", "times", "p50", "lowest to highest", "`docker cp`'s / its", "its / `cp -a`'s"}, rows)
}

func haulOf(all []*syncRun, load, where, way string) *syncRun {
	for _, h := range all {
		if h.load == load && h.site.name == where && h.way == way {
			return h
		}
	}
	return &syncRun{}
}

// haulRatio is how long a way takes over how long a base takes.
func haulRatio(load, where, way, base string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		return divided(float64(haulOf(f.hauls, load, where, way).quantile(0.5)),
			float64(haulOf(f.hauls, load, where, base).quantile(0.5)))
	}
}
