package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// exampleHead explains the example. A comment has one space after the number sign, a setting that
// is commented out has none or several.
const exampleHead = `# yaml-language-server: $schema=schema.json
# Configuration of dray, ~/.config/dray/config.yaml or /etc/dray/config.yaml. Every setting is
# commented out: with its default, or with an example where it has none. Remove the # before those
# that you change. For completion in editors write the schema beside this file:
# dray config schema >schema.json. Afterwards run dray config check, and dray reload.
`

// exampleWidth is the length of the lines of comments in bytes.
const exampleWidth = 98

// exampleValues are the values of the settings without a default, as YAML.
//
//nolint:gosec // they are no credentials
var exampleValues = map[string]string{
	"server.socket":              "/run/user/1000/dray.sock",
	"server.users":               "[alice, 1001]",
	"server.tcp":                 "127.0.0.1:7272",
	"server.tokens":              "{ci: /etc/dray/ci.token}",
	"server.allowed_hosts":       "[localhost, 127.0.0.1, dray.example.org]",
	"server.allowed_origins":     "['https://console.example.org']",
	"engine.host":                "unix:///var/run/docker.sock",
	"engine.context":             "remote # not together with host",
	"devcontainer.cli":           "/usr/local/bin/devcontainer",
	"devcontainer.up_args":       "[--buildkit, never]",
	"devcontainer.local_env":     "{NPM_TOKEN: secret}",
	"sandbox.root":               "/srv/results",
	"sandbox.sources":            "[/opt/reports]",
	"sandbox.deny":               "[secrets, config/local]",
	"host.env":                   "[LANG, SSH_AUTH_SOCK]",
	"host.roots":                 "[/home/me/src]",
	"python.permissions.network": "[api.example.org, '*.example.com']",
	"python.permissions.env":     "[LANG]",
	"python.pyodide.assets":      "/opt/dray/pyodide",
	"python.pyodide.deno":        "/opt/deno/deno",
	"python.pyodide.preload":     "[openpyxl]",
	"python.prepare.index":       "https://pypi.example.com/simple",
	"routing.override":           "tools",
	"routing.fallback":           "host",
	"routing.plans": `
  nightly:
    override: tools
    fallback: host
    budget: {calls: 1000, wall: 8h, bytes: 1GiB}`,
	"mcp.servers": `
  git:
    argv: [uvx, mcp-server-git==2026.10.19]
    workspace: /home/me/app
    environment: container`,
	"audit.redact.patterns": `["builtin:all", "sk-[0-9a-f]{32}"]`,
	"audit.redact.env":      "['*_TOKEN', '*_PASSWORD']",
	"policy.files":          `["builtin:default"]`,
	"tool_dirs":             "[/etc/dray/tools]",
	"trust.workspaces":      "[/srv/ci/app]",
	"containers": `
  tools: # the container of a workspace, which dray brings up
    workspace: /home/me/src/app
    config: .devcontainer/tools/devcontainer.json
    service: app
  db: # a container that dray did not make
    id: postgres-1
    user: postgres
    folder: /var/lib/dumps
    mappings:
      - {host: /srv/dumps, container: /var/lib/dumps}
  cache:
    label: com.example.role=cache`,
	"tools": `
  - name: lint
    description: Lint files.
    argv: [golangci-lint, run, --output.json.path=stdout, "${input.paths}"]
    stdin: none
    env: {CI: "true"}
    cwd: workspace
    success_codes: [0, 1]
    capabilities: [network, {writes: [reports/*]}]
    idempotent: true
    environment: required # or auto, host, preferred, {specific: tools}
    timeout: 5m
    output: json
    mapping: schema
    results: [reports]
    rewrite_text: false
    input_schema:
      type: object
      properties:
        paths: {type: array, items: {type: string, x-path: true}}
    output_schema: {type: object}`,
}

// Example returns a configuration file in which every supported setting is described and commented
// out, with a final newline. As it is, it changes no setting.
func Example() []byte {
	var b strings.Builder
	b.WriteString(exampleHead)
	var open []string // the sections that the last setting is in
	for _, s := range settings {
		if !s.supported() {
			continue
		}
		b.WriteByte('\n')
		sections := strings.Split(s.key, ".")
		name := sections[len(sections)-1]
		sections = sections[:len(sections)-1]
		for i, section := range sections {
			if i >= len(open) || !slices.Equal(open[:i+1], sections[:i+1]) {
				b.WriteString(indentOf(i) + section + ":\n")
			}
		}
		open = sections
		writeSetting(&b, indentOf(len(sections)), name, s)
	}
	return []byte(b.String())
}

func indentOf(depth int) string { return strings.Repeat("  ", depth) }

// writeSetting writes a setting that is commented out, after its description.
func writeSetting(b *strings.Builder, indent, name string, s settingDef) {
	writeComment(b, indent, s.description)
	for _, key := range elementKeys(s.key) {
		writeComment(b, indent, "- "+key.key+": "+key.description)
	}
	value := cmp.Or(s.defaultValue, exampleValues[s.key])
	if !strings.HasPrefix(value, "\n") {
		value = " " + value
	}
	for line := range strings.SplitSeq(name+":"+value, "\n") {
		b.WriteString(indent + "#" + line + "\n")
	}
}

// elementKeys returns the keys of the elements of a setting.
func elementKeys(key string) settingDefs {
	switch key {
	case "tools":
		return toolKeys
	case "containers":
		return containerKeys
	case "mcp.servers":
		return mcpServerKeys
	default:
		return nil
	}
}

// writeComment writes a text as lines of comments.
func writeComment(b *strings.Builder, indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > exampleWidth {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	fmt.Fprintln(b, line)
}
