package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

const (
	// documentBytes is the size of the document whose paths are mapped, streamBytes that of the text
	// whose paths are rewritten.
	documentBytes = 10_000_000
	streamBytes   = 1_000_000_000
)

// pathRun is one way for bytes with paths in them to go through this very process.
type pathRun struct {
	name string
	run  func() error
	grew int64 // of the process's memory, at its peak, above what it was before
	bulk
}

// The names of the passages.
const (
	passageSchema    = "mapped where the schema says so"
	passageHeuristic = "mapped by the heuristic"
	// it is no password, but begins like one
	passageJSON    = "`encoding/json`, into values and back" //nolint:gosec
	passageClone   = "copied"
	passageRewrite = "rewritten"
	passageCopy    = "copied in pieces"
)

// pathRuns are all of them: a document is there as a whole, a text in pieces of 64 KiB.
func pathRuns() ([]*pathRun, error) {
	mapper, err := pathmapper.New([]pathmapper.Mapping{{Host: "/srv/app", Container: "/workspace"}})
	if err != nil {
		return nil, err
	}
	marks, err := pathmapper.CompileMarks(json.RawMessage(`{"properties": {"results": {"items": {"properties": {"path": {"format": "path"}}}}}}`))
	if err != nil {
		return nil, err
	}
	doc := document(documentBytes)
	mapped := func(opts pathmapper.Options) func() error {
		return func() error {
			out, report := mapper.Output(doc, opts)
			if len(report.Mapped) == 0 || bytes.Equal(out, doc) {
				return errors.New("no path was mapped")
			}
			return nil
		}
	}
	of := func(name string, n int64, run func() error) *pathRun {
		return &pathRun{name: name, run: run, bulk: bulk{bytes: n}}
	}
	n := int64(len(doc))
	return []*pathRun{
		of(passageSchema, n, mapped(pathmapper.Options{Marks: marks})),
		of(passageHeuristic, n, mapped(pathmapper.Options{Mode: dray.MapHeuristic})),
		of(passageJSON, n, func() error { return throughValues(doc) }),
		of(passageClone, n, func() error { return expectSize(bytes.Clone(doc), len(doc)) }),
		of(passageRewrite, streamBytes, func() error { return rewriteStream(mapper) }),
		of(passageCopy, streamBytes, func() error { return pieces(io.Discard) }),
	}, nil
}

// document is what a linter prints: records of which each has one path and some text.
func document(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"results":[`)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"path":"/workspace/pkg%d/module/file_%d.go","line":%d,"column":7,"severity":"warning","fixable":false,`, i%97, i, i*13)
		fmt.Fprintf(&b, `"text":"\tif err := run(ctx, \"step %d\"); err != nil { return fmt.Errorf(\"run step: %%w\", err) }","tags":["go","errcheck"]}`, i)
	}
	b.WriteString("]}")
	return b.Bytes()
}

// throughValues is how the same is written first.
func throughValues(doc []byte) error {
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		return err
	}
	_, err := json.Marshal(renamed(v))
	return err
}

func renamed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, sub := range v {
			v[k] = renamed(sub)
		}
	case []any:
		for i, sub := range v {
			v[i] = renamed(sub)
		}
	case string:
		if rest, ok := strings.CutPrefix(v, "/workspace/"); ok {
			return "/srv/app/" + rest
		}
	}
	return v
}

func expectSize(b []byte, n int) error {
	if len(b) != n {
		return fmt.Errorf("%d bytes became %d", n, len(b))
	}
	return nil
}

// buildLog is what a build prints: every fourth line begins with a path.
var buildLog = func() []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < 1<<20; i++ {
		if i%4 == 0 {
			fmt.Fprintf(&b,
				"/workspace/internal/server/handler_%d.go:12:3: undefined: something that is not here\n", i)
		} else {
			fmt.Fprintf(&b,
				"2026-02-03T10:11:12.345Z INFO compiling step %d in 3.4 ms, 12 warnings: see the page on warnings\n", i)
		}
	}
	return b.Bytes()
}()

// pieces writes the whole text, as it is read of a tool.
func pieces(to io.Writer) error {
	buf := make([]byte, 64<<10)
	for left, from := int64(streamBytes), 0; left > 0; {
		n := copy(buf[:min(int64(len(buf)), left)], buildLog[from:])
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
		left, from = left-int64(n), (from+n)%len(buildLog)
	}
	return nil
}

func rewriteStream(mapper *pathmapper.Mapper) error {
	var got counter
	filter := mapper.Rewriter(pathmapper.ToHost, &got)
	if err := pieces(filter); err != nil {
		return err
	}
	if err := filter.Close(); err != nil {
		return err
	}
	if got >= streamBytes {
		return fmt.Errorf("%d bytes came out: no path was rewritten", got)
	}
	return nil
}

// runPathRuns runs every passage in every round, and watches the memory of the first.
func runPathRuns(all []*pathRun, rounds int, progress func(string)) error {
	for round, order := range shuffled(rounds, len(all)) {
		progress(fmt.Sprintf("paths: round %d of %d", round+1, rounds))
		for _, i := range order {
			if err := all[i].once(); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
		}
	}
	return nil
}

func (p *pathRun) once() error {
	self := []int{os.Getpid()}
	watched, err := watchMemory(self)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := p.run(); err != nil {
		return err
	}
	p.add([]time.Duration{time.Since(begun)})
	grew, err := watched.growth(self)
	p.grew = max(p.grew, grew)
	return err
}

// passageTable compares the passages.
func passageTable(all []*pathRun) string {
	var rows [][]string
	for _, p := range all {
		low, high := p.spread()
		rows = append(rows, []string{
			p.name, fmt.Sprintf("%d MB", p.bytes/1e6), millis(p.quantile(0.5)), millis(low) + " to " +
				millis(high), digits(p.rate()/1e6) + " MB/s", mebibytes(float64(p.grew)),
		})
	}
	return unlessEmpty([]string{"way", "bytes", "p50", "lowest to highest", "rate", "memory"}, rows)
}

func passageOf(all []*pathRun, name string) *pathRun {
	for _, p := range all {
		if p.name == name {
			return p
		}
	}
	return &pathRun{}
}

func perSecond(x float64) string { return digits(x/1e6) + " MB/s" }

func passageRate(name string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		rate := passageOf(f.passages, name).rate()
		return rate, rate > 0
	}
}

func passageRatio(name, base string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		return divided(passageOf(f.passages, name).rate(), passageOf(f.passages, base).rate())
	}
}

func passageGrowth(name string) func(*measurements) (float64, bool) {
	return func(f *measurements) (float64, bool) {
		p := passageOf(f.passages, name)
		return float64(p.grew), p.count() > 0
	}
}
