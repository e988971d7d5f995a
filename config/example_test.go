package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/dray-dev/dray/config"
)

// uncommented returns the example with its settings, except engine.context, which excludes
// engine.host.
func uncommented() string {
	setting := regexp.MustCompile(`(?m)^( *)#([^ \n]| {2,})`)
	context := regexp.MustCompile(`(?m)^ *context: .*\n`)
	text := setting.ReplaceAllString(string(config.Example()), "$1$2")
	return context.ReplaceAllString(text, "")
}

func loadText(text string) (*config.Config, error) {
	return config.Load(config.Options{
		State: "/tmp/dray-example", ConfigFile: "/example.yaml",
		ReadFile: func(string) ([]byte, error) { return []byte(text), nil },
		ReadDir:  func(string) ([]string, error) { return nil, nil },
	})
}

// The example changes nothing, has every supported setting, and loads with all of them.
func TestExample(t *testing.T) {
	defaults, err := loadText("")
	if err != nil {
		t.Fatal(err)
	}
	example, err := loadText(string(config.Example()))
	if err != nil {
		t.Fatal(err)
	}
	if changed := defaults.Changed(example); len(changed) > 0 {
		t.Errorf("the example changes %v", changed)
	}
	all, err := loadText(uncommented())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Settings() {
		isElement := strings.ContainsRune(s.Key, '[')
		if !isElement && s.Key != "state" && s.Key != "engine.context" && s.Origin.File == "" {
			t.Errorf("the example has no %s", s.Key)
		}
	}
	tool := reflect.ValueOf(all.Tools[0])
	for i := range tool.NumField() {
		name := tool.Type().Field(i).Name
		if tool.Field(i).IsZero() && name != "Container" && name != "RewriteText" {
			t.Errorf("the tool of the example has no %s", name)
		}
	}
	for line := range strings.SplitSeq(string(config.Example()), "\n") {
		if len(line) > 100 {
			t.Errorf("a long line: %s", line)
		}
	}
}

// outsideValidator validates documents of stdin, one JSON value per line, with a validator that
// dray does not use itself.
const outsideValidator = `
import json, sys, jsonschema_rs
validator = jsonschema_rs.Draft202012Validator(json.load(open(sys.argv[1])))
for line in sys.stdin:
    print("valid" if validator.is_valid(json.loads(line)) else "invalid")
`

// wrongFiles are invalid configurations. The schema cannot see what onlyLoad is set for: rules
// between several keys, and the contents of schemas.
var wrongFiles = []struct {
	text     string
	onlyLoad bool
}{
	{text: "server: {sockett: /a}"},
	{text: "server: {max_body: 64MB}"},
	{text: "server: {tcp: localhost}"},
	{text: "engine: {host: localhost}"},
	{text: "limits: {timeout: 90}"},
	{text: "limits: {concurrent: 0}"},
	{text: "limits: {view: -1}"},
	{text: "sandbox: {root: /}"},
	{text: "sandbox: {deny: ['*.key']}"},
	{text: "host: {roots: [src]}"},
	{text: "host: {env: ['A=b']}"},
	{text: "containers: {db: {}}"},
	{text: "containers: {host: {id: x}}"},
	{text: "tools: [{name: exec, argv: [x]}]"},
	{text: "tools: [{name: a, argv: go test}]"},
	{text: "tools: [{name: a, argv: [x], environment: nowhere}]"},
	{text: "trust: /srv/app"},
	{text: "engine: {host: 'unix:///a', context: b}", onlyLoad: true},
	{text: "limits: {timeout: 2h, max_timeout: 1h}", onlyLoad: true},
	{text: "tools: [{name: a, argv: [x]}, {name: a, argv: [y]}]", onlyLoad: true},
	{text: "routing: {override: nowhere}", onlyLoad: true},
	{text: "agent: {lease: 1ms}", onlyLoad: true},
	{text: "tools: [{name: a, argv: [x], capabilities: [read_only, unsafe]}]", onlyLoad: true},
}

// A validator of others accepts the example and refuses what Load refuses, as far as a schema can
// (CF-02).
func TestSchemaWithOutsideValidator(t *testing.T) {
	python, err := filepath.Abs("../.tools/schemathesis/bin/python")
	if name := os.Getenv("DRAY_TEST_SCHEMATHESIS"); name != "" {
		python = filepath.Join(filepath.Dir(name), "python")
	}
	if _, statErr := os.Stat(python); err != nil || statErr != nil {
		t.Skip("needs jsonschema_rs of scripts/setup schemathesis")
	}
	texts := []string{string(config.Example()), uncommented()}
	for _, wrong := range wrongFiles {
		texts = append(texts, wrong.text)
	}
	var documents bytes.Buffer
	for _, text := range texts {
		var doc any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		documents.Write(append(line, '\n'))
	}
	schema := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(schema, config.Schema(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", outsideValidator, schema)
	cmd.Stdin, cmd.Stderr = &documents, t.Output()
	out, err := cmd.Output()
	verdicts := strings.Fields(string(out))
	if err != nil || len(verdicts) != len(texts) {
		t.Fatalf("%v: %q", err, verdicts)
	}
	for i, verdict := range verdicts[:2] {
		if verdict != "valid" {
			t.Errorf("example %d is refused", i)
		}
	}
	for i, wrong := range wrongFiles {
		if _, err := loadText(wrong.text); err == nil {
			t.Errorf("Load accepts %s", wrong.text)
		}
		if accepted := verdicts[2+i] == "valid"; accepted != wrong.onlyLoad {
			t.Errorf("%s is %s", wrong.text, verdicts[2+i])
		}
	}
}
