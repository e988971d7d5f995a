package devcontainer

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"

	"github.com/dray-dev/dray"
)

// remoteEnv gives the merged remoteEnv as text. Names and values that no environment can hold are left out.
func (r *resolver) remoteEnv(merged entry) map[string]string {
	values, _ := merged["remoteEnv"].(entry)
	env := make(map[string]string, len(values))
	for name, value := range values {
		text := textOf(value)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(text, "\x00") {
			r.warn("the variable %.60q of remoteEnv is left out: its name or value cannot be in an environment", name)
			continue
		}
		env[name] = text
	}
	return env
}

// textOf writes a JSON value as JavaScript turns it into a string, which is what ends up in the environment.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return numberText(v)
	case bool:
		if v {
			return "true"
		}
		return "false"
	case entry:
		return "[object Object]"
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			if v[i] != nil {
				parts[i] = textOf(v[i])
			}
		}
		return strings.Join(parts, ",")
	}
	return "null"
}

// numberText writes a number as ECMAScript does, which encoding/json follows but for the infinite and the negative zero.
func numberText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0"
	}
	text, err := json.Marshal(f)
	if err != nil {
		return "NaN"
	}
	return string(bytes.TrimSpace(text))
}

// bindMounts are the mounts whose source is a folder of the host. A source that leads through a link counts under its real name too,
// for a caller may know the workspace by either.
func bindMounts(mounts []MountInfo) []dray.Mount {
	var out []dray.Mount
	for _, m := range mounts {
		if m.Type != "bind" || !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Destination) {
			continue
		}
		mount := dray.Mount{Host: filepath.Clean(m.Source), Container: filepath.Clean(m.Destination)}
		out = append(out, mount)
		if resolved := realPath(mount.Host); resolved != mount.Host {
			out = append(out, dray.Mount{Host: resolved, Container: mount.Container})
		}
	}
	return out
}
