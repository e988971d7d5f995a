package enginetest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSHHost serves ssh on a port of the loopback device until the test ends. It returns an address,
// as in DOCKER_HOST, by which the engine of the test is reached. The test gets an `ssh` on its PATH
// that has the key and knows the host.
//
// Only the server is made for the test: the package of a real one would start it on the machine.
func SSHHost(tb testing.TB) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the cleanup closes it
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = listener.Close() })
	dir, address := tb.TempDir(), listener.Addr().String()
	config, err := configureSSH(dir, address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	me, err := user.Current()
	if err != nil {
		tb.Fatal(err)
	}
	go serveSSH(listener, config, os.Environ())
	return "ssh://" + me.Username + "@" + address
}

// configureSSH makes the keys of the host and of the user, and the program `ssh`.
func configureSSH(dir, address string) (*ssh.ServerConfig, error) {
	_, hostKey, hostErr := ed25519.GenerateKey(nil)
	_, userKey, userErr := ed25519.GenerateKey(nil)
	if err := errors.Join(hostErr, userErr); err != nil {
		return nil, err
	}
	host, hostErr := ssh.NewSignerFromKey(hostKey)
	me, userErr := ssh.NewSignerFromKey(userKey)
	block, blockErr := ssh.MarshalPrivateKey(userKey, "")
	program, pathErr := exec.LookPath("ssh")
	if err := errors.Join(hostErr, userErr, blockErr, pathErr); err != nil {
		return nil, err
	}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if !bytes.Equal(key.Marshal(), me.PublicKey().Marshal()) {
				return nil, errors.New("not the key of the test")
			}
			return &ssh.Permissions{}, nil
		},
	}
	config.AddHostKey(host)
	identity, known := filepath.Join(dir, "user"), filepath.Join(dir, "known_hosts")
	script := fmt.Sprintf("#!/bin/sh\nexec %s -F none -i %s -o IdentitiesOnly=yes "+
		"-o UserKnownHostsFile=%s \"$@\"\n", program, identity, known)
	line := knownhosts.Line([]string{knownhosts.Normalize(address)}, host.PublicKey())
	return config, errors.Join(
		os.WriteFile(identity, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(known, []byte(line+"\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "ssh"), []byte(script), 0o700), //nolint:gosec // it is a program
	)
}

// serveSSH serves connections until the listener is closed.
func serveSSH(listener net.Listener, config *ssh.ServerConfig, environment []string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for c := range channels {
				if c.ChannelType() != "session" {
					_ = c.Reject(ssh.UnknownChannelType, "only sessions")
				} else if channel, requests, err := c.Accept(); err == nil {
					go serveSession(channel, requests, environment)
				}
			}
		}()
	}
}

// serveSession runs the command of a session with the shell.
func serveSession(channel ssh.Channel, requests <-chan *ssh.Request, environment []string) {
	for request := range requests {
		var command struct{ Line string }
		ok := request.Type == "exec" && ssh.Unmarshal(request.Payload, &command) == nil
		_ = request.Reply(ok, nil)
		if !ok {
			continue
		}
		cmd := exec.Command("/bin/sh", "-c", command.Line) //nolint:noctx,gosec // the end of its input ends it
		cmd.Env, cmd.Stdout, cmd.Stderr = environment, channel, channel.Stderr()
		stdin, err := cmd.StdinPipe()
		if err == nil {
			go func() {
				_, _ = io.Copy(stdin, channel)
				_ = stdin.Close()
			}()
			err = cmd.Run()
		}
		status := struct{ Code uint32 }{}
		if exit, isExit := errors.AsType[*exec.ExitError](err); isExit {
			status.Code = uint32(exit.ExitCode()) //nolint:gosec // 0 to 255, or all bits set
		} else if err != nil {
			status.Code = 255
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
		_ = channel.Close()
	}
}
