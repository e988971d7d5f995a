package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/dray-dev/dray/config"
)

// compiledSchema returns the schema compiled as editors do, which validates it against the draft's
// schema.
func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge validates a YAML file with the schema.
func judge(t *testing.T, s *jsonschema.Schema, file string) error {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal([]byte(file), &doc); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value)
}

// The schema accepts every file that Load accepts (CF-02).
func TestSchemaTakesGoodFiles(t *testing.T) {
	s := compiledSchema(t)
	names, err := filepath.Glob("testdata/good/*.txtar")
	if err != nil || len(names) < 3 {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if f.Name != "config.yaml" {
				continue
			}
			if err := judge(t, s, string(f.Data)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The schema has exactly the supported keys of the contract (CF-02).
func TestSchemaKnowsTheKeys(t *testing.T) {
	s := compiledSchema(t)
	for key := range strings.FieldsSeq(contractKeys) {
		_, loadErr := source{file: nested(key, "{x: y}")}.load()
		unknown := regexp.MustCompile(`additional properties '[^']*(` +
			strings.ReplaceAll(regexp.QuoteMeta(key), `\.`, "|") + `)'`)
		refused := unknown.MatchString(fmt.Sprintf("%v", judge(t, s, nested(key, "{x: y}"))))
		if unsupported := strings.Contains(fmt.Sprint(loadErr),
			"not supported yet"); refused != unsupported {
			t.Errorf("%s: unknown to the schema is %v, unsupported is %v", key, refused, unsupported)
		}
	}
	for _, file := range []string{
		"x: 1", "limits: {time_out: 5s}", "server: {sockets: /x}", "routing: {plans: {p: {overide: " +
			"host}}}", "containers: {db: {id: x, ID: y}}",
		"containers: {db: {id: x, mappings: [{host: /a, container: /b, x: y}]}}", "tools: [{name: a, argv: [b], input-schema: {}}]",
		"tools: [{name: a, argv: [b], environment: {specific: db, x: y}}]", "devcontainer: {x: y}", "max_body: 1MiB", "server.socket: /x",
	} {
		if judge(t, s, file) == nil {
			t.Errorf("%s: the schema takes it", file)
		}
	}
}

// Load and the schema accept the same single values. Each row has valid and invalid ones.
func TestSchemaJudgesAsLoadDoes(t *testing.T) {
	s := compiledSchema(t)
	paths := []string{"/a", "/a/../b", "a", `""`, "1", "/a/..b", "[]", "{}", `"/a\0"`, "~/a", "/a/.."}
	spans := []string{"90s", "1h30m", "1.5s", ".5s", "1.s", "+1s", "1", "-1s", "1d", `""`, "x", "[]", "5µs", "100ms", "1h 30m"}
	// no pattern compares lengths
	longSpans := slices.DeleteFunc(slices.Clone(spans),
		func(s string) bool { return s == ".5s" || s == "5µs" || s == "100ms" })
	zeros := []string{"0", "0s", `"0"`}
	sizes := []string{"1", "64KiB", "64KB", "0", "0KiB", "-1", "1.5MiB", "07B", "1 KiB", "x", "[]", `""`, "8TiB"}
	counts := []string{"1", "64", "4096", "4097", "65536", "65537", "1000000", "1000001", "0", "-1", "1.5", "1KiB", "x", "[]", `""`, "99999999999999999999"}
	names := []string{"a", "A.b-c_9", "-a", `"a b"`, `""`, "ä", "1", "[]"}
	truths := []string{"true", "false", "True", "yes", "1", `"true"`, "[]", `""`}
	denied := []string{"a", "'*.key'", ".git/hooks", "a/*/c", "'a?'", "'[a]'", "'a]'", "...", "/a", "a/", "a//b", "./a", ".", "..", "a/../b", `""`, `"a\0"`, "1", "[]"}
	targets := []string{"host", "/srv/app", "/srv/../app", `""`, "-x", "1", "a/b"}
	for format, values := range map[string][]string{
		"server: {socket: %s}":                         paths,
		"host: {roots: [%s]}":                          paths,
		"trust: {workspaces: [%s]}":                    paths,
		"containers: {c: {workspace: %s}}":             paths,
		"containers: {c: {workspace: /a, config: %s}}": {"a", "/a", "../a", "a/../b", `""`, "1", `"a\0"`},
		"containers: {c: {id: x, mappings: [{host: %s, container: /zzz}]}}": append(paths, "/",
			"//"),
		"limits: {timeout: %s, max_timeout: 24h}": append(spans,
			zeros...),
		"agent: {lease: %s}": append(slices.Clone(longSpans), zeros...),
		"limits: {grace: %s}": append(spans,
			zeros...),
		"{tools: [{name: t, argv: [x], timeout: %s}], limits: {max_timeout: 24h}}": append(spans,
			zeros...),
		"server: {max_body: %s}":      sizes,
		"limits: {view: %s}":          sizes,
		"limits: {concurrent: %s}":    counts,
		"limits: {per_container: %s}": counts,
		"limits: {queue: %s}":         counts,
		"devcontainer: {up_timeout: %s}": append(spans,
			zeros...),
		"sandbox: {root: %s}": append(paths, "/",
			"//"),
		"sandbox: {sources: [%s]}": paths,
		"sandbox: {max_file: %s}":  sizes,
		"sandbox: {max_total: %s}": sizes,
		"sandbox: {max_files: %s}": append(counts,
			"100000", "100001"),
		"sandbox: {max_depth: %s}": counts,
		"sandbox: {timeout: %s}": append(spans,
			zeros...),
		"sandbox: {deny: [%s]}":                           denied,
		"sandbox: {executable: %s}":                       truths,
		"tools: [{name: t, argv: [x], results: [%s]}]":    {"a", "/a", "a/b/", "../a", "a/../b", `""`, "1", `"a\0"`, "[]"},
		"tools: [{name: t, argv: [x], rewrite_text: %s}]": truths,
		"containers: {%s: {id: x}}": append(names[:6:6],
			"host"),
		"containers: {c: {id: %s}}":    names,
		"containers: {c: {label: %s}}": {"a=b", "a=", "=b", "a", `""`, `"a=\t"`, "1"},
		"tools: [{name: %s, argv: [x]}]": append(names, "exec",
			"Exec", "python", strings.Repeat("x", 128), strings.Repeat("x", 129)),
		"tools: [{name: t, argv: %s}]": {
			"[a, b]", "[]", "a",
			"[1]", "{}", "[a, '']",
		},
		"containers: {db: {id: x}}\ntools: [{name: t, argv: [x], environment: %s}]": {
			"auto", "host",
			"required", "container", "preferred", "x", "{}", "{specific: db}", "{specific: -x}", "1",
		},
		"tools: [{name: t, argv: [x], output: %s}]": {
			"text", "json",
			"yaml", "1",
		},
		"tools: [{name: t, argv: [x], mapping: %s}]": {
			"schema",
			"heuristic", "none", "x", "1",
		},
		"tools: [{name: t, argv: [x], input_schema: %s}]": {
			"{}",
			"{type: object}", "true", "[]", "x",
		},

		"tools: [%s]": {
			"{name: a, argv: [x]}", "{name: a}", "{argv: [x]}",
			"{}", "x", "",
		},
		"containers: {c: %s}": {
			"{id: x}", "{}", "{id: x, label: a=b}",
			"{id: x, service: y}", "{id: x, config: y}", "{workspace: /a, service: y}", "{workspace: /a, id: x}", "{workspace: /a, label: a=b}", "x",
		},
		"containers: {c: {id: x, mappings: %s}}": {
			"[]", "[{host: /a, container: /b}]", "[{host: /a}]",
			"x", "", "[x]",
		},
		"routing: {override: %s}":                  targets,
		"routing: {plans: {p: {fallback: %s}}}":    targets,
		"routing: {plans: {%s: {fallback: host}}}": {"p", "a/b", `""`},
		"routing: {plans: {p: {budget: %s}}}": {
			"{calls: 1, wall: 1s, bytes: 1KiB}", "{}", "{calls: 0}", "{calls: x}", "{wall: 0s}", "{wall: 5}",
			"{bytes: 0}", "{bytes: 1KB}", "{cost: 1}", "5", "[]",
		},
		"engine: {host: %s}":          {"tcp://a", "unix:///x", `""`, "a", "1", `"tcp://a\t"`},
		"engine: {context: %s}":       {"a", "a b", "1", `"a\tb"`, "[]"},
		"agent: {transport: %s}":      {"auto", "stdio", "engine", "socket", "x", "1"},
		"devcontainer: {cli: %s}":     {"a", "/a/b", "a/b", "~/a", "1", `"a\\b"`, "/a/../b"},
		"devcontainer: {up_args: %s}": {"[]", "[a, '']", "[1]", "a", ""},
		"devcontainer: {local_env: %s}": {
			"{}", "{A: b}", "{A: 1}", "{'A=': b}", "{'': b}",
			"x", "",
		},
		"host: {env: %s}": {"[]", "[A]", "['']", "[A=b]", "[1]", "A", ""},
		"limits: %s":      {"{}", "", "x", "[]"},
		"%s":              {"{}", "", "x", "[]"},
	} {
		good, bad := 0, 0
		for _, value := range values {
			file := fmt.Sprintf(format, value)
			_, loadErr := source{file: file + " "}.load()
			if err := judge(t, s, file); (err == nil) != (loadErr == nil) {
				t.Errorf("%s: the schema says %v, and Load says %v", file, err, loadErr)
			}
			if loadErr == nil {
				good++
			} else {
				bad++
			}
		}
		if good == 0 || bad == 0 {
			t.Errorf("%s: %d good values and %d bad ones prove nothing", format, good, bad)
		}
	}
}

// The reference page has the description of each key of the schema.
func TestReferenceSaysWhatTheSchemaSays(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Description, Default string
		Properties           map[string]node
	}
	var top node
	if err := json.Unmarshal(config.Schema(), &top); err != nil {
		t.Fatal(err)
	}
	seen := 0
	var walk func(prefix string, n node)
	walk = func(prefix string, n node) {
		for name, child := range n.Properties {
			if child.Description == "" {
				walk(prefix+name+".", child)
				continue
			}
			seen++
			value := ".*"
			if child.Default != "" {
				value = "`" + regexp.QuoteMeta(child.Default) + "` "
			}
			row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(prefix+name) + "` \\| " + value + "\\| " + regexp.QuoteMeta(child.Description) + " \\|$")
			if !row.Match(page) {
				t.Errorf("docs/reference/configuration.md does not say of %s%s: %s, default %q", prefix, name,
					child.Description, child.Default)
			}
		}
	}
	walk("", top)
	if seen < 20 {
		t.Errorf("the schema has only %d keys", seen)
	}
}
