package docker_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/agent"
	"github.com/dray-dev/dray/executor/docker"
	"github.com/dray-dev/dray/executor/files"
)

// BenchmarkReadTree copies 10,000 files of 4 KiB, and one of 1 GiB, from a container to this
// machine, in memory, with their SHA-256, by each channel. `docker cp` and `cp -a`, which compute
// no hash, are measured for comparison.
func BenchmarkReadTree(b *testing.B) {
	dir, err := os.MkdirTemp("/dev/shm", "dray-bench-") //nolint:usetesting // in memory
	if err != nil {
		b.Skip("no /dev/shm")
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	fillMemory(b, dir+"/from")
	bind := func(_ *container.Config, h *container.HostConfig) {
		h.Mounts = append(h.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: dir + "/from",
			Target: "/data",
		})
	}
	for _, source := range []string{"small", "large"} {
		for name, opts := range channels {
			b.Run(source+"/"+name, func(b *testing.B) {
				e := newEngineWith(b, opts)
				env := environment(b, e, runContainer(b, e, debian,
					bind), agent.Spec{User: "vscode"})
				each(b, dir, func(to string) { fetch(b, env, source, to) })
			})
		}
		b.Run(source+"/docker cp", func(b *testing.B) {
			c := runContainer(b, newEngine(b, docker.TransportEngine), debian, bind)
			each(b, dir, func(to string) { command(b, "docker", "cp", "-q", c.ID+":/data/"+source, to) })
		})
		b.Run(source+"/cp -a", func(b *testing.B) {
			each(b, dir, func(to string) { command(b, "cp", "-a", dir+"/from/"+source, to) })
		})
	}
}

func command(b *testing.B, argv ...string) {
	b.Helper()
	if out, err := exec.CommandContext(b.Context(), argv[0], argv[1:]...).
		CombinedOutput(); err != nil {
		b.Fatalf("%q: %v: %s", argv, err, out)
	}
}

// fillMemory creates the files to copy.
func fillMemory(b *testing.B, dir string) {
	b.Helper()
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	err := os.MkdirAll(dir+"/large", 0o755)
	for i := range 100 {
		err = errors.Join(err, os.MkdirAll(fmt.Sprintf("%s/small/%d", dir, i), 0o755))
		for j := range 100 {
			err = errors.Join(err, os.WriteFile(fmt.Sprintf("%s/small/%d/%d", dir, i, j), content[:4<<10],
				0o644))
		}
	}
	f, openErr := os.Create(dir + "/large/file")
	if err = errors.Join(err, openErr); err != nil {
		b.Fatal(err)
	}
	for range 1 << 10 {
		_, err = f.Write(content)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
}

// each calls copyTo in each round with a new directory. Removing it is not timed.
func each(b *testing.B, dir string, copyTo func(to string)) {
	to := dir + "/to"
	for b.Loop() {
		b.StopTimer()
		err := errors.Join(os.RemoveAll(to), os.Mkdir(to, 0o700))
		b.StartTimer()
		if err != nil {
			b.Fatal(err)
		}
		copyTo(to)
	}
	if err := os.RemoveAll(to); err != nil {
		b.Fatal(err)
	}
}

// fetch copies a tree as a sync does, without its policy.
func fetch(b *testing.B, env dray.Environment, source, to string) {
	from, err := env.Files(b.Context(), "/data")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	home, err := files.Open(to)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = home.Close() }()
	tree, err := from.ReadTree(b.Context(), dray.ReadTreeOptions{Names: []string{source}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	placed, err := home.WriteTree(b.Context(), tree, dray.WriteTreeOptions{})
	if err != nil || len(placed) == 0 {
		b.Fatal(len(placed), err)
	}
}
