package python

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
)

// The words of Permissions.FS, in the order of what they permit.
const (
	FSNone  = "none"
	FSRead  = "read"
	FSWrite = "write"
)

// Permissions are what the code of a session may reach (PY-19). The zero value permits nothing. In
// those that a call asks for, an empty FS, or a list that is nil, is the one of the configuration.
type Permissions struct {
	// FS is FSNone, FSRead or FSWrite.
	FS string `json:"fs"`
	// Network has the hosts that code may send requests to; see [ParseHost].
	Network []string `json:"network"`
	// Env has the names of variables of the daemon that code may read.
	Env []string `json:"env"`
}

// Narrow returns the permissions of a session whose first call asks for some. p are those of the
// configuration. Nil asks for all of them. It fails with denied, naming the key, if more is asked
// for, and with invalid_input for a host that is malformed.
func (p Permissions) Narrow(asked *Permissions) (*Permissions, error) {
	all := &Permissions{
		FS: cmp.Or(p.FS, FSNone), Network: append([]string{}, p.Network...), // JSON has no null
		Env: append([]string{}, p.Env...),
	}
	if asked == nil {
		return all, nil
	}
	if asked.FS != "" {
		if !fsPermits(all.FS, asked.FS) {
			return nil, exceeds("fs", asked.FS, all.FS)
		}
		all.FS = asked.FS
	}
	if asked.Network != nil {
		if err := checkHosts(p.Network, asked.Network); err != nil {
			return nil, err
		}
		all.Network = asked.Network
	}
	if asked.Env != nil {
		for _, name := range asked.Env {
			if !slices.Contains(p.Env, name) {
				return nil, exceeds("env", name, listed(p.Env))
			}
		}
		all.Env = asked.Env
	}
	return all, nil
}

// checkHosts fails if hosts are asked for that the configured ones do not cover.
func checkHosts(configured, asked []string) error {
	rules, err := parseHosts(configured)
	if err != nil {
		return err
	}
	for _, text := range asked {
		host, err := ParseHost(text)
		if err != nil {
			return err
		}
		covers := func(h Host) bool { return h.covers(host) }
		if !slices.ContainsFunc(rules, covers) {
			return exceeds("network", text, listed(configured))
		}
	}
	return nil
}

// fsPermits reports whether the word has permits what the word asked does.
func fsPermits(has, asked string) bool {
	words := []string{FSNone, FSRead, FSWrite}
	return slices.Index(words, asked) <= slices.Index(words, has)
}

func exceeds(key, asked, configured string) *dray.Error {
	return dray.Errorf(dray.CodeDenied,
		"the call asks for the permission %s %q of a Python session, and python.permissions.%s is %s",
		key, asked, key, configured).
		WithHint("ask for less, or change python.permissions.%s in the configuration", key)
}

func listed(names []string) string { return "[" + strings.Join(names, ", ") + "]" }

// grants reports whether p, which are complete, are what a later call of the session asks for. The
// order of names has no meaning.
func (p *Permissions) grants(asked *Permissions) bool {
	switch {
	case asked == nil || p == nil:
		return asked == nil
	case asked.FS != "" && asked.FS != p.FS:
		return false
	default:
		return (asked.Network == nil || sameNames(asked.Network, p.Network)) &&
			(asked.Env == nil || sameNames(asked.Env, p.Env))
	}
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// environ returns the variables of a call: those of the daemon that the permissions name, and over
// them its own.
func (p *Permissions) environ(own map[string]string) map[string]string {
	if p == nil || len(p.Env) == 0 {
		return own
	}
	env := map[string]string{}
	for _, name := range p.Env {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, own)
	return env
}

// String returns the permissions as a part of a sentence.
func (p Permissions) String() string {
	return fmt.Sprintf("fs %s, network %s, env %s", cmp.Or(p.FS, FSNone), listed(p.Network),
		listed(p.Env))
}
