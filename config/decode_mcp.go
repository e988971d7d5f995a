package config

import (
	"strings"

	"github.com/dray-dev/dray/internal/lexical"
)

func (d *decoder) mcpServers(v value) map[string]MCPServer {
	all := map[string]MCPServer{}
	seen := map[string]string{}
	d.eachNamed(v, func(f field) {
		other, similar := seen[lexical.Normalize(f.name)]
		switch {
		case !isMCPServerName(f.name):
			d.addKey(f.origin, f.value.key, "is not a valid name of a server",
				"use at most 64 letters, digits, . _ and -, the first a letter or digit, without __ and "+
					"without _ at the end")
		case similar:
			d.addKey(f.origin, f.value.key, "could be taken for the server "+other, "rename one of them")
		default:
			seen[lexical.Normalize(f.name)] = f.name
			all[f.name] = d.mcpServer(f.value)
		}
	})
	return all
}

// isMCPServerName reports whether the name of a tool shows where that of its server ends.
func isMCPServerName(name string) bool {
	return lexical.IsName(name) && len(name) <= maxMCPServerName && !strings.Contains(name, "__") &&
		!strings.HasSuffix(name, "_")
}

func (d *decoder) mcpServer(v value) MCPServer {
	s := MCPServer{Environment: EnvironmentHost}
	d.object(v, mcpServerKeys, &s)
	if s.Environment == "container" {
		s.Environment = EnvironmentRequired
	}
	for _, key := range []string{"argv", "workspace"} {
		if _, ok := v.field(key); !ok && v.shape == object {
			d.addValue(v.withoutText(), "has no "+key,
				"add "+key+": a server requires argv and workspace")
		}
	}
	return s
}
