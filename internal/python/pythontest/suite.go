package pythontest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/python"
)

// Run tests the contract of python.Runtime.
func Run(t *testing.T, h Harness) {
	for _, group := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"Hello", testHello},
		{"Values", table(valueCases)},
		{"Nested", testNested},
		{"Adapters", table(adapterCases)},
		{"Lies", table(lyingCases)},
		{"Errors", table(errorCases)},
		{"State", table(stateCases)},
		{"Restored", table(restoredCases)},
		{"Streams", table(streamCases)},
		{"Commands", testCommands},
		{"Files", testFiles},
		{"FileChanges", testFileChanges},
		{"Stdin", testStdin},
		{"Interrupts", testInterrupts},
		{"Output", testOutput},
		{"Limits", testLimits},
		{"Capabilities", testCapabilities},
		{"Broker", testBroker},
		{"Ends", testEnds},
	} {
		t.Run(group.name, func(t *testing.T) { group.test(t, h) })
	}
}

// step is one request of a case. Empty fields are not tested, except those of the code: without
// code and message the request must succeed.
type step struct {
	request python.Request
	stdin   string
	// value is the compact JSON of the value; "-" is none.
	value string
	// matches is a pattern of the value, for a value that depends on the version of Python.
	matches string
	stdout  string
	stderr  string
	// message is the start of the message of an error, and traceback a part of its traceback.
	message   string
	traceback string
	errorCode string
	code      int
	globals   map[string]string
	missing   string // names, with spaces
}

// testCase is a list of requests to one worker.
type testCase struct {
	name  string
	steps []step
}

// run is a case of one request that has a value.
func run(name, code, value string) testCase {
	return testCase{name, []step{{request: python.Request{Code: code}, value: value}}}
}

// match is a case of one request whose value matches a pattern.
func match(name, code, pattern string) testCase {
	return testCase{name, []step{{request: python.Request{Code: code}, matches: pattern}}}
}

// prints is a case of one request that has output.
func prints(name, code, stdout string) testCase {
	return testCase{name, []step{{request: python.Request{Code: code}, stdout: stdout, value: "null"}}}
}

// raises is a case of one request that ends with an exception.
func raises(name, code, message string) testCase {
	return testCase{name, []step{failing(code, message)}}
}

// several is a case of several requests.
func several(name string, steps ...step) testCase { return testCase{name, steps} }

// code is a step that succeeds, with any value.
func code(code string) step { return step{request: python.Request{Code: code}} }

// value is a step with a value.
func value(code, value string) step {
	return step{request: python.Request{Code: code}, value: value}
}

// failing is a step that ends with an exception.
func failing(code, message string) step {
	return step{request: python.Request{Code: code}, message: message, code: 1}
}

// table tests cases with one worker, whose state no case may spoil for the next.
func table(cases []testCase) func(*testing.T, Harness) {
	return func(t *testing.T, h Harness) {
		w := h.Start(t, nil)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				for _, s := range c.steps {
					s.test(t, w)
				}
			})
		}
	}
}

// test runs a step.
func (s step) test(t *testing.T, w Worker) {
	t.Helper()
	got := w.RunWith(t, s.request, []byte(s.stdin))
	if got.Err != nil {
		t.Fatalf("%.300q: %v", s.request.Code, got.Err)
	}
	for _, err := range s.differences(got) {
		t.Errorf("%.300q: %s\ngot %.2000s", s.request.Code, err, got.Describe())
	}
}

func (s step) differences(got Outcome) (wrong []string) {
	check := func(ok bool, what string) {
		if !ok {
			wrong = append(wrong, what)
		}
	}
	actual := "-"
	if got.Value != nil {
		actual = Compact(got.Value)
	}
	check(got.Code == s.code && got.OK == (s.code == 0), "want another code")
	check(s.value == "" || s.value == actual, "want the value "+s.value)
	check(s.matches == "" || regexp.MustCompile("^(?:"+s.matches+")$").MatchString(actual),
		"want a value like "+s.matches)
	check(s.stdout == "" || s.stdout == got.Stdout, "want other stdout: "+s.stdout)
	check(s.stderr == "" || s.stderr == got.Stderr, "want other stderr: "+s.stderr)
	check(strings.HasPrefix(got.Message(), s.message), "want the message "+s.message)
	check(s.message != "" || s.code != 0 || got.Error == nil, "want no error")
	if got.Error != nil {
		check(got.Error.Code == s.errorCode, "want the error code "+s.errorCode)
		check(strings.Contains(got.Error.Traceback, s.traceback), "want in the traceback: "+s.traceback)
		check(!strings.Contains(got.Error.Traceback, "<dray"), "want no frames of dray")
	}
	for name, want := range s.globals {
		check(Compact(got.Globals[name]) == want, "want the global "+name+" to be "+want)
	}
	check(strings.Join(got.Missing, " ") == s.missing, "want the missing globals "+s.missing)
	return wrong
}

// A worker says what it is (PY-01).
func testHello(t *testing.T, h Harness) {
	hello := h.Start(t, nil).Hello()
	if !regexp.MustCompile(`^3\.(9|[1-9][0-9])\.[0-9]+`).MatchString(hello.Python) || hello.StartMS <= 0 {
		t.Errorf("got %+v", hello)
	}
}

// refused fails the test unless a request is refused as unsupported, with a hint, and the worker
// goes on.
func refused(t *testing.T, w Worker, req python.Request) {
	t.Helper()
	_, err := w.Execute(t.Context(), w.fill(req), w.Workspace())
	isUnsupported(t, err)
	if got := w.Value(t, "1+1"); got != "2" {
		t.Errorf("the next request returned %s", got)
	}
}

// brokerCases ask the daemon without any permission (PY-11, PY-19).
var brokerCases = []testCase{
	denies("dray.read_text_file('a')", `["EACCES","denied",true]`),
	denies("dray.fetch('http://example.org/')", `["EACCES","denied",true]`),
	denies("dray.call_tool('stat', {'path': '.'})", `["ENOSYS","unsupported",false]`),
	several("a denied call changes nothing", code("import dray\nx = 1"), step{
		request: python.Request{Code: "dray.fetch('http://example.org/')"}, code: 1,
		message: "dray.DrayError: [Errno ", errorCode: python.CodeAccess,
	}, value("x", "1")),
	several("not offered", step{
		request: python.Request{Code: "import dray\ndray.call_tool('stat')"}, code: 1,
		message: "dray.DrayError: [Errno ", errorCode: python.CodeNoSystem,
	}),
	run("equal keys", "import dray\ntry:\n  dray.call_tool('a', {1: 2, '1': 3})\n"+
		"except dray.DrayError as e:\n  r = e.code\nr", `"unsupported"`),
	raises("NaN", "import dray\ndray.call_tool('a', {'x': float('nan')})", "ValueError: "),
	raises("a surrogate", "import dray\ndray.read_text_file('\\udc80')", "UnicodeEncodeError: "),
	raises("too large", "import dray\ndray.call_tool('a', {'x': 'x' * (4 << 20)})",
		"dray.DrayError: [Errno "),
	several("the module comes back", code("import dray, sys\nfirst = dray\ndel sys.modules['dray']"),
		value("import dray\ndray is first", "true")),
}

// denies is a case of one call, whose value is [errno, code, whether it is a PermissionError].
func denies(call, want string) testCase {
	return run(call, "import dray, errno\ntry:\n  r = "+call+"\nexcept OSError as e:\n"+
		"  r = [errno.errorcode[e.errno], e.code, isinstance(e, PermissionError)]\nr", want)
}

func testBroker(t *testing.T, h Harness) {
	if h.Runtime.Capabilities().Broker {
		h.Permissions = &python.Permissions{FS: python.FSNone}
		table(brokerCases)(t, h)
		return
	}
	table([]testCase{raises("no module", "import dray", "ModuleNotFoundError: No module named 'dray'")})(
		t, h)
}

func isUnsupported(t *testing.T, err error) {
	t.Helper()
	if e, ok := err.(*dray.Error); !ok || e.Code != dray.CodeUnsupported || e.Hint == "" { //nolint:errorlint // the error itself
		t.Errorf("got %v, want unsupported with a hint", err)
	}
}

// A request that needs a capability which the runtime lacks is refused (PY-01, PY-18, PY-19).
func testCapabilities(t *testing.T, h Harness) {
	caps := h.Runtime.Capabilities()
	w := h.Start(t, nil)
	if !caps.ReadOnly {
		t.Run("read_only", func(t *testing.T) { refused(t, w, python.Request{Code: "1", ReadOnly: true}) })
	}
	if !caps.Permissions {
		t.Run("permissions", func(t *testing.T) {
			_, err := h.Runtime.Start(t.Context(), python.WorkerSpec{
				Environment: h.Environment, Generation: 1, Permissions: &python.Permissions{FS: "read"},
			})
			isUnsupported(t, err)
		})
	}
	if caps.ReadOnly != caps.Transactional {
		t.Errorf("a runtime that limits files commits them at the end: %+v", caps)
	}
}
