package docker_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/executor/docker"
)

// dockerConfig writes a configuration of the docker CLI with contexts, NAME or NAME=HOST, each with
// another host.
func dockerConfig(t *testing.T, current string, contexts ...string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	for _, name := range []string{
		"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH",
		"DOCKER_TLS_VERIFY",
	} {
		t.Setenv(name, "")
	}
	put := func(path string, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if current != "" {
		put(dir+"/config.json", map[string]any{"currentContext": current, "auths": map[string]any{}})
	}
	for _, name := range contexts {
		name, host, given := strings.Cut(name, "=")
		if !given {
			host = "unix:///ctx/" + name
		}
		id := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
		put(dir+"/contexts/meta/"+id+"/meta.json", map[string]any{
			"Name": name, "Metadata": map[string]any{}, "Endpoints": map[string]any{
				"docker": map[string]any{"Host": host, "SkipTLSVerify": false},
			},
		})
	}
}

// The engine is found as the docker CLI finds it, after our own configuration (RT-13).
func TestNewEngine_SelectsEndpoint(t *testing.T) {
	const byDefault = "unix:///var/run/docker.sock"
	for _, c := range []struct {
		name                    string
		choice                  docker.EndpointConfig
		current, host, context  string
		wantHost, source, fails string
	}{
		{
			name: "engine.host", choice: docker.EndpointConfig{Host: "unix:///a", Context: "one"},
			current: "two", host: "unix:///b", context: "two", wantHost: "unix:///a", source: "engine.host",
		},
		{
			name: "engine.context", choice: docker.EndpointConfig{Context: "one"}, current: "two",
			host: "unix:///b", context: "two", wantHost: "unix:///ctx/one", source: "engine.context",
		},
		{
			name: "DOCKER_HOST", current: "two", host: "unix:///b", context: "one", wantHost: "unix:///b",
			source: "DOCKER_HOST",
		},
		{
			name: "DOCKER_CONTEXT", current: "two", context: "one", wantHost: "unix:///ctx/one",
			source: "DOCKER_CONTEXT",
		},
		{name: "currentContext", current: "two", wantHost: "unix:///ctx/two", source: "currentContext"},
		{name: "default", wantHost: byDefault, source: "default"},
		{name: "current is default", current: "default", wantHost: byDefault, source: "default"},
		{
			name: "DOCKER_CONTEXT=default", current: "two", context: "default", wantHost: byDefault,
			source: "DOCKER_CONTEXT",
		},
		{
			name: "unknown in engine.context", choice: docker.EndpointConfig{Context: "none"},
			fails: "engine.context",
		},
		{name: "unknown in DOCKER_CONTEXT", context: "none", fails: "DOCKER_CONTEXT"},
		{name: "unknown current", current: "none", fails: "currentContext"},
		{name: "no address", host: "not an address", fails: "DOCKER_HOST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dockerConfig(t, c.current, "one", "two")
			t.Setenv("DOCKER_HOST", c.host)
			t.Setenv("DOCKER_CONTEXT", c.context)
			e, err := docker.NewEngine(c.choice, docker.Options{Log: zap.NewNop()})
			if c.fails != "" {
				if dray.CodeOf(err) != dray.CodeEngineUnavailable || !strings.Contains(err.Error(), c.fails) ||
					dray.AsError(err).Hint == "" {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			if e.Host() != c.wantHost || !strings.HasPrefix(e.Source(), c.source) {
				t.Errorf("got %s by %s, want %s by %s", e.Host(), e.Source(), c.wantHost, c.source)
			}
			if env := e.Env(); c.choice.Host != "" && !slices.Contains(env, "DOCKER_HOST="+c.choice.Host) {
				t.Errorf("the docker CLI would select another engine: %q", env)
			}
		})
	}
}

// The error of a missing engine contains its address.
func TestInspect_NoEngine(t *testing.T) {
	e, err := docker.NewEngine(docker.EndpointConfig{Host: "unix://" + t.TempDir() + "/none.sock"},
		docker.Options{Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	_, err = e.Inspect(t.Context(), "any")
	if dray.CodeOf(err) != dray.CodeEngineUnavailable || !strings.Contains(err.Error(), "none.sock") ||
		!strings.Contains(dray.AsError(err).Hint, "engine.host") {
		t.Errorf("got %v", err)
	}
}

// The hint for an engine that this user may not use differs from that for one that does not answer:
// starting it would not help.
func TestInspect_PermissionDenied(t *testing.T) {
	const variable = "DRAY_TEST_DENIED_SOCKET"
	socket := os.Getenv(variable)
	if socket == "" && os.Geteuid() != 0 {
		t.Skip("needs root, to create a socket of another user")
	}
	if socket == "" {
		//nolint:usetesting // only root can enter the directories of t.TempDir
		dir, err := os.MkdirTemp("", "dray-engine-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		l, err := net.Listen("unix", filepath.Join(dir, "engine.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(l.Addr().String(), 0o600)); err != nil {
			t.Fatal(err)
		}
		child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		child.Dir, child.Env = dir, append(os.Environ(), variable+"="+l.Addr().String(), "HOME="+dir,
			"TMPDIR="+dir)
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: group}}
		if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	e, err := docker.NewEngine(docker.EndpointConfig{Host: "unix://" + socket},
		docker.Options{Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	_, err = e.Inspect(t.Context(), "any")
	if dray.CodeOf(err) != dray.CodeEngineUnavailable ||
		!strings.Contains(dray.AsError(err).Hint, "join the group") {
		t.Errorf("got %v, hint %q", err, dray.AsError(err).Hint)
	}
}
