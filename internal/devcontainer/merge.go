package devcontainer

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mergeFunc merges one property over all entries, lowest first; nil means that nobody has it.
type mergeFunc func(entries []entry, property string) any

// mergeRules give each property of the merged configuration, with the property of the entries that
// it is made from.
var mergeRules = map[string]struct {
	from string
	rule mergeFunc
}{
	"init":                  {"init", anyTrue},
	"privileged":            {"privileged", anyTrue},
	"capAdd":                {"capAdd", union},
	"securityOpt":           {"securityOpt", union},
	"entrypoints":           {"entrypoint", inOrder},
	"mounts":                {"mounts", lastPerTarget},
	"customizations":        {"customizations", collectPerKey},
	"onCreateCommands":      {"onCreateCommand", commands},
	"updateContentCommands": {"updateContentCommand", commands},
	"postCreateCommands":    {"postCreateCommand", commands},
	"postStartCommands":     {"postStartCommand", commands},
	"postAttachCommands":    {"postAttachCommand", commands},
	"waitFor":               {"waitFor", lastTruthy},
	"remoteUser":            {"remoteUser", lastTruthy},
	"containerUser":         {"containerUser", lastTruthy},
	"userEnvProbe":          {"userEnvProbe", lastTruthy},
	"remoteEnv":             {"remoteEnv", lastPerKey},
	"containerEnv":          {"containerEnv", lastPerKey},
	"overrideCommand":       {"overrideCommand", lastBoolean},
	"portsAttributes":       {"portsAttributes", lastPerKey},
	"otherPortsAttributes":  {"otherPortsAttributes", lastTruthy},
	"forwardPorts":          {"forwardPorts", ports},
	"shutdownAction":        {"shutdownAction", lastTruthy},
	"updateRemoteUserUID":   {"updateRemoteUserUID", lastBoolean},
	"hostRequirements":      {"hostRequirements", requirements},
}

// supersededProperties properties of the configuration file stand in the merged configuration under
// another name only.
var supersededProperties = []string{
	"customizations", "entrypoint", "onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand", "postAttachCommand",
	"shutdownAction",
}

// merge makes the merged configuration, in the form that `devcontainer read-configuration
// --include-merged-configuration` prints.
func merge(config entry, entries []entry) entry {
	merged := maps.Clone(config)
	if merged == nil {
		merged = entry{}
	}
	for _, property := range supersededProperties {
		delete(merged, property)
	}
	for property, r := range mergeRules {
		if value := r.rule(entries, r.from); value != nil {
			merged[property] = value
		} else {
			delete(merged, property)
		}
	}
	return merged
}

// isTruthy is JavaScript's.
func isTruthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case float64:
		return v != 0
	}
	return true
}

func anyTrue(entries []entry, property string) any {
	return slices.ContainsFunc(entries, func(e entry) bool { return isTruthy(e[property]) })
}

func lastTruthy(entries []entry, property string) any {
	for _, e := range slices.Backward(entries) {
		if isTruthy(e[property]) {
			return e[property]
		}
	}
	return nil
}

func lastBoolean(entries []entry, property string) any {
	for _, e := range slices.Backward(entries) {
		if b, ok := e[property].(bool); ok {
			return b
		}
	}
	return nil
}

func lastPerKey(entries []entry, property string) any {
	out := entry{}
	for _, e := range entries {
		if values, ok := e[property].(entry); ok {
			maps.Copy(out, values)
		}
	}
	return out
}

// commands are there even if there are none.
func commands(entries []entry, property string) any {
	return collect(entries, property)
}

func inOrder(entries []entry, property string) any {
	return orNil(collect(entries, property))
}

func collect(entries []entry, property string) []any {
	out := []any{}
	for _, e := range entries {
		if isTruthy(e[property]) {
			out = append(out, e[property])
		}
	}
	return out
}

func collectPerKey(entries []entry, property string) any {
	out := entry{}
	for _, e := range entries {
		values, _ := e[property].(entry)
		for key, value := range values {
			list, _ := out[key].([]any)
			out[key] = append(list, value)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// flatten puts lists and single values behind each other.
func flatten(entries []entry, property string) []any {
	var all []any
	for _, e := range entries {
		if list, ok := e[property].([]any); ok {
			all = append(all, list...)
		} else if isTruthy(e[property]) {
			all = append(all, e[property])
		}
	}
	return all
}

func union(entries []entry, property string) any {
	return orNil(unique(flatten(entries, property)))
}

// unique keeps the first of equal strings, numbers and booleans. Objects and lists are equal to
// nothing.
func unique(values []any) []any {
	seen := map[any]bool{}
	var out []any
	for _, v := range values {
		switch v.(type) {
		case entry, []any:
		default:
			if seen[v] {
				continue
			}
			seen[v] = true
		}
		out = append(out, v)
	}
	return out
}

// ports treats 8080 and "localhost:8080" as one.
func ports(entries []entry, property string) any {
	all := flatten(entries, property)
	for i, port := range all {
		if number, ok := port.(float64); ok {
			all[i] = "localhost:" + strconv.FormatFloat(number, 'f', -1, 64)
		}
	}
	all = unique(all)
	for i, port := range all {
		text, _ := port.(string)
		if digits, ok := strings.CutPrefix(text, "localhost:"); ok {
			if number, err := strconv.ParseUint(digits, 10, 16); err == nil {
				all[i] = float64(number)
			}
		}
	}
	return orNil(all)
}

// lastPerTarget keeps the last mount of each target, in order.
func lastPerTarget(entries []entry, property string) any {
	seen := map[any]bool{}
	var out []any
	for _, mount := range slices.Backward(flatten(entries, property)) {
		if target := mountTargetOf(mount); !seen[target] {
			seen[target] = true
			out = append(out, mount)
		}
	}
	slices.Reverse(out)
	return orNil(out)
}

func mountTargetOf(mount any) string {
	switch mount := mount.(type) {
	case entry:
		target, _ := mount["target"].(string)
		return target
	case string:
		return mountFields(mount)["target"]
	}
	return ""
}

// mountFields reads a mount string; as in the reference a comma always divides, and of equal keys
// the last counts.
func mountFields(text string) map[string]string {
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "src":
			key = "source"
		case "dst", "destination":
			key = "target"
		}
		value, _, _ = strings.Cut(value, "=")
		fields[key] = value
	}
	return fields
}

func orNil(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

// requirements are the largest that any entry has.
func requirements(entries []entry, property string) any {
	var cpus, memory, storage float64
	var gpu any
	for _, e := range entries {
		r, _ := e[property].(entry)
		count, _ := r["cpus"].(float64)
		cpus = max(cpus, count)
		memory = max(memory, bytesOf(r["memory"]))
		storage = max(storage, bytesOf(r["storage"]))
		gpu = mergeGPU(gpu, r["gpu"])
	}
	if cpus == 0 && memory == 0 && storage == 0 && !isTruthy(gpu) {
		return nil
	}
	out := entry{"cpus": cpus}
	setBytes(out, "memory", memory)
	setBytes(out, "storage", storage)
	if gpu != nil {
		out["gpu"] = gpu
	}
	return out
}

// mergeGPU takes what there is of two demands; two demands are a firm one for the larger of both.
func mergeGPU(a, b any) any {
	switch {
	case a == nil || a == false:
		return b
	case b == nil || b == false:
		return a
	case a == "optional" && b == "optional":
		return a
	}
	first, _ := a.(entry)
	second, _ := b.(entry)
	out := entry{}
	firstCores, _ := first["cores"].(float64)
	secondCores, _ := second["cores"].(float64)
	if cores := max(firstCores, secondCores); cores != 0 {
		out["cores"] = cores
	}
	setBytes(out, "memory", max(bytesOf(first["memory"]), bytesOf(second["memory"])))
	return out
}

func setBytes(out entry, name string, n float64) {
	if n != 0 {
		out[name] = strconv.FormatFloat(n, 'f', -1, 64)
	}
}

var byteSize = regexp.MustCompile(`^(\d+)([tgmk]b)?$`)

// bytesOf reads "8gb"; what is no size counts nothing.
func bytesOf(v any) float64 {
	text, _ := v.(string)
	m := byteSize.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0
	}
	units := map[string]float64{"": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
	return n * units[m[2]]
}
