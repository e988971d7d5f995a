package enginetest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sshd demands to be started by its absolute path.
const sshd = "/usr/sbin/sshd"

// SSHHost starts an sshd on a port of the loopback device, with its own keys and configuration. It
// returns an address, as in DOCKER_HOST, by which the engine of the test is reached. The test gets
// an `ssh` on its PATH that has the key and knows the host. The sshd ends with the test. The test
// is skipped without openssh-server.
func SSHHost(tb testing.TB) string {
	tb.Helper()
	requireSSH(tb)
	dir, address := tb.TempDir(), freePort(tb)
	config, err := configureSSHD(dir, address)
	if err == nil {
		err = addSSHCommand(dir, address)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	startSSHD(tb, config, address)
	me, err := user.Current()
	if err != nil {
		tb.Fatal(err)
	}
	return "ssh://" + me.Username + "@" + address
}

func requireSSH(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		SkipMissing(tb, "only root can start sshd for a test")
	}
	for _, program := range []string{sshd, "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			SkipMissing(tb, "no ssh host can be made for a test: %v", err)
		}
	}
}

// configureSSHD makes the keys of the host and of the user, and returns the path of the
// configuration. Sessions get the test's DOCKER_HOST.
func configureSSHD(dir, address string) (path string, err error) {
	for _, name := range []string{"host", "user"} {
		key := filepath.Join(dir, name)
		if err := run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key); err != nil {
			return "", err
		}
	}
	text := strings.Join([]string{
		"ListenAddress " + address, "HostKey " + filepath.Join(dir, "host"), "PidFile none",
		"AuthorizedKeysFile " + filepath.Join(dir, "user.pub"), "StrictModes no", "UsePAM no",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "MaxStartups 100",
		"SetEnv DOCKER_HOST=" + os.Getenv("DOCKER_HOST"), "",
	}, "\n")
	path = filepath.Join(dir, "sshd_config")
	// sshd demands /run/sshd, which the system may have made
	return path, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.MkdirAll("/run/sshd", 0o755)) //nolint:gosec // its usual mode
}

// addSSHCommand writes a program `ssh` that uses the key of the user and the key of the host.
func addSSHCommand(dir, address string) error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return err
	}
	key, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	known := filepath.Join(dir, "known_hosts")
	script := fmt.Sprintf("#!/bin/sh\nexec %s -F none -i %s -o IdentitiesOnly=yes "+
		"-o UserKnownHostsFile=%s \"$@\"\n", program, filepath.Join(dir, "user"), known)
	return errors.Join(
		os.WriteFile(known, fmt.Appendf(nil, "[%s]:%s %s", host, port, key), 0o600),
		os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o700), //nolint:gosec // it is a program
	)
}

// startSSHD starts sshd and waits until it accepts connections.
func startSSHD(tb testing.TB, config, address string) {
	tb.Helper()
	cmd := exec.Command(sshd, "-D", "-e", "-f", config) //nolint:noctx,gosec // the cleanup ends it
	var log strings.Builder
	cmd.Stderr, cmd.SysProcAttr = &log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if tb.Failed() {
			tb.Logf("log of sshd:\n%s", &log)
		}
	})
	for limit := time.Now().Add(startTimeout); ; time.Sleep(pollInterval) {
		c, err := net.Dial("tcp", address) //nolint:noctx // it is this machine
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(limit) {
			tb.Fatalf("sshd does not accept connections: %v", err)
		}
	}
}
