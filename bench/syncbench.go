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
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/internal/transfer"
)

const (
	// memoryMount is the mount point of the directory in the host's memory.
	memoryMount = "/bench-memory"
	// One load is smallFiles files of smallBytes bytes each, the other a file of largeBytes.
	smallFiles, smallBytes = 10_000, 4 << 10
	largeBytes             = 1 << 30
)

// The loads, which are directory names too.
const (
	loadFiles = "small"
	loadFile  = "large"
)

// The file systems.
const (
	inMemory = "in memory"
	onDisk   = "on disk"
)

// The methods.
const (
	syncSocket = "sync, socket"
	syncStdio  = "sync, stdio"
	syncDocker = "`docker cp`"
	syncCopy   = "`cp -a` on the host, and syncfs"
)

// storage is a file system from and to which files are copied.
type storage struct {
	name string
	// from is the directory of the loads on the host, inside the same in the container, and to an
	// empty directory on the same file system.
	from, inside, to string
}

// syncRun is one method to get one load out of the container.
type syncRun struct {
	storage storage
	load    string
	method  string
	run     func(ctx context.Context, to string) error
	sample
}

// newSyncRuns writes the loads and returns all methods for each of them.
func newSyncRuns(ctx context.Context, b *testbed) (all []*syncRun, err error) {
	sites := []storage{
		{inMemory, b.memory + "/from", memoryMount + "/from", b.memory + "/to"},
		{onDisk, b.workspace + "/from", b.folder + "/from", b.dir + "/to"},
	}
	senders, err := b.senders(ctx)
	if err != nil {
		return nil, err
	}
	for i, s := range sites {
		if err := errors.Join(os.MkdirAll(s.to, 0o700), fill(s.from, i == 0)); err != nil {
			return nil, fmt.Errorf("write the loads: %w", err)
		}
		loads := []string{loadFiles, loadFile}
		if i > 0 {
			loads = loads[:1]
		}
		for _, load := range loads {
			all = append(all, b.syncsOf(s, load, senders)...)
		}
	}
	return all, nil
}

// syncsOf returns the methods for one load.
func (b *testbed) syncsOf(s storage, load string, senders []environment) []*syncRun {
	var all []*syncRun
	add := func(method string, run func(ctx context.Context, to string) error) {
		all = append(all, &syncRun{storage: s, load: load, method: method, run: run})
	}
	for _, env := range senders {
		add(env.name, func(ctx context.Context, to string) error {
			return syncOnce(ctx, env, s.inside+"/"+load, to)
		})
	}
	add(syncDocker, func(ctx context.Context, to string) error {
		source := b.container.ID + ":" + s.inside + "/" + load
		return quietly(exec.CommandContext(ctx, b.docker, "cp", source, to)) //nolint:gosec // compared
	})
	add(syncCopy, func(ctx context.Context, to string) error {
		//nolint:gosec // the same
		if err := quietly(exec.CommandContext(ctx, "cp", "-a", s.from+"/"+load, to)); err != nil {
			return err
		}
		return syncfs(to)
	})
	return all
}

// senders returns an environment for each channel.
func (b *testbed) senders(ctx context.Context) (all []environment, err error) {
	for _, sender := range []struct {
		name      string
		transport docker.Transport
	}{{syncSocket, docker.TransportSocket}, {syncStdio, docker.TransportStdio}} {
		if sender.transport == docker.TransportSocket && b.daemon.name != daemonSocket {
			continue
		}
		engine, err := b.engineWith(docker.Options{
			Transport: sender.transport, RunDir: b.daemon.runDir(),
		})
		if err != nil {
			return nil, err
		}
		env, err := engine.Environment(ctx,
			b.container, agent.Spec{
				User: remoteUser, WorkspaceFolder: b.folder,
				Probe: probe,
			})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sender.name, err)
		}
		all = append(all, environment{env, sender.name})
	}
	return all, nil
}

// syncOnce runs a whole sync: read, checked, hashed, staged, synchronized to disk, committed.
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

func syncfs(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return unix.Syncfs(int(dir.Fd()))
}

// content returns n bytes that do not repeat within a block of a file system.
func content(n int) []byte {
	b := make([]byte, 0, n+sha256.Size)
	for sum := sha256.Sum256(nil); len(b) < n; sum = sha256.Sum256(sum[:]) {
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// fill writes the loads into a directory.
func fill(dir string, large bool) error {
	block := content(1 << 20)
	for i := range smallFiles {
		parent := fmt.Sprintf("%s/%s/%d", dir, loadFiles, i/100)
		if i%100 == 0 {
			//nolint:gosec // the container's user reads it
			if err := os.MkdirAll(parent, 0o755); err != nil {
				return err
			}
		}
		at := i % 200 * smallBytes
		path, text := fmt.Sprintf("%s/%d", parent, i), block[at:at+smallBytes]
		if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // the same
			return err
		}
	}
	if !large {
		return nil
	}
	if err := os.MkdirAll(dir+"/"+loadFile, 0o755); err != nil { //nolint:gosec // the same
		return err
	}
	//nolint:gosec // the same
	f, err := os.OpenFile(dir+"/"+loadFile+"/file", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
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

// measureSyncs runs every method in each round. It counts the files after the time was taken.
func measureSyncs(ctx context.Context, all []*syncRun, rounds int) error {
	for round, order := range shuffled(rounds, len(all)) {
		progress(fmt.Sprintf("sync: round %d of %d", round+1, rounds))
		for _, i := range order {
			if err := all[i].once(ctx, round); err != nil {
				return fmt.Errorf("%s, %s, %s: %w", all[i].method, all[i].load, all[i].storage.name, err)
			}
		}
	}
	return nil
}

func (s *syncRun) once(ctx context.Context, round int) error {
	to, err := os.MkdirTemp(s.storage.to, fmt.Sprint(round, "-"))
	if err != nil {
		return err
	}
	if err := syncfs(to); err != nil { // the method does not pay for earlier writes
		return err
	}
	begun := time.Now()
	if err := s.run(ctx, to); err != nil {
		return err
	}
	s.add(time.Since(begun))
	if err := verifySynced(to, s.load); err != nil || s.storage.name == onDisk {
		return err // removing files from a disk would slow down the next round: close removes them
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
		err = fmt.Errorf("%d files with %d bytes arrived: %w", files, sum, io.ErrUnexpectedEOF)
	}
	return err
}

func syncTable(all []*syncRun, load, storage string) string {
	var rows [][]string
	p50 := func(method string) float64 {
		return float64(syncOf(all, load, storage, method).quantile(0.5))
	}
	for _, s := range all {
		if s.load != load || s.storage.name != storage || s.count() == 0 {
			continue
		}
		rows = append(rows, []string{
			s.method, fmt.Sprint(s.count()), millis(s.quantile(0.5)), spreadText(&s.sample),
			ratio(p50(syncDocker), p50(s.method)), ratio(p50(s.method), p50(syncCopy)),
		})
	}
	return table([]string{
		"method", "times", "p50", "lowest to highest", "`docker cp` / p50", "p50 / `cp -a`",
	}, rows)
}

func syncOf(all []*syncRun, load, storage, method string) *syncRun {
	for _, s := range all {
		if s.load == load && s.storage.name == storage && s.method == method {
			return s
		}
	}
	return &syncRun{}
}

func syncP50(load, storage, method string) value {
	return func(m *measurements) (float64, bool) {
		s := syncOf(m.syncs, load, storage, method)
		return float64(s.quantile(0.5)), s.count() > 0
	}
}
