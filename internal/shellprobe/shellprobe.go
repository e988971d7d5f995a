package shellprobe

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// Timeout is the reference's own: after it a call goes on without the shell's variables.
	Timeout = 10 * time.Second
	// MaxAnswer bounds what a shell may print, in bytes, its startup files' banners included.
	MaxAnswer = 4 << 20
	// DefaultShell is asked where neither the configuration nor the user has one.
	DefaultShell = "/bin/sh"
)

var flags = map[string]string{
	"loginInteractiveShell": "-lic", "loginShell": "-lc",
	"interactiveShell": "-ic",
}

// Probe is one question to a shell.
type Probe struct {
	flag   string
	marker string
}

// New makes the question for a userEnvProbe. It is false for `none`, for nothing, and for a kind
// that does not exist.
func New(kind string) (Probe, bool) {
	flag, ok := flags[kind]
	// told from a banner, not a secret
	mark := fmt.Sprintf("dray-%016x%016x", rand.Uint64(), rand.Uint64()) //nolint:gosec
	return Probe{flag: flag, marker: mark}, ok
}

// Argv is the command line that puts the question. Instead is what prints the environment where the
// image has no cat: words of the shell's own language, or nothing.
func (q Probe) Argv(shell, instead string) []string {
	show := "cat /proc/self/environ"
	if instead != "" {
		show += " || " + instead
	}
	return []string{shell, q.flag, fmt.Sprintf("echo -n %s; %s; echo -n %[1]s", q.marker, show)}
}

// ParseOutput reads what the shell printed: exactly what stands between the two marks, since a
// banner before or after is not part of it, and without PWD, which is the shell's own folder and
// not the call's.
func (q Probe) ParseOutput(out []byte) ([]string, error) {
	_, rest, ok := bytes.Cut(out, []byte(q.marker))
	end := bytes.LastIndex(rest, []byte(q.marker))
	if !ok || end < 0 {
		return nil, errors.New("it did not print its environment")
	}
	var env []string
	for kv := range bytes.SplitSeq(rest[:end], []byte{0}) {
		if s := string(kv); s != "" && !strings.HasPrefix(s, "PWD=") {
			env = append(env, s)
		}
	}
	return env, nil
}
