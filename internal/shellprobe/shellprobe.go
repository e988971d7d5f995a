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

var flags = map[string]string{"loginInteractiveShell": "-lic", "loginShell": "-lc", "interactiveShell": "-ic"}

// Question is one question to a shell.
type Question struct {
	flag string
	mark string
}

// Ask makes the question for a userEnvProbe. It is false for `none`, for nothing, and for a kind that does not exist.
func Ask(kind string) (Question, bool) {
	flag, ok := flags[kind]
	mark := fmt.Sprintf("dray-%016x%016x", rand.Uint64(), rand.Uint64()) //nolint:gosec // told from a banner, not a secret
	return Question{flag: flag, mark: mark}, ok
}

// Argv is the command line that puts the question. Instead is what prints the environment where the image has no cat: words of the
// shell's own language, or nothing.
func (q Question) Argv(shell, instead string) []string {
	show := "cat /proc/self/environ"
	if instead != "" {
		show += " || " + instead
	}
	return []string{shell, q.flag, fmt.Sprintf("echo -n %s; %s; echo -n %[1]s", q.mark, show)}
}

// Answer reads what the shell printed: exactly what stands between the two marks, since a banner before or after is not part of it, and
// without PWD, which is the shell's own folder and not the call's.
func (q Question) Answer(out []byte) ([]string, error) {
	_, rest, ok := bytes.Cut(out, []byte(q.mark))
	end := bytes.LastIndex(rest, []byte(q.mark))
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
