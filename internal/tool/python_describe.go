package tool

import (
	"maps"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/python"
)

// describeRuntimes returns the part of the tool's description that lists what each runtime supports
// (PY-01).
func (o PythonOptions) describeRuntimes() string {
	if o.Sessions == nil {
		return ""
	}
	runtimes := o.Sessions.Runtimes()
	var b strings.Builder
	b.WriteString("\n\nRuntimes of this daemon:")
	for _, name := range slices.Sorted(maps.Keys(runtimes)) {
		b.WriteString("\n- " + name)
		if name == o.Runtime {
			b.WriteString(" (default)")
		}
		can, cannot := capabilityWords(runtimes[name])
		b.WriteString(": supports " + listOrNothing(can) + "; does not support " +
			listOrNothing(cannot) + ".")
		if runtimes[name].Permissions {
			b.WriteString(" Its code may reach: " + o.Sessions.Permissions().String() + ".")
		}
	}
	return b.String()
}

// pythonFeature is what some runtimes support and others do not.
type pythonFeature struct {
	// name is what descriptions and errors call it.
	name string
	has  func(python.Capabilities) bool
	// asks reports whether an input asks for it. Nil is for what no member of an input names.
	asks func(pythonInput) bool
	hint string
}

// pythonFeatures is the one list of them: what descriptions say is what calls get.
var pythonFeatures = []pythonFeature{
	{
		"module", func(c python.Capabilities) bool { return c.Modules },
		func(in pythonInput) bool { return in.Module != "" },
		"pass code, or use the runtime " + python.RuntimeContainer,
	},
	{
		"prepare", func(c python.Capabilities) bool { return c.Prepare },
		func(in pythonInput) bool { return in.Operation == opPrepare },
		"use a session with the runtime " + python.RuntimeContainer,
	},
	{
		"read_only", func(c python.Capabilities) bool { return c.ReadOnly },
		func(in pythonInput) bool { return in.ReadOnly }, supportHint,
	},
	{
		"permissions", func(c python.Capabilities) bool { return c.Permissions },
		func(in pythonInput) bool { return in.Permissions != nil }, supportHint,
	},
	{
		"files that change only if a run ends by itself",
		func(c python.Capabilities) bool { return c.Transactional }, nil, "",
	},
	{
		"files", func(c python.Capabilities) bool { return c.Transactional },
		func(in pythonInput) bool { return in.Files != nil },
		"omit it: code sees all files of the container",
	},
	{"import dray", func(c python.Capabilities) bool { return c.Broker }, nil, ""},
}

const supportHint = "omit it; operation status lists what runtimes support"

// capabilityWords returns what a runtime supports, and what it does not.
func capabilityWords(c python.Capabilities) (can, cannot []string) {
	for _, f := range pythonFeatures {
		if f.has(c) {
			can = append(can, f.name)
		} else {
			cannot = append(cannot, f.name)
		}
	}
	return can, cannot
}

func listOrNothing(words []string) string {
	if len(words) == 0 {
		return "nothing of this"
	}
	return strings.Join(words, ", ")
}
