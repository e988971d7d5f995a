// Package helper has what the packages share that start programs on the host for a workspace, which
// are docker compose and the reference CLI: the form of a command, and private files.
package helper

import (
	"bytes"
	"context"
	"io"
	"strings"
)

// Command is a program to start on the host with an empty stdin. Env is its whole environment.
type Command struct {
	Argv []string
	Env  []string
	Dir  string
}

// Running is a started program with its descendants. Both streams must be read to their end before
// Wait is called.
type Running interface {
	Stdout() io.Reader
	Stderr() io.Reader
	// Stop ends the program and its descendants. It does not wait.
	Stop()
	// Wait returns the exit code, 128 + N for signal N. It fails if the exit status is unknown.
	Wait() (exitCode int, err error)
}

// StartFunc starts a program. The context applies to the start only.
type StartFunc func(ctx context.Context, cmd Command) (Running, error)

// RunFunc runs a program and returns its stdout. An error has the end of its stderr.
type RunFunc func(ctx context.Context, cmd Command) (stdout string, err error)

// ReadTail reads a stream until it ends or fails, and returns its last bytes, at most limit.
func ReadTail(r io.Reader, limit int) []byte {
	var tail []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Read(chunk)
		tail = append(tail, chunk[:n]...)
		if over := len(tail) - limit; over > 0 {
			tail = bytes.Clone(tail[over:])
		}
		if err != nil {
			return tail
		}
	}
}

// envNames are the variables of the daemon that `up` gets, besides DOCKER_* and LC_* (EX-06).
var envNames = map[string]bool{
	"HOME": true, "USER": true, "LOGNAME": true, "PATH": true, "LANG": true, "LANGUAGE": true,
	"TZ": true, "SSH_AUTH_SOCK": true, "XDG_RUNTIME_DIR": true,
}

// Env returns the variables of the daemon's environment that `up` of a trusted workspace gets:
// they locate the engine, its configuration and the user's keys. Secrets of the daemon are not
// passed.
func Env(environ []string) []string {
	var env []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if envNames[name] || strings.HasPrefix(name, "DOCKER_") || strings.HasPrefix(name, "LC_") {
			env = append(env, pair)
		}
	}
	return env
}
