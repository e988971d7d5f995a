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
	// Timeout bounds a probe, as in the reference. Without a result a call runs without the shell's
	// variables.
	Timeout = 10 * time.Second
	// MaxOutput bounds what a shell may print, in bytes.
	MaxOutput = 4 << 20
	// DefaultShell is used if neither the configuration nor the user has one.
	DefaultShell = "/bin/sh"
)

var flags = map[string]string{
	"loginInteractiveShell": "-lic", "loginShell": "-lc", "interactiveShell": "-ic",
}

// Probe is one run of a shell.
type Probe struct {
	flag   string
	marker string
}

// New returns the probe for a userEnvProbe. It reports false for "none", "" and unknown kinds.
func New(kind string) (Probe, bool) {
	flag, ok := flags[kind]
	//nolint:gosec // it separates the environment from a banner, and is not a secret
	marker := fmt.Sprintf("dray-%016x%016x", rand.Uint64(), rand.Uint64())
	return Probe{flag: flag, marker: marker}, ok
}

// Argv returns the command line of the probe. fallback is a command in the shell's language that
// prints the environment if the image has no cat; it may be empty.
func (p Probe) Argv(shell, fallback string) []string {
	show := "cat /proc/self/environ"
	if fallback != "" {
		show += " || " + fallback
	}
	return []string{shell, p.flag, fmt.Sprintf("echo -n %s; %s; echo -n %[1]s", p.marker, show)}
}

// ParseOutput returns the environment between the two markers in the output of the shell. It omits
// PWD, which is the working directory of the shell and not of the call.
func (p Probe) ParseOutput(out []byte) ([]string, error) {
	_, rest, ok := bytes.Cut(out, []byte(p.marker))
	end := bytes.LastIndex(rest, []byte(p.marker))
	if !ok || end < 0 {
		return nil, errors.New("the shell did not print its environment")
	}
	var env []string
	for kv := range bytes.SplitSeq(rest[:end], []byte{0}) {
		if s := string(kv); s != "" && !strings.HasPrefix(s, "PWD=") {
			env = append(env, s)
		}
	}
	return env, nil
}
