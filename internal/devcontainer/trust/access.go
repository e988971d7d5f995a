package trust

import (
	"maps"
	"slices"
	"strings"

	"github.com/dray-dev/dray/internal/devcontainer/compose"
)

// The properties that concern only what is inside of the container, or that the summary shows
// elsewhere. Every other property is shown to the user who decides about trust: a property that
// dray does not know can give the container access to the host.
var (
	harmlessConfig = setOf("$schema", "name", "image", "build", "dockerFile", "context",
		"dockerComposeFile", "service", "runServices", "features", "overrideFeatureInstallOrder",
		"forwardPorts", "portsAttributes", "otherPortsAttributes", "remoteUser", "remoteEnv",
		"containerEnv", "userEnvProbe", "updateRemoteUserUID", "overrideCommand", "shutdownAction",
		"init", "waitFor", "workspaceFolder", "customizations", "extensions", "settings", "devPort",
		"initializeCommand", "onCreateCommand", "updateContentCommand", "postCreateCommand",
		"postStartCommand", "postAttachCommand")
	harmlessBuild   = setOf("dockerfile", "context", "args", "target")
	harmlessFeature = setOf("$schema", "id", "version", "name", "description", "documentationURL",
		"licenseURL", "keywords", "options", "installsAfter", "legacyIds", "deprecated", "customizations",
		"containerEnv", "init", "onCreateCommand", "updateContentCommand",
		"postCreateCommand", "postStartCommand", "postAttachCommand")
	harmlessService = setOf("command", "depends_on", "domainname", "entrypoint", "environment",
		"expose", "healthcheck", "hostname", "init", "mem_limit", "networks", "platform", "profiles",
		"pull_policy", "read_only", "restart", "shm_size", "stdin_open", "stop_grace_period",
		"stop_signal", "tmpfs", "tty", "working_dir")
	harmlessServiceBuild = setOf("args", "target")
	// name is shown if it is not that of the project's own volume or network.
	harmlessVolume  = setOf("name", "labels")
	harmlessNetwork = setOf("name", "labels", "ipam", "internal")
	harmlessFile    = setOf("name", "content")
	// the sections of a compose project
	harmlessProject = setOf("name", "version", "services", "volumes", "networks", "configs", "secrets")
)

func setOf(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// access returns what is not harmless in the configuration, its local features and its compose
// project.
func (in *inputs) access() []SummaryLine {
	values := in.file.Values
	lines := appendOthers(nil, "", values, harmlessConfig)
	build, _ := values["build"].(map[string]any)
	lines = appendOthers(lines, "build: ", build, harmlessBuild)
	for _, path := range slices.Sorted(maps.Keys(in.features)) {
		lines = appendOthers(lines, "feature "+path+": ", in.features[path], harmlessFeature)
	}
	return append(lines, projectAccess(in.project)...)
}

// projectAccess returns what is not harmless in a compose project.
func projectAccess(p compose.Project) []SummaryLine {
	var lines []SummaryLine
	services := p.Services()
	for _, name := range slices.Sorted(maps.Keys(services)) {
		service := maps.Clone(services[name])
		if build, ok := service["build"].(map[string]any); ok {
			service["build"] = omit(build, harmlessServiceBuild)
		}
		lines = appendOthers(lines, "service "+name+": ", service, harmlessService)
	}
	for _, section := range []struct {
		key, name string
		harmless  map[string]bool
	}{
		{"volumes", "volume ", harmlessVolume},
		{"networks", "network ", harmlessNetwork},
		{"configs", "config ", harmlessFile},
		{"secrets", "secret ", harmlessFile},
	} {
		all, _ := p.Values[section.key].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			value, _ := all[name].(map[string]any)
			prefix := section.name + name + ": "
			if named, _ := value["name"].(string); named != "" && named != p.Name+"_"+name {
				lines = append(lines, SummaryLine{prefix + "name", named})
			}
			lines = appendOthers(lines, prefix, value, section.harmless)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(omit(p.Values, harmlessProject))) {
		if !strings.HasPrefix(key, "x-") { // compose ignores these
			lines = appendLine(lines, key, p.Values[key])
		}
	}
	return lines
}

// appendOthers appends the properties that are not harmless.
func appendOthers(lines []SummaryLine, prefix string, values map[string]any,
	harmless map[string]bool,
) []SummaryLine {
	others := omit(values, harmless)
	for _, name := range slices.Sorted(maps.Keys(others)) {
		lines = appendLine(lines, prefix+name, others[name])
	}
	return lines
}

func omit(values map[string]any, names map[string]bool) map[string]any {
	out := map[string]any{}
	for name, value := range values {
		if !names[name] {
			out[name] = value
		}
	}
	return out
}
