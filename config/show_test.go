package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dray-dev/dray/config"
)

// shown returns the settings by key.
func shown(t *testing.T, c *config.Config) map[string]string {
	t.Helper()
	lines := map[string]string{}
	for _, s := range c.Settings() {
		text := fmt.Sprint(s.Value)
		if raw, ok := s.Value.(json.RawMessage); ok {
			text = string(raw)
		}
		if _, twice := lines[s.Key]; twice {
			t.Errorf("%s is a duplicate", s.Key)
		}
		lines[s.Key] = text + " # " + s.Origin.String()
	}
	return lines
}

// Settings returns every effective value with its origin (CF-02).
func TestSettings(t *testing.T) {
	s := source{
		file: `
limits: {grace: 7s, max_timeout: 90s, view: 1000}
engine: {host: "tcp://me:hunter2@engine:2375"}
devcontainer:
  up_args: [--secret, hunter2]
  local_env: {TOKEN: hunter2}
host: {roots: [/srv/app/]}
routing: {plans: {"a b": {override: db}}}
containers:
  db: {id: postgres, mappings: [{host: /a/, container: /b}]}
tools:
  - {name: t, argv: [x, "http://me:hunter2@x/"], environment: {specific: db}, input_schema: {a: {default: "ftp://me:hunter2@x/", b: 1.0}}}
`,
		env: []string{
			"DRAY_CONTAINERS_DB_SERVICE=", "DRAY_CONTAINERS_WEB_ID=web",
			"DRAY_LIMITS_DRAIN=1h", "DRAY_AGENT_LEASE=1m1s",
		},
	}
	got := shown(t, s.mustLoad(t))
	for key, want := range map[string]string{
		"state":           "/home/me/.local/state/dray # default",
		"server.socket":   "/home/me/.local/state/dray/dray.sock # default",
		"server.max_body": "64MiB # default",
		// lowered to the maximum
		"limits.timeout":                      "1m30s # /etc/dray/config.yaml:2:34",
		"limits.max_timeout":                  "1m30s # /etc/dray/config.yaml:2:34",
		"limits.grace":                        "7s # /etc/dray/config.yaml:2:17",
		"limits.drain":                        "1h # DRAY_LIMITS_DRAIN",
		"limits.view":                         "1000 # /etc/dray/config.yaml:2:45",
		"limits.idle_timeout":                 "0s # default",
		"agent.lease":                         "1m1s # DRAY_AGENT_LEASE",
		"engine.host":                         "tcp://me:xxxxx@engine:2375 # /etc/dray/config.yaml:3:16",
		"engine.context":                      " # default",
		"devcontainer.up_args":                "[(not shown) (not shown)] # /etc/dray/config.yaml:5:12",
		"devcontainer.local_env.TOKEN":        "(not shown) # /etc/dray/config.yaml:6:22",
		"host.roots":                          "[/srv/app] # /etc/dray/config.yaml:7:15",
		"host.env":                            "[] # default",
		`routing.plans."a b".override`:        "db # /etc/dray/config.yaml:8:37",
		"containers.db.id":                    "postgres # /etc/dray/config.yaml:10:12",
		"containers.db.mappings[0].host":      "/a # /etc/dray/config.yaml:10:40",
		"containers.web.id":                   "web # DRAY_CONTAINERS_WEB_ID",
		"tools[0].environment.specific":       "db # /etc/dray/config.yaml:12:74",
		"tools[0].output":                     "text # default",
		"tools[0].argv":                       "[x http://me:xxxxx@x/] # /etc/dray/config.yaml:12:21",
		"tools[0].input_schema":               `{"a":{"default":"ftp://me:xxxxx@x/","b":1.0}} # /etc/dray/config.yaml:12:93`,
		"containers.db.mappings[0].container": "/b # /etc/dray/config.yaml:10:56",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	for key, text := range got {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows a secret: %s", key, text)
		}
	}
	if _, ok := got["tools[0].environment"]; ok {
		t.Error("the environment of the tool is shown besides its container")
	}
}

// Every supported key is shown, set or not.
func TestSettingsAreComplete(t *testing.T) {
	everything := source{file: `
routing: {plans: {p: {override: c, fallback: c, budget: {calls: 1, wall: 1s, bytes: 1}}}}
devcontainer: {local_env: {A: b}}
containers: {c: {workspace: /w, config: x, service: s, mappings: [{host: /a, container: /b}]}, d: {label: a=b}, e: {id: i}}
tools: [{name: t, description: d, argv: [x], input_schema: {}, output_schema: {}, timeout: 1s, mapping: none, results: [r], rewrite_text: true,
  stdin: none, env: {TOKEN: hunter2}, cwd: workspace, capabilities: [network, {writes: [out/**]}], success_codes: [0, 1], idempotent: true}]
`}.mustLoad(t)
	replace := strings.NewReplacer("containers.c.label", "containers.d.label", "containers.c.id",
		"containers.e.id", "containers.c.mappings", "containers.c.mappings[0].host",
		"tools.environment", "tools[0].environment", "tools.env", "tools[0].env.TOKEN", "tools.capabilities", "tools[0].capabilities.writes", "tools.success_codes", "tools[0].success_codes[1]", "tools.", "tools[0].",
		"devcontainer.local_env", "devcontainer.local_env.A",
		"routing.plans.p.budget.", "routing.plans.p.budget.",
		"routing.plans.p.budget", "routing.plans.p.budget.wall")
	got := shown(t, everything)
	if env := got["tools[0].env.TOKEN"]; !strings.HasPrefix(env, "(not shown)") {
		t.Errorf("a variable of a tool is shown: %s", env)
	}
	for key := range strings.FieldsSeq(supported) {
		key = replace.Replace(key)
		if _, ok := got[key]; !ok {
			t.Errorf("%s is not shown", key)
		}
	}
	none := shown(t, source{}.mustLoad(t))
	for key, want := range map[string]string{
		"containers": "{}", "tools": "[]", "routing.plans": "{}",
		"devcontainer.local_env": "{}",
	} {
		if none[key] != want+" # default" {
			t.Errorf("%s is %q without a value", key, none[key])
		}
	}
}
