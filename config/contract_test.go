package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dray-dev/dray/config"
)

// contractKeys has every key of the contract's section "Configuration", those of maps and lists
// under an example's name.
const contractKeys = `
server.socket server.users server.tcp server.tokens server.allowed_hosts server.allowed_origins
server.max_body engine.host engine.context
devcontainer.cli devcontainer.up_args devcontainer.local_env agent.lease
agent.transport
limits.timeout limits.max_timeout limits.idle_timeout limits.grace limits.concurrent
limits.per_container limits.queue limits.drain
limits.capture limits.view limits.captures_disk limits.captures_keep
sandbox.root sandbox.sources sandbox.max_file sandbox.max_total sandbox.max_files sandbox.max_depth
sandbox.timeout sandbox.deny sandbox.executable
host.env host.roots routing.override routing.fallback
routing.plans.p.override routing.plans.p.fallback routing.plans.p.budget
routing.plans.p.budget.calls routing.plans.p.budget.wall routing.plans.p.budget.bytes
containers.c.workspace containers.c.config containers.c.service containers.c.id containers.c.label
containers.c.mappings
tools.name tools.description tools.argv tools.input_schema tools.output_schema tools.environment
tools.capabilities tools.timeout tools.output
tools.mapping tools.idempotent tools.results tools.rewrite_text tools.stdin tools.env tools.cwd
tools.success_codes tool_dirs
audit.on_failure audit.keep audit.redact.patterns audit.redact.env retry.attempts retry.budget
breaker.failures breaker.open
policy.files policy.approval_lifetime trust.workspaces
python.runtime python.resident python.idle python.queue python.queue_wait python.wall python.cpu
python.memory python.total_memory python.permissions.fs python.permissions.network
python.permissions.env python.pyodide.assets python.pyodide.deno python.pyodide.resident
python.pyodide.preload python.prepare.source_builds python.prepare.index mcp.servers mcp.view`

// supported has the supported keys. The others are refused by name.
const supported = `
server.socket server.users server.tcp server.tokens server.allowed_hosts server.allowed_origins
server.max_body engine.host engine.context
devcontainer.cli devcontainer.up_args
devcontainer.local_env agent.lease agent.transport
limits.timeout limits.max_timeout limits.idle_timeout limits.grace limits.concurrent
limits.per_container limits.queue
limits.drain limits.capture limits.view limits.captures_disk limits.captures_keep host.env
host.roots
sandbox.root sandbox.sources sandbox.max_file sandbox.max_total sandbox.max_files sandbox.max_depth
sandbox.timeout sandbox.deny sandbox.executable
routing.override routing.fallback routing.plans.p.override routing.plans.p.fallback
routing.plans.p.budget
routing.plans.p.budget.calls routing.plans.p.budget.wall routing.plans.p.budget.bytes
containers.c.workspace containers.c.config containers.c.service containers.c.id containers.c.label
containers.c.mappings
tools.name tools.description tools.argv tools.input_schema tools.output_schema tools.environment
tools.timeout tools.output tools.mapping
tools.idempotent tools.results tools.rewrite_text tools.stdin tools.env tools.cwd
tools.capabilities tools.success_codes tool_dirs trust.workspaces retry.attempts retry.budget
breaker.failures breaker.open policy.files policy.approval_lifetime
audit.on_failure audit.keep audit.redact.patterns audit.redact.env
python.runtime python.resident python.idle python.queue python.queue_wait python.wall python.cpu
python.memory python.total_memory python.permissions.fs python.permissions.network
python.permissions.env python.pyodide.assets python.pyodide.deno
python.pyodide.resident python.pyodide.preload python.prepare.source_builds python.prepare.index
mcp.servers mcp.view`

// nested returns a key with a value in YAML: {a: {b: value}} for a.b, with elements of tools in a
// list.
func nested(key, val string) string {
	names := strings.Split(key, ".")
	for _, name := range slices.Backward(names) {
		if name == "tools" {
			val = "[" + val + "]"
		}
		val = "{" + name + ": " + val + "}"
	}
	return val
}

// Every key of the contract is known, and either supported or refused by name (CF-01).
func TestContractKeysAreKnown(t *testing.T) {
	for key := range strings.FieldsSeq(contractKeys) {
		t.Run(key, func(t *testing.T) {
			isSupported := slices.Contains(strings.Fields(supported), key)
			_, err := source{file: nested(key, "{x: y}")}.load()
			text := fmt.Sprint(err)
			if last := key[strings.LastIndex(key, ".")+1:]; strings.Contains(text,
				last+": is not a known key") {
				t.Errorf("unknown: %v", err)
			}
			if strings.Contains(text, "not supported yet") == isSupported {
				t.Errorf("supported is %v, and Load returns %v", isSupported, err)
			}
			checkVariable(t, key, isSupported)
		})
	}
}

// checkVariable checks that the variable of the key is known.
func checkVariable(t *testing.T, key string, isSupported bool) {
	t.Helper()
	if strings.HasPrefix(key, "tools.") {
		return // the names of a list's elements have no variables
	}
	name := "DRAY_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	_, err := source{env: []string{name + "={x: y}"}}.load()
	text := fmt.Sprint(err)
	if strings.Contains(text, "is not a known variable") {
		t.Errorf("unknown: %v", err)
	}
	if strings.Contains(text, "not supported yet") == isSupported {
		t.Errorf("supported is %v, and for %s Load returns %v", isSupported, name, err)
	}
}

// TestToolNames checks which names of tools are valid (EX-02).
func TestToolNames(t *testing.T) {
	tests := map[string]bool{
		"a": true, "A.b-c_9": true, "9": true, strings.Repeat("x", 128): true,
		"": false, strings.Repeat("x",
			129): false, ".a": false, "-a": false, "_a": false, "a b": false, "a/b": false, "ä": false, "a\n": false,
		" a": false, "a ": false, "exec": false, "shell": false, "read_file": false, "write_file": false, "edit_file": false, "list_dir": false,
		"glob": false, "grep": false, "stat": false, "sync": false, "python": false, "Exec": true,
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := source{file: fmt.Sprintf("tools: [{name: %q, argv: [x]}]", name)}.load()
			if ok := err == nil; ok != want {
				t.Fatalf("accepted is %v, want %v: %v", ok, want, err)
			}
			if want && c.Tools[0].Name != name {
				t.Errorf("name became %q", c.Tools[0].Name)
			}
		})
	}
}

// TestContainerNames checks which names of containers are valid in each key (EX-02).
func TestContainerNames(t *testing.T) {
	tests := map[string]bool{
		"a": true, "A.b-c_9": true, strings.Repeat("0123456789abcdef", 4): true,
		"": false, ".a": false, "-a": false, "_a": false, "a b": false, "a/b": false, "ä": false, "a\n": false, "a\x00": false,
	}
	keys := map[string]string{
		"name": "containers: {%q: {id: x}}", "id": "containers: {x: {id: %q}}", "specific": "tools: [{name: t, argv: [x], environment: {specific: %[1]q}}]\n" +
			"containers: {%[1]q: {id: x}}",
	}
	for name, want := range tests {
		for key, format := range keys {
			t.Run(key+"/"+name, func(t *testing.T) {
				_, err := source{file: fmt.Sprintf(format, name)}.load()
				if ok := err == nil; ok != want {
					t.Errorf("accepted is %v, want %v: %v", ok, want, err)
				}
			})
		}
	}
}

// The values of `environment` are those of the contract; container means required.
func TestToolEnvironments(t *testing.T) {
	tests := map[string]config.Environment{
		"auto": config.EnvironmentAuto, "host": config.EnvironmentHost, "required": config.EnvironmentRequired,
		"container": config.EnvironmentRequired, "preferred": config.EnvironmentPreferred, "{specific: db}": config.EnvironmentSpecific,
	}
	for word, want := range tests {
		c := source{file: "tools: [{name: t, argv: [x], environment: " + word + "}]\n" +
			"containers: {db: {id: x}}"}.mustLoad(t)
		if got := c.Tools[0].Environment; got != want {
			t.Errorf("%s reads as %q, want %q", word, got, want)
		}
	}
	if c := (source{file: "tools: [{name: t, argv: [x]}]"}).
		mustLoad(t); c.Tools[0].Environment != config.EnvironmentAuto {
		t.Errorf("the default is %q", c.Tools[0].Environment)
	}
}

// A problem of each source has its key, value and origin in separate fields (CF-01).
func TestDiagnosticFields(t *testing.T) {
	bad := source{
		file: "limits:\n  grace: never\n", env: []string{"DRAY_LIMITS_DRAIN=never"},
		state: "a\x00b",
	}
	want := []struct {
		key, value string
		origin     config.Origin
	}{
		{"limits.grace", `"never"`, config.Origin{File: fileName, Line: 2, Column: 10}},
		{"limits.drain", `"never"`, config.Origin{Variable: "DRAY_LIMITS_DRAIN"}},
		{"state", `"a\x00b"`, config.Origin{Flag: "--state"}},
	}
	got := bad.diagnostics(t)
	if len(got) != len(want) {
		t.Fatalf("got %d problems: %v", len(got), got)
	}
	for i, w := range want {
		if m := got[i]; m.Key != w.key || m.Value != w.value || m.Origin != w.origin || m.Problem == "" ||
			m.Suggestion == "" {
			t.Errorf("problem %d is %+v, want %+v", i, m, w)
		}
	}
}

// A long value is truncated in errors.
func TestLongValuesAreTruncated(t *testing.T) {
	m := source{file: "limits: {grace: " + strings.Repeat("x", 5000) + "}"}.diagnostics(t)[0]
	if len(m.String()) > 300 {
		t.Errorf("the error has %d bytes", len(m.String()))
	}
}
