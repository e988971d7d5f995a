package pathmapper_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

// tenMegabytes returns a document as a search or a linter prints it: records with one path and
// text.
func tenMegabytes() jsontext.Value {
	var b strings.Builder
	b.WriteString(`{"results":[`)
	for i := 0; b.Len() < 10<<20; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"path":"/srv/app/pkg%d/module/file_%d.go","line":%d,"column":7,"severity":"warning","fixable":false,`, i%97, i, i*13)
		fmt.Fprintf(&b, `"text":"\tif err := run(ctx, \"step %d\"); err != nil { return fmt.Errorf(\"run step: %%w\", err) }","tags":["go","errcheck"]}`, i)
	}
	b.WriteString(`]}`)
	return jsontext.Value(b.String())
}

// BenchmarkInput measures the mapping of a document; ./bench compares it with a simple
// implementation.
func BenchmarkInput(b *testing.B) {
	m := newMapper(b, "/srv/app", "/workspace")
	other := newMapper(b, "/home/me", "/workspace")
	marks := compile(b, `{"properties":{"results":{"items":{"properties":{"path":{"format":"path"}}}}}}`)
	doc := tenMegabytes()
	for _, c := range []struct {
		name   string
		mapper *pathmapper.Mapper
		opts   pathmapper.Options
	}{
		{"heuristic", m, pathmapper.Options{Mode: dray.MapHeuristic}},
		{"schema", m, pathmapper.Options{Marks: marks}},
		{"outside", other, pathmapper.Options{Mode: dray.MapHeuristic}},
		{"unmarked", m, pathmapper.Options{Mode: dray.MapSchema}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := c.mapper.Input(doc, c.opts); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The memory for a document is bounded by its size, however many paths it has.
func TestDocumentMemory(t *testing.T) {
	m := newMapper(t, "/srv/app", "/workspace")
	doc := tenMegabytes()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := m.Input(doc, guess); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 3*uint64(len(doc)) {
		t.Errorf("%d bytes took %d more", len(doc), took)
	}
}

func BenchmarkToContainer(b *testing.B) {
	m := newMapper(b, "/srv/app", "/workspace", "/srv/app/deep/er", "/deep", "/cache",
		"/workspace/cache")
	b.ReportAllocs()
	for b.Loop() {
		if t, err := m.ToContainer("/srv/app/internal/server/handler.go"); err != nil || !t.Mapped {
			b.Fatal(t, err)
		}
	}
}
