package config_test

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray/config"
)

// The configuration file: --config, DRAY_CONFIG, $XDG_CONFIG_HOME/dray/config.yaml,
// /etc/dray/config.yaml.
func TestConfigFile(t *testing.T) {
	const grace = "limits: {grace: 1s}"
	all := files{
		"/flag.yaml": grace, "/env.yaml": grace, "/xdg/dray/config.yaml": grace, "/home/me/.config/dray/config.yaml": grace, "/etc/dray/config.yaml": grace,
	}
	system := files{"/etc/dray/config.yaml": grace}
	tests := []struct {
		name  string
		flag  string
		env   []string
		files files
		want  string
	}{
		{
			"flag", "/flag.yaml",
			[]string{"DRAY_CONFIG=/env.yaml", "XDG_CONFIG_HOME=/xdg"},
			all,
			"/flag.yaml",
		},
		{"variable", "", []string{"DRAY_CONFIG=/env.yaml", "XDG_CONFIG_HOME=/xdg"}, all, "/env.yaml"},
		{"XDG_CONFIG_HOME", "", []string{"XDG_CONFIG_HOME=/xdg"}, all, "/xdg/dray/config.yaml"},
		{
			"XDG_CONFIG_HOME without the file", "",
			[]string{"XDG_CONFIG_HOME=/xdg"},
			system,
			"/etc/dray/config.yaml",
		},
		{"XDG's own default", "", nil, all, "/home/me/.config/dray/config.yaml"},
		{
			"a relative XDG_CONFIG_HOME is ignored", "",
			[]string{"XDG_CONFIG_HOME=xdg"},
			all,
			"/home/me/.config/dray/config.yaml",
		},
		{"system", "", nil, system, "/etc/dray/config.yaml"},
		{"none", "", nil, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := config.Load(config.Options{
				ConfigFile: tt.flag,
				Environ:    append(tt.env, "HOME=/home/me"), ReadFile: tt.files.read,
			})
			if err != nil {
				t.Fatal(err)
			}
			if edit := cmp.Or(tt.want, "/home/me/.config/dray/config.yaml"); c.FileToEdit() != edit {
				t.Errorf("the file to edit is %s, want %s", c.FileToEdit(), edit)
			}
			if c.File != tt.want {
				t.Errorf("read %q, want %q", c.File, tt.want)
			}
		})
	}
}

// A named file must exist, and an existing file must be readable.
func TestConfigFileUnreadable(t *testing.T) {
	denied := func(name string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES}
	}
	tests := []struct {
		name string
		opts config.Options
		want string
	}{
		{"flag", config.Options{ConfigFile: "/no.yaml", ReadFile: files{}.read}, `--config: configuration file: "/no.yaml" cannot be read: file does not exist`},
		{
			"variable",
			config.Options{Environ: []string{"DRAY_CONFIG=/no.yaml"}, ReadFile: files{}.read},
			`DRAY_CONFIG: configuration file: "/no.yaml" cannot be read: file does not exist`,
		},
		{
			"system",
			config.Options{ReadFile: denied},
			`/etc/dray/config.yaml: configuration file: "/etc/dray/config.yaml" cannot be read: permission denied`,
		},
		{"directory", config.Options{ConfigFile: t.TempDir()}, "cannot be read: is a directory"},
		{"no end", config.Options{ConfigFile: "/dev/zero"}, "cannot be read: longer than 1048576 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.State = "/state"
			_, err := config.Load(tt.opts)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %s", err, tt.want)
			}
		})
	}
}

// Without ReadFile the file is read from the file system.
func TestConfigFileOnDisk(t *testing.T) {
	name := filepath.Join(t.TempDir(), "dray.yaml")
	if err := os.WriteFile(name, []byte("limits: {grace: 3s}"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Options{State: "/state", ConfigFile: name})
	if err != nil || c.Limits.Grace != 3*time.Second || c.File != name {
		t.Errorf("Load returns %+v, %v", c, err)
	}
}

// The state directory: --state, DRAY_STATE, $XDG_STATE_HOME/dray, ~/.local/state/dray.
func TestStateDirectory(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, flag string
		env        []string
		want       string
	}{
		{"flag", "/flag", []string{"DRAY_STATE=/env", "XDG_STATE_HOME=/xdg"}, "/flag"},
		{"variable", "", []string{"DRAY_STATE=/env/", "XDG_STATE_HOME=/xdg"}, "/env"},
		{"XDG_STATE_HOME", "", []string{"XDG_STATE_HOME=/xdg"}, "/xdg/dray"},
		{"home", "", []string{"XDG_STATE_HOME="}, "/home/me/.local/state/dray"},
		{"relative", "s", nil, filepath.Join(here, "s")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := config.Load(config.Options{
				State:   tt.flag,
				Environ: append(tt.env, "HOME=/home/me", "DRAY_SERVER_SOCKET=/s"), ReadFile: files{}.read,
			})
			if err != nil {
				t.Fatal(err)
			}
			if string(c.State) != tt.want {
				t.Errorf("the state directory is %q, want %q", c.State, tt.want)
			}
		})
	}
	if _, err := config.Load(config.Options{ReadFile: files{}.read}); err == nil ||
		!strings.Contains(err.Error(), "--state DIR") {
		t.Errorf("without a home the error is %v", err)
	}
}

// The longest possible socket path is accepted, a longer one refused.
func TestMaximumSocketLength(t *testing.T) {
	longest := "/" + strings.Repeat("s", 106)
	if c := (source{env: []string{"DRAY_SERVER_SOCKET=" + longest}}).
		mustLoad(t); c.Server.Socket != longest {
		t.Errorf("socket is %q", c.Server.Socket)
	}
	m := source{env: []string{"DRAY_SERVER_SOCKET=" + longest + "s"}}.diagnostics(t)[0]
	if m.Key != "server.socket" || !strings.HasSuffix(m.Suggestion, "/dray.sock") {
		t.Errorf("the problem is %+v", m)
	}
}

func stateAt(t *testing.T, dir string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Options{
		State: dir, Environ: []string{"DRAY_SERVER_SOCKET=/s"},
		ReadFile: files{}.read,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMakeState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "state")
	for range 2 { // the second time it exists
		if err := stateAt(t, dir).MakeState(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the directory is %v, %v", info.Mode(), err)
	}
}

// A state directory that others can read, or that dray cannot write to, is refused and not changed.
func TestMakeStateRefuses(t *testing.T) {
	tmp := t.TempDir()
	for _, mode := range []fs.FileMode{0o755, 0o750, 0o701, 0o720, 0o500, 0o300} {
		dir := filepath.Join(tmp, mode.String())
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		err := stateAt(t, dir).MakeState()
		if err == nil || !strings.Contains(err.Error(), "run: chmod 700 "+dir) {
			t.Errorf("with mode %v the error is %v", mode, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v became %v, %v", mode, info.Mode(), err)
		}
	}
	shared := filepath.Join(tmp, "shared") // such as /tmp: a chmod would break it for others
	if err := errors.Join(os.MkdirAll(filepath.Join(shared, "theirs"), 0o755),
		os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := stateAt(t, shared).MakeState(); err == nil || strings.Contains(err.Error(), "chmod") ||
		!strings.Contains(err.Error(), "such as "+shared+"/dray") {
		t.Errorf("for a directory of others the error is %v", err)
	}
	file := filepath.Join(tmp, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var invalid *config.InvalidError
	if err := stateAt(t, file).MakeState(); !errors.As(err, &invalid) ||
		!strings.Contains(err.Error(), "not a directory") {
		t.Errorf("for a file the error is %v", err)
	}
}

func TestMakeStateRefusesDirectoryOfOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chown requires root")
	}
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 12345, -1)); err != nil {
		t.Fatal(err)
	}
	err := stateAt(t, dir).MakeState()
	if err == nil || !strings.Contains(err.Error(), "is owned by uid 12345, and dray runs as uid 0") {
		t.Errorf("error is %v", err)
	}
}
