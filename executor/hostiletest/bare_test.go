package hostiletest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dray-dev/dray/executor/docker"
)

// emptyImage creates an image without a file: no shell, kill, ps, tar, cat or timeout, no
// /etc/passwd, no /tmp.
func emptyImage(t *testing.T) string {
	t.Helper()
	api := newAPI(t, "")
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, folder := range []string{"proc/", "dev/", "sys/", "etc/"} {
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir, Name: folder,
			Mode: 0o755,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const name = "dray-test/empty:hostiletest"
	said, err := api.ImageImport(t.Context(),
		client.ImageImportSource{Source: &archive, SourceName: "-"}, name, client.ImageImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, said)
	if closeErr := said.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	t.Cleanup(func() {
		if _, err := api.ImageRemove(context.Background(), name,
			client.ImageRemoveOptions{}); err != nil {
			t.Error(err)
		}
	})
	return name
}

// Calls need nothing of the image and no privilege in the container: no program, no user, no /tmp.
// With a shell in the image they need no writable root file system (EX-09, EX-10, EX-14, CA-01).
func TestBareImages(t *testing.T) {
	empty := emptyImage(t)
	idle := func(cfg *container.Config, _ *container.HostConfig) {
		cfg.Cmd = []string{toolFolder + "/" + idleCopy, "linger"}
	}
	readonly := func(cfg *container.Config, h *container.HostConfig) {
		idle(cfg, h)
		h.ReadonlyRootfs = true
	}
	for _, c := range []struct {
		name string
		spec containerSpec
	}{
		{"nothing in the image", containerSpec{
			image: empty, transport: docker.TransportStdio,
			change: idle,
		}},
		{
			"nothing in the image, by socket",
			containerSpec{image: empty, transport: docker.TransportSocket, change: idle},
		},
		{"nothing to be written", containerSpec{
			image: busybox, transport: docker.TransportSocket,
			change: readonly,
		}},
		{"a user without a name", containerSpec{
			image: busybox, user: "4242:4243",
			transport: docker.TransportSocket, change: readonly,
		}},
		{
			"a user without a name, by stdio",
			containerSpec{
				image: busybox, user: "4242:4243", transport: docker.TransportStdio,
				change: readonly,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.copies, c.spec.grace = max(concurrency(), inFlight), grace()
			p := newTestContainer(t, c.name, c.spec)
			for _, style := range []string{"double-session", "ignore-term", "subreaper"} {
				s, _ := newEscapeRow(t, p.name, style)
				runConcurrently(rounds(100), func() func() { return func() { escapeReady(t, p, style, s) } })
			}
			iterations(t, p, rounds(100), []string{"flood", "100000"}, func(t *testing.T, c *runningCall) {
				exits(t, c, 0)
				stream(t, c.result.Stdout, "o", 100000)
				stream(t, c.result.Stderr, "e", 100000)
			})
			iterations(t, p, rounds(100), []string{"reopen"},
				func(t *testing.T, c *runningCall) { exits(t, c, 0) })
			lost(t, p, agentKilled, "deep", newLossRow(t, p.name, agentKilled.name, 0))
		})
	}
}
