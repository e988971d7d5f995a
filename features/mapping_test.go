package features

import (
	"fmt"
	"strings"
	"testing"
)

// everyMark is a schema with a mark at every possible position.
const everyMark = `{"type": "object", "additionalProperties": false,
    "$defs": {"path": {"type": "string", "format": "path"},
      "node": {"type": "object", "properties": {"at": {"$ref": "#/$defs/path"}, "below": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
    "properties": {
      "ref": {"$ref": "#/$defs/path"}, "tree": {"$ref": "#/$defs/node"},
      "all": {"allOf": [{"type": "string"}, {"format": "path"}]},
      "any": {"anyOf": [{"type": "null"}, {"type": "string", "format": "path"}]},
      "one": {"oneOf": [{"type": "integer"}, {"type": "string", "x-path": true}]},
      "items": {"type": "array", "items": {"type": "string", "x-path": true}},
      "prefix": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "string", "x-path": true}]},
      "more": {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": {"x-path": true}},
      "pattern": {"type": "object", "patternProperties": {"_file$": {"x-path": true}}},
      "when": {"type": "object", "if": {"properties": {"kind": {"const": "file"}}}, "then": {"properties": {"value": {"x-path": true}}}},
      "list": {"type": "string", "format": "path-list"}, "uri": {"type": "string", "format": "file-uri"},
      "text": {"type": "string"}, "off": {"type": "string", "x-path": false}}}`

const mappingConfig = `
containers:
  named:
    workspace: ROOT/app
    mappings:
      - {host: ROOT/results, container: /tmp/results}
      - {host: ROOT/generated, container: /workspaces/app/generated}
      - {host: ROOT/deeper, container: /data/deep/er}
trust: {workspaces: [ROOT/app]}
tools:
  - {name: print, argv: [python3, -c, "import json, sys; json.dump(json.load(sys.stdin)['o'], sys.stdout, ensure_ascii=False)"], output: json}
  - {name: marked, argv: [cat], output: json, input_schema: SCHEMA, output_schema: SCHEMA}
  - {name: never, argv: [cat], output: json, mapping: none, input_schema: SCHEMA, output_schema: SCHEMA}
  - {name: guess, argv: [cat], output: json, mapping: heuristic, input_schema: SCHEMA, output_schema: SCHEMA}
  - {name: deep, argv: [python3, -c, "print('[' * 70 + ']' * 70)"], output: json}
  - name: links
    output: json
    argv:
      - sh
      - -ec
      - |
        mkdir -p out
        cd out
        echo content > file
        ln -sfn file inside
        ln -sfn not-yet later
        ln -sfn /workspaces/app/out/file absolute
        ln -sfn /etc/passwd outside
        ln -sfn ../../../../../../../../etc folder
        echo content > ROOT/same/target
        ln -sfn ROOT/same/target ROOT/same/own
        cat <<END
        {"file": "$PWD/file", "inside": "$PWD/inside", "later": "$PWD/later", "absolute": "$PWD/absolute", "outside": "$PWD/outside",
         "beneath": "$PWD/folder/passwd", "same": "ROOT/same/own"}
        END
`

const mappingDevcontainer = `{
	"image": "DEBIAN", "remoteUser": "root", "userEnvProbe": "none",
	"mounts": [
		"type=bind,source=ROOT/data,target=/data", "type=bind,source=ROOT/same,target=ROOT/same", "type=bind,source=ROOT/caf` + "\u00e9" + `,target=/coffee",
		"type=bind,source=ROOT/up,target=ROOT/up/below", "type=tmpfs,target=/cache"
	]
}`

func TestMapping(t *testing.T) {
	needsEngine(t)
	root := newDir(t)
	in := func(text string) string {
		return withImages(strings.NewReplacer("ROOT", root, "SCHEMA", everyMark).Replace(text))
	}
	writeFiles(t, root, map[string]string{
		"app/.devcontainer/devcontainer.json": in(mappingDevcontainer), "app/with space.txt": "", "data/x": "", "same/x": "", "caf\u00e9/x": "", "up/x": "",
	})
	f := &fixture{
		daemon: startDaemon(t, in(mappingConfig)), root: root,
		names: map[string]string{"workspace": root + "/app", "data": root + "/data", "root": root},
	}
	t.Cleanup(func() { removeContainers(t, root+"/app") })
	body := map[string]any{
		"tool": "exec", "input": map[string]any{"argv": []string{"true"}},
		"workspace": root + "/app",
	}
	r, err := f.daemon.call(t.Context(), "?wait_ms=60000", body)
	if err != nil || r.at("/status") != "succeeded" {
		t.Fatalf("the workspace does not start: %v, %s", err, r.raw)
	}
	f.names["container"] = fmt.Sprint(r.at("/metadata/container/id"))
	runFeature(t, "mapping.feature", f)
}
