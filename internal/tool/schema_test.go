package tool

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/strictjson"
)

// Invalid inputs are refused with pointers to the violations (RT-04).
func TestCheckInput(t *testing.T) {
	custom := command("custom", "")
	custom.InputSchema = json.RawMessage(`{
		"type": "object",
		"required": ["ghost"],
		"properties": {
			"n": {"type": "integer", "minimum": 1},
			"list": {"type": "array", "uniqueItems": true},
			"a/b~c": {"type": "string"},
			"one": {"$ref": "#/$defs/one"}
		},
		"$defs": {"one": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
	}`)
	r := registry(t, custom, command("any", ""))
	tests := []struct {
		tool, input string
		// pointers of the violations, nil for a valid input
		pointers []string
	}{
		{"exec", `{"argv":["ls","-l"]}`, nil},
		{"exec", `{"argv":["ls",""]}`, nil},
		{"exec", `{"argv":["a\nb"]}`, nil},
		{"exec", `{}`, []string{"/input"}},
		{"exec", `{"argv":[]}`, []string{"/input/argv"}},
		{"exec", `{"argv":"ls"}`, []string{"/input/argv"}},
		{"exec", `{"argv":["ls",1,"a\u0000b"]}`, []string{"/input/argv/1", "/input/argv/2"}},
		{"exec", `{"argv":["ls"],"cwd":"/","tty":1}`, []string{"/input/cwd", "/input/tty"}},
		{"exec", `["ls"]`, []string{"/input"}},
		{"exec", `null`, []string{"/input"}},
		{"exec", `{"argv":["a"],"argv":["b"]}`, []string{"/input/argv"}},
		{"exec", `{"argv":["a"]} {}`, []string{"/input"}},
		{"exec", ``, []string{"/input"}},
		{"exec", `{"argv":["\ud800"]}`, []string{"/input/argv/0"}},
		{"shell", `{"command":"ls | wc","shell":"bash"}`, nil},
		{"shell", `{"command":""}`, []string{"/input/command"}},
		{"read_file", `{"path":"a","offset":10,"limit":1e3}`, nil},
		{"read_file", `{"path":"a","offset":-1,"limit":0}`, []string{"/input/limit", "/input/offset"}},
		{"read_file", `{"path":"a","limit":16777217}`, []string{"/input/limit"}},
		{"read_file", `{"path":"a","offset":1.5}`, []string{"/input/offset"}},
		{"read_file", `{"path":""}`, []string{"/input/path"}},
		{"write_file", `{"path":"a","content":""}`, nil},
		{"write_file", `{"path":"a","content_base64":"/w==","mode":"0755"}`, nil},
		{"write_file", `{"path":"a"}`, []string{"/input"}},
		{"write_file", `{"path":"a","content":"","content_base64":""}`, []string{"/input"}},
		{"write_file", `{"path":"a","content_base64":"/w"}`, []string{"/input/content_base64"}},
		{"write_file", `{"path":"a","content":"","mode":"4755"}`, []string{"/input/mode"}},
		{"write_file", `{"path":"a","content":"","mode":"rw"}`, []string{"/input/mode"}},
		{"list_dir", `{"path":"."}`, nil},
		{"any", `{"whatever":[1,2,{"x":null}]}`, nil},
		{"any", `[]`, []string{"/input"}},
		{"any", `{"n":12345678901234567890123456789}`, nil},
		{"any", `{"n":1e1001}`, []string{"/input/n"}},
		{"any", `{"n":` + strings.Repeat("9", 1001) + `}`, []string{"/input/n"}},
		{"custom", `{"ghost":0}`, nil},
		{"custom", `{}`, []string{"/input"}},
		{"custom", `{"ghost":0,"n":0}`, []string{"/input/n"}},
		{"custom", `{"ghost":0,"n":1.0,"one":null}`, nil},
		{"custom", `{"ghost":0,"a/b~c":1}`, []string{"/input/a~1b~0c"}},
		{"custom", `{"ghost":0,"one":1}`, []string{"/input/one", "/input/one"}},
		{"custom", `{"ghost":0,"list":[1e999,1,1e999]}`, []string{"/input/list"}},
	}
	for _, tt := range tests {
		tool, err := r.Get(t.Context(), tt.tool)
		if err != nil {
			t.Fatal(err)
		}
		err = tool.CheckInput(json.RawMessage(tt.input))
		if len(tt.pointers) == 0 {
			if err != nil {
				t.Errorf("%s %s: %v", tt.tool, tt.input, err)
			}
			continue
		}
		e := dray.AsError(err)
		if e == nil || e.Code != dray.CodeInvalidInput || e.Hint == "" {
			t.Errorf("%s %s gave %+v, want invalid_input and a hint", tt.tool, tt.input, e)
			continue
		}
		var got []string
		for _, d := range e.Details {
			got = append(got, d.Pointer)
		}
		if strings.Join(got, " ") != strings.Join(tt.pointers, " ") {
			t.Errorf("%s %s points to %s, want %s (%v)", tt.tool, tt.input, got, tt.pointers, e.Details)
		}
	}
}

// A million violations are reported briefly.
func TestViolationsAreBounded(t *testing.T) {
	r := registry(t)
	exec, _ := r.Get(t.Context(), "exec")
	args := make([]string, 1000)
	for i := range args {
		args[i] = `"` + strings.Repeat("é", 1000) + `\u0000"`
	}
	e := dray.AsError(exec.CheckInput(json.RawMessage(`{"argv":[` + strings.Join(args, ",") + `]}`)))
	if e == nil || len(e.Details) != maxViolations {
		t.Fatalf("got %d violations, want %d", len(e.Details), maxViolations)
	}
	for _, d := range e.Details {
		if len(d.Message) > maxMessage+3 || strings.ContainsRune(d.Message, '\uFFFD') {
			t.Fatalf("the message has %d bytes: %q", len(d.Message), d.Message)
		}
	}
}

// FuzzCheckInput: a valid input is one strict JSON object that the tool can decode.
// The names of an input with many members are copied once, and refused without work for each that
// is not reported (SE-03).
func TestInputsWithManyMembers(t *testing.T) {
	const members = 100_000
	var input strings.Builder
	for i := range members {
		fmt.Fprintf(&input, `,"k%d":""`, i)
	}
	doc := json.RawMessage(`{"argv":["a"]` + input.String() + "}")
	exec, _ := registry(t).Get(t.Context(), "exec")
	allocs := testing.AllocsPerRun(1, func() {
		if e := dray.AsError(exec.CheckInput(doc)); e == nil || len(e.Details) != maxViolations {
			t.Fatal(e)
		}
	})
	if allocs > 2.5*members { // the name, and its value
		t.Errorf("%d members took %.0f allocations", members, allocs)
	}
}

func FuzzCheckInput(f *testing.F) {
	r := registry(f)
	for _, name := range r.names() {
		for _, seed := range []string{`{"argv":["a"]}`, `{"command":"a","shell":"b"}`, `{"path":"a","offset":1.0,"limit":1e2}`, `{"path":"a","content":""}`} {
			f.Add(name, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, name string, input []byte) {
		tool, err := r.Get(t.Context(), name)
		if err != nil || tool.CheckInput(input) != nil {
			return
		}
		if err := readable(name, input); err != nil {
			t.Fatalf("%s accepts %q and cannot read it: %v", name, input, err)
		}
	})
}

// readable decodes an input as the tool of that name does.
func readable(name string, input []byte) error {
	var in any
	switch name {
	case "exec":
		in = &execInput{}
	case "shell":
		in = &shellInput{}
	case "read_file":
		in = &readInput{}
	case "write_file":
		in = &writeInput{}
	case "edit_file":
		in = &editInput{}
	case "glob":
		in = &globInput{}
	case "grep":
		in = &grepInput{}
	case "sync":
		in = &SyncInput{}
	default:
		in = &pathInput{}
	}
	return read(input, in)
}

// Decoding and checking a request with 8 times as many members takes about 8 times as much CPU time
// of this thread, and not 64 times (SE-03).
func TestInputsWithManyMembers_Linear(t *testing.T) {
	r := registry(t, command("any", ""))
	open, _ := r.Get(t.Context(), "any")
	cost := func(members int) time.Duration {
		var b strings.Builder
		for i := range members {
			fmt.Fprintf(&b, `,"k%d":%d`, i, i)
		}
		body := []byte(`{"input":{` + b.String()[1:] + `}}`)
		least := time.Duration(math.MaxInt64)
		for range 3 {
			begun := threadTime(t)
			var req struct {
				Input json.RawMessage `json:"input"`
			}
			if err := strictjson.Decode(body, &req); err != nil {
				t.Fatal(err)
			}
			if err := open.CheckInput(req.Input); err != nil {
				t.Fatal(err)
			}
			least = min(least, threadTime(t)-begun)
		}
		return least
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	small, large := cost(20_000), cost(160_000)
	t.Logf("%v for 20,000 members, %v for 160,000", small, large)
	if large > 32*small {
		t.Errorf("8 times as many members take %.1f times as long", float64(large)/float64(small))
	}
}

func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(unix.TimevalToNsec(usage.Utime) + unix.TimevalToNsec(usage.Stime))
}
