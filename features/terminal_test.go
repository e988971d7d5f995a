package features

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminalEnv is a daemon with one workspace, and the flags that choose where its tools run.
type terminalEnv struct {
	*daemon
	root  string
	where string
}

// forEachTerminalEnv runs a test on the host and in a container, with more settings.
func forEachTerminalEnv(t *testing.T, test func(*testing.T, terminalEnv), settings ...string) {
	root := newDir(t)
	config := "host: {roots: [" + root + "]}\n" + strings.Join(settings, "")
	if !testing.Short() {
		config += "trust: {workspaces: [" + root + "]}\n"
		writeFiles(t, root, map[string]string{
			".devcontainer.json": withImages(`{"image": "DEBIAN", "remoteUser": "vscode", "updateRemoteUserUID": false}`),
		})
		if err := os.Chmod(root, 0o777); err != nil { // for the container's user
			t.Fatal(err)
		}
	}
	d := startDaemon(t, config)
	t.Cleanup(func() { // before the volumes of the daemon's state
		if !testing.Short() {
			removeContainers(t, root)
		}
	})
	t.Run("host", func(t *testing.T) { test(t, terminalEnv{d, root, "host"}) })
	t.Run("container", func(t *testing.T) {
		needsEngine(t)
		test(t, terminalEnv{d, root, "container"})
	})
}

// exec prepares `dray exec` in a process of its own, since a terminal belongs to processes.
func (d terminalEnv) exec(args ...string) *exec.Cmd {
	own := []string{"exec", "--state", d.state, "--config", d.config, "--workspace", d.root}
	if d.where == "host" {
		own = append(own, "--host")
	}
	cmd := exec.Command(os.Args[0], append(own, args...)...)
	cmd.Dir = d.root
	cmd.Env = append(os.Environ(), "TERM=xterm")
	return cmd
}

// shell is a bash whose prompt has the number of jobs and the last exit code.
var shell = []string{"--env", `PS1=[\j jobs, $?] `, "--", "bash", "--norc", "--noprofile"}

// Bash has a complete terminal: job control, Ctrl-C and Ctrl-Z for the foreground job only, size
// and resizing, exit code. The caller's terminal is raw meanwhile and restored afterwards (EX-19).
func TestShellOnATerminal(t *testing.T) {
	forEachTerminalEnv(t, func(t *testing.T, d terminalEnv) {
		p := newTTYUser(t, 100, 30)
		before := p.modes()
		cmd := d.exec(shell...)
		cmd.Env = append(cmd.Env, "TERM=vt220")
		p.start(cmd)
		p.sees("[0 jobs, 0] ")
		if during := p.modes(); during.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
			t.Errorf("the caller's terminal is not raw: %+v", during)
		}

		p.types("stty size; echo $TERM\n")
		p.sees("30 100\r\nvt220\r\n")
		p.sees("[0 jobs, 0] ") // before its prompt bash writes back the size that it has read
		p.resize(132, 43)
		p.types("until [ \"$(stty size)\" = '43 132' ]; do :; done; echo resized $((40 + 2))\n")
		p.sees("resized 42\r\n")
		p.sees("[0 jobs, 0] ")

		p.types("sleep 100 &\n")
		p.sees("[1] ")
		p.sees("[1 jobs, 0] ")
		p.types("cat -n\none\n")
		p.sees("1\tone\r\n") // the reader of the terminal is in the foreground
		p.types("\x1a")
		p.sees("Stopped")
		p.sees("[2 jobs, 148] ")
		p.types("jobs\n")
		p.sees("Running")
		p.sees("Stopped")
		p.sees("[2 jobs, 0] ")
		p.types("fg\n")
		p.sees("cat -n\r\n")
		p.types("two\n")
		p.sees("2\ttwo\r\n")
		p.types("\x03")
		p.sees("[1 jobs, 130] ") // it ended cat, but not sleep
		p.types("jobs\n")
		p.sees("Running")
		p.sees("[1 jobs, 0] ")

		p.types("exit 7\n")
		p.exits(7)
		if after := p.modes(); after != before {
			t.Errorf("the caller's terminal was %+v and is %+v", before, after)
		}
	})
}

// An editor draws on the terminal and saves what is typed (EX-19).
func TestEditorOnATerminal(t *testing.T) {
	forEachTerminalEnv(t, func(t *testing.T, d terminalEnv) {
		editor := "vim.tiny"
		if d.where == "host" {
			editor = findEditor(t)
		}
		file := filepath.Join(d.root, d.where+".txt")
		if err := os.WriteFile(file, []byte("first\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o666); err != nil {
			t.Fatal(err)
		}
		p := newTTYUser(t, 80, 24)
		before := p.modes()
		p.start(d.exec("--", editor, "-u", "NONE", filepath.Base(file)))
		p.sees("first")
		p.types("oder zweite ä\x1b")
		p.sees("zweite ä")
		p.types(":wq\r")
		p.exits(0)
		if got, err := os.ReadFile(file); err != nil || string(got) != "first\nder zweite ä\n" {
			t.Errorf("the file has %q, %v", got, err)
		}
		if after := p.modes(); after != before {
			t.Errorf("the caller's terminal was %+v and is %+v", before, after)
		}
	})
}

// findEditor returns the name of vim on this machine.
func findEditor(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"vim.tiny", "vim"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("vim is not installed here")
	return ""
}

// Three times Ctrl-] leaves a program that ignores Ctrl-C (EX-19).
func TestEscapeFromATerminal(t *testing.T) {
	forEachTerminalEnv(t, func(t *testing.T, d terminalEnv) {
		p := newTTYUser(t, 80, 24)
		before := p.modes()
		p.start(d.exec("--", "sh", "-c", `trap 'echo "not me"' INT; echo ready; while :; do read line; done`))
		p.sees("ready")
		p.types("\x03")
		p.sees("not me")
		p.types("\x1d\x1d\x1d")
		p.exits(130)
		if after := p.modes(); after != before {
			t.Errorf("the caller's terminal was %+v and is %+v", before, after)
		}
	})
}

// A program gets a terminal if stdin and stdout are terminals, unless a flag overrides that
// (EX-19).
func TestWhoGetsATerminal(t *testing.T) {
	forEachTerminalEnv(t, func(t *testing.T, d terminalEnv) {
		for _, tt := range []struct {
			name          string
			flags         []string
			stdin, stdout bool // are a terminal
			want          bool
		}{
			{"both", nil, true, true, true},
			{"stdin alone", nil, true, false, false},
			{"stdout alone", nil, false, true, false},
			{"neither", nil, false, false, false},
			{"neither, and wanted", []string{"-t"}, false, false, true},
			{"both, and not wanted", []string{"-T"}, true, true, false},
		} {
			t.Run(tt.name, func(t *testing.T) {
				cmd := d.exec(append(tt.flags, "--", "sh", "-c",
					"test -t 0 && test -t 1 && test -t 2; echo $? > "+d.where+".seen")...)
				var out strings.Builder
				if !tt.stdin {
					cmd.Stdin = strings.NewReader("")
				}
				if !tt.stdout {
					cmd.Stdout = &out
				}
				p := newTTYUser(t, 80, 24)
				p.start(cmd)
				p.exits(0)
				got, err := os.ReadFile(filepath.Join(d.root, d.where+".seen"))
				if want := map[bool]string{true: "0\n", false: "1\n"}[tt.want]; err != nil ||
					string(got) != want {
					t.Errorf("test -t prints %q, want %q; %v; %s", got, want, err, out.String())
				}
			})
		}
	})
}
