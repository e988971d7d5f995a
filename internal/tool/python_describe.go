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

// capabilityWords returns what a runtime supports, and what it does not.
func capabilityWords(c python.Capabilities) (can, cannot []string) {
	for _, one := range []struct {
		word string
		has  bool
	}{
		{"module", c.Modules},
		{"prepare", c.Prepare},
		{"read_only", c.ReadOnly},
		{"permissions", c.Permissions},
		{"files that change only if a run ends by itself", c.Transactional},
		{"import dray", c.Broker},
	} {
		if one.has {
			can = append(can, one.word)
		} else {
			cannot = append(cannot, one.word)
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
