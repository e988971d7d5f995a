package main

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/wire"
)

// environment builds a process's variables. From low to high: what the engine gives every exec, what the user's shell makes of it
// (without its PWD), the call's own, the configuration's remoteEnv.
func (a *agent) environment(s *wire.Stream, req wire.Start, u user) (env, warnings []string) {
	vars := newVariables(req.Env)
	vars.setDefault("HOME", u.home)
	if req.Probe.Kind != "" && req.Probe.Kind != "none" {
		probed, err := a.probe(s, req.Probe, u, vars.list())
		if err != nil {
			warnings = append(warnings, "the user's shell could not be asked for its environment: "+err.Error())
		}
		for _, kv := range probed {
			vars.set(kv)
		}
	}
	for _, kv := range slices.Concat(req.CallEnv, req.RemoteEnv) {
		vars.set(kv)
	}
	return vars.list(), warnings
}

// envList is an environment in which each name stands once, in the order of first mention.
type envList struct {
	order []string
	value map[string]string
}

func newVariables(env []string) *envList {
	v := &envList{value: make(map[string]string, len(env))}
	for _, kv := range env {
		v.set(kv)
	}
	return v
}

func (v *envList) set(kv string) {
	name, value, ok := strings.Cut(kv, "=")
	if !ok || name == "" {
		return
	}
	if _, known := v.value[name]; !known {
		v.order = append(v.order, name)
	}
	v.value[name] = value
}

func (v *envList) setDefault(name, value string) {
	if _, known := v.value[name]; !known {
		v.set(name + "=" + value)
	}
}

func (v *envList) list() []string {
	list := make([]string, len(v.order))
	for i, name := range v.order {
		list[i] = name + "=" + v.value[name]
	}
	return list
}

// printEnviron writes this process's variables as /proc/self/environ has them, for images without a cat.
func printEnviron(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(os.Environ(), "\x00")+"\x00")
	return err
}
