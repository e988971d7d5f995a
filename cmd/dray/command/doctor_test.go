package command

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/dray-dev/dray/audit"
)

// engineOfVersion answers like an engine with these versions.
func engineOfVersion(t *testing.T, engine, runc string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if strings.HasSuffix(r.URL.Path, "/version") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"Version": %q, "ApiVersion": "1.41", "Components": [
				{"Name": "Engine", "Version": %[1]q}, {"Name": "runc", "Version": %q}]}`, engine, runc)
		}
	}))
	t.Cleanup(s.Close)
	return "tcp://" + s.Listener.Addr().String()
}

// healthy sets the environment of a command to one in which doctor finds nothing but the limits of
// this machine's cgroups. It returns the state directory.
func healthy(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	cli := filepath.Join(t.TempDir(), "devcontainer")
	if err := os.WriteFile(cli, []byte("#!/bin/sh\necho 0.87.0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/usr/bin:/bin") // doctor changes it
	t.Setenv("DRAY_STATE", state)
	t.Setenv("DRAY_CONFIG", "")
	t.Setenv("DRAY_DEVCONTAINER_CLI", cli)
	t.Setenv("DOCKER_HOST", engineOfVersion(t, "20.10.0", "1.3.3"))
	return state
}

// examine runs doctor --json and returns the warnings and errors, without those of cgroups.
func examine(t *testing.T) (code int, found []finding) {
	t.Helper()
	var out, stderr bytes.Buffer
	code = Execute(t.Context(), []string{"doctor", "--json"}, nil, &out, &stderr)
	var report struct {
		OK       bool      `json:"ok"`
		Findings []finding `json:"findings"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v: %s; stderr %s", err, out.String(), stderr.String())
	}
	if report.OK != (code == exitOK) {
		t.Errorf("ok is %v with exit code %d", report.OK, code)
	}
	for _, f := range report.Findings {
		switch {
		case f.Status == checkOK && f.Fix != "", f.Status != checkOK && f.Fix == "":
			t.Errorf("finding %+v", f)
		case f.Status != checkOK && f.Check != "cgroups":
			found = append(found, f)
		}
	}
	return code, found
}

// Each thing that is broken is found, with a fix, and only errors change the exit code (OP-02).
// serverConfig writes a configuration with an MCP server on the host.
func serverConfig(t *testing.T, file func(*testing.T, string, string) string, root, program,
	workspace string,
) string {
	t.Helper()
	return file(t, "c.yaml", "host: {roots: ["+root+"]}\nmcp: {servers: {s: {argv: ["+program+
		"], workspace: "+workspace+", environment: host}}}\n")
}

func TestDoctor(t *testing.T) {
	file := func(t *testing.T, name, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tt := range map[string]struct {
		damage func(t *testing.T, state string)
		// status and check of the only finding, and a part of its message or fix
		want [3]string
	}{
		"nothing": {func(*testing.T, string) {}, [3]string{}},
		"configuration": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_CONFIG", file(t, "c.yaml", "limits: {timout: 5m}\n"))
		}, [3]string{checkError, "configuration", "did you mean timeout?"}},
		"schema of a tool": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_CONFIG", file(t, "c.yaml", "tools: [{name: a, argv: [b], input_schema: {type: 5}}]\n"))
		}, [3]string{checkError, "configuration", "input_schema"}},
		"policy": {func(t *testing.T, _ string) {
			policy := file(t, "p.cedar", "permit (principal, action, resource) if { true };")
			t.Setenv("DRAY_CONFIG", file(t, "c.yaml", "policy: {files: ["+policy+"]}\n"))
		}, [3]string{checkError, "configuration", "p.cedar"}},
		"MCP server without its program": {func(t *testing.T, state string) {
			t.Setenv("DRAY_CONFIG", serverConfig(t, file, state, "no-such-program", state))
		}, [3]string{checkError, "mcp.servers", "no-such-program is in no directory of PATH="}},
		"MCP server outside the roots": {func(t *testing.T, state string) {
			t.Setenv("DRAY_CONFIG", serverConfig(t, file, t.TempDir(), "sleep", state))
		}, [3]string{checkError, "mcp.servers", "add the workspace to host.roots"}},
		"MCP server without a workspace": {func(t *testing.T, state string) {
			t.Setenv("DRAY_CONFIG", serverConfig(t, file, state, "sleep", state+"/none"))
		}, [3]string{checkError, "mcp.servers", "mcp.servers.s.workspace"}},
		"rights of the state directory": {func(t *testing.T, state string) {
			if err := os.Chmod(state, 0o755); err != nil {
				t.Fatal(err)
			}
		}, [3]string{checkError, "configuration", "chmod 700"}},
		"engine is not there": {func(t *testing.T, _ string) {
			t.Setenv("DOCKER_HOST", "unix:///nowhere.sock")
		}, [3]string{checkError, "engine", "(selected by DOCKER_HOST)"}},
		"ssh host is not there": {func(t *testing.T, _ string) {
			t.Setenv("DOCKER_HOST", "ssh://127.0.0.1:1")
		}, [3]string{checkError, "engine", "engine at ssh://127.0.0.1:1 "}},
		"something else answers": {func(t *testing.T, _ string) {
			s := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			t.Setenv("DOCKER_HOST", "tcp://"+s.Listener.Addr().String())
		}, [3]string{checkError, "engine", "start the engine"}},
		"no such context": {func(t *testing.T, _ string) {
			t.Setenv("DOCKER_HOST", "")
			t.Setenv("DOCKER_CONTEXT", "nowhere")
		}, [3]string{checkError, "configuration", "docker version"}},
		"old engine": {func(t *testing.T, _ string) {
			t.Setenv("DOCKER_HOST", engineOfVersion(t, "19.03.15", "1.2.8"))
		}, [3]string{checkWarning, "engine", "20.10 or later"}},
		"runc of 2024": {func(t *testing.T, _ string) {
			t.Setenv("DOCKER_HOST", engineOfVersion(t, "28.0.0", "1.3.2"))
		}, [3]string{checkWarning, "engine", "CVE-2025-31133"}},
		"no devcontainer CLI": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_DEVCONTAINER_CLI", "/nowhere/devcontainer")
		}, [3]string{checkWarning, "devcontainer CLI", "npm install"}},
		"devcontainer CLI fails": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_DEVCONTAINER_CLI", "/bin/false")
		}, [3]string{checkError, "devcontainer CLI", "/bin/false --version: exit status 1"}},
		"old devcontainer CLI": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_DEVCONTAINER_CLI", "/bin/echo") // its version is --version
		}, [3]string{checkWarning, "devcontainer CLI", "0.87.0 or later"}},
		"PATH": {func(t *testing.T, _ string) {
			t.Setenv("PATH", "/usr/bin:relative")
		}, [3]string{checkWarning, "PATH", "relative"}},
		"audit log is no database": {func(t *testing.T, state string) {
			if err := os.WriteFile(filepath.Join(state, "audit.db"), make([]byte, 8192), 0o600); err != nil {
				t.Fatal(err)
			}
		}, [3]string{checkError, "audit log", "restore a backup"}},
		"audit log of a later version": {func(t *testing.T, state string) {
			path := filepath.Join(state, "audit.db")
			s, _, err := audit.Open(t.Context(), audit.Options{
				Path: path, CapturesDir: filepath.Join(state, "captures"),
			})
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite3", path)
			if err == nil {
				_, err = db.ExecContext(t.Context(),
					"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
			}
			if err := errors.Join(err, db.Close(), s.Close(t.Context())); err != nil {
				t.Fatal(err)
			}
		}, [3]string{checkError, "audit log", "run the newer dray"}},
		"root is missing": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_HOST_ROOTS", "/nowhere/src")
		}, [3]string{checkWarning, "host.roots", "create the directory"}},
		"root is a file": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_HOST_ROOTS", file(t, "src", ""))
		}, [3]string{checkError, "host.roots", "is not a directory"}},
		"root is everything": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_HOST_ROOTS", "/")
		}, [3]string{checkWarning, "host.roots", "everywhere on the host"}},
		"sandbox root": {func(t *testing.T, _ string) {
			t.Setenv("DRAY_SANDBOX_ROOT", "/usr")
		}, [3]string{checkError, "configuration", "sandbox.root"}},
		"daemon does not respond": {func(t *testing.T, state string) {
			held, err := tryLock(filepath.Join(state, daemonLock))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(held.unlock)
		}, [3]string{checkError, "daemon", "does not respond"}},
		"full disk": {func(t *testing.T, state string) {
			if err := syscall.Mount("none", state, "tmpfs", 0, "size=1m,mode=700"); err != nil {
				t.Skipf("no file system can be mounted here: %v", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(state, syscall.MNT_DETACH) })
			if err := os.WriteFile(state+"/filler", make([]byte, 1<<20-4<<10), 0o600); err != nil {
				t.Fatal(err)
			}
		}, [3]string{checkError, "state disk", "free some space"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.damage(t, healthy(t))
			code, found := examine(t)
			if (code == exitFailed) != (tt.want[0] == checkError) {
				t.Errorf("exit code %d", code)
			}
			if tt.want == [3]string{} {
				if len(found) > 0 {
					t.Errorf("found %q", found)
				}
				return
			}
			if len(found) != 1 || found[0].Status != tt.want[0] || found[0].Check != tt.want[1] ||
				!strings.Contains(found[0].Message+"\n"+found[0].Fix, tt.want[2]) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}

// As text each finding is a line, and a warning or an error has its fix below.
func TestDoctorText(t *testing.T) {
	healthy(t)
	t.Setenv("DRAY_HOST_ROOTS", "/nowhere/\x1b[2Jsrc")
	var out bytes.Buffer
	if code := Execute(t.Context(), []string{"doctor"}, nil, &out, io.Discard); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	text := out.String()
	if !strings.Contains(text, "\nwarning  host.roots ") || strings.Contains(text, "\x1b") ||
		!strings.Contains(text, "\n                           fix: create the directory") ||
		!strings.Contains(text, "\nerrors: 0, warnings: ") {
		t.Error(text)
	}
}

// A version of a distribution has more than numbers.
func TestIsOlder(t *testing.T) {
	for pair, want := range map[string]bool{
		"1.1.5+ds1 1.1.12": true, "1.1.12 1.1.12": false, "1.1.12~rc1 1.1.12": false, "1.3.0 1.2.8": false,
		"v1.2.7-1 1.2.8": true, "20.10.24+dfsg1 20.10": false, "19.03 20.10": true, "4.3.1 4.0": false,
		" 1.0": true, "1 1.0.0": false, "1.10 1.9": false,
	} {
		version, than, _ := strings.Cut(pair, " ")
		if got := isOlder(version, than); got != want {
			t.Errorf("isOlder(%q, %q) = %v", version, than, got)
		}
	}
}
