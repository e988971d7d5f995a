package tool

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/dray-dev/dray"
)

// tenMegabytes is the output of a linter for a large project: records with a path and some text.
func tenMegabytes() []byte {
	var b bytes.Buffer
	b.WriteString(`{"results":[`)
	for i := 0; b.Len() < 10<<20; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"path":"/ws/pkg%d/module/file_%d.go","line":%d,"column":7,"severity":"warning","fixable":false,`, i/400, i/10, i*13)
		fmt.Fprintf(&b, `"text":"\tif err := run(ctx, \"step %d\"); err != nil { return fmt.Errorf(\"run step: %%w\", err) }","tags":["go","errcheck"]}`, i)
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

// BenchmarkOutput measures a large output from capture to result: read, parsed, validated if there
// is a schema, mapped, and each path checked against the symlinks of an existing host directory.
func BenchmarkOutput(b *testing.B) {
	printed := tenMegabytes()
	root := b.TempDir()
	for i := range 110 {
		if err := os.MkdirAll(filepath.Join(root, fmt.Sprint("pkg", i), "module"), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	const schema = `{"type":"object","properties":{"results":{"type":"array","items":{"type":"object","required":["path","line"],"properties":{
		"path":{"type":"string","format":"path"},"line":{"type":"integer"}}}}}}`
	for _, c := range []struct {
		name, schema, root string
	}{{"mapped", "", "/srv/app"}, {"checked", "", root}, {"validated", schema, root}} {
		b.Run(c.name, func(b *testing.B) {
			lint := defined(b, registry(b), "lint", command("lint", "", promising(c.schema)))
			exec := replaced(lint, func(context.Context, dray.Call, dray.Sink) (dray.Result, error) {
				n := int64(len(printed))
				output, _, err := parseOutput(bytes.NewReader(printed),
					dray.StreamSummary{TotalBytes: n, KeptBytes: n})
				res := dray.Result{Reason: dray.ReasonExited, Output: output}
				if lint.output != nil {
					res.Error = lint.checkOutput(output, nil)
				}
				return res, err
			})
			call := inBox("lint", `{}`, "")
			call.Environment = capabilities{
				Kind: dray.KindContainer, WorkspaceFolder: "/ws",
				Mounts: []dray.Mount{{Host: c.root, Container: "/ws"}},
			}
			b.SetBytes(int64(len(printed)))
			b.ReportAllocs()
			for b.Loop() {
				if res, err := exec.Execute(b.Context(), call, dray.Discard); err != nil || res.Error != nil ||
					len(res.Metadata.Mapping.Errors) != 1 {
					b.Fatal(err, res.Error)
				}
			}
		})
	}
}
