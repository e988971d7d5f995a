package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/dray-dev/dray"
)

// refused is a request that is refused, and the expected error.
type refused struct {
	name, method, path, body string
	headers                  []string
	status                   int
	code                     dray.Code
	pointer                  string // of the first violation; empty: any
	contains                 string // in the detail or the hint
}

func post(name, body, pointer, contains string) refused {
	return refused{
		"call: " + name, "POST", "/v1/invocations", body, nil, 400, dray.CodeInvalidRequest,
		pointer, contains,
	}
}

func get(name, path string) refused {
	return refused{"query: " + name, "GET", path, "", nil, 400, dray.CodeInvalidRequest, "", ""}
}

func control(name, verb, body, pointer, contains string) refused {
	return refused{
		name, "POST", "/v1/invocations/" + someID + "/" + verb, body, nil, 400,
		dray.CodeInvalidRequest, pointer, contains,
	}
}

const someID = "0198a000-0000-7000-8000-000000000009"

var refusals = []refused{
	// A body has one meaning (SE-03).
	post("empty body", "{", "", "unexpected EOF"),
	post("not JSON", "tool=exec", "", ""),
	post("an array", `["exec"]`, "", "an array"),
	post("null", `null`, "", ""),
	post("duplicate key", `{"tool":"exec","tool":"shell"}`, "/tool", "duplicate"),
	post("duplicate key by escape", `{"tool":"exec","\u0074ool":"shell"}`, "/tool", "duplicate"),
	post("duplicate key in the input", `{"tool":"exec","input":{"a":{"b":1,"b":2}}}`, "/input/a/b", "duplicate"),
	post("trailing document", `{"tool":"exec"}{}`, "", "after top-level value"),
	post("trailing text", `{"tool":"exec"}x`, "", ""),
	post("NaN", `{"tool":"exec","timeout_seconds":NaN}`, "/timeout_seconds", ""),
	post("Infinity", `{"tool":"exec","input":{"a":Infinity}}`, "/input/a", ""),
	post("invalid UTF-8", "{\"tool\":\"ex\xffec\"}", "/tool", "UTF-8"),
	post("invalid UTF-8 in the input", "{\"tool\":\"exec\",\"input\":{\"a\":\"\xc3\x28\"}}",
		"/input/a", "UTF-8"),
	post("overlong UTF-8", "{\"tool\":\"exec\",\"input\":{\"a\":\"\xc0\xaf\"}}", "/input/a", "UTF-8"),
	post("lone surrogate", `{"tool":"exec","cwd":"\ud800"}`, "/cwd", "surrogate"),
	post("lone low surrogate in the input", `{"tool":"exec","input":{"a":"\udc00"}}`, "/input/a", "surrogate"),
	post("lone surrogate in a name", `{"tool":"exec","env":{"\ud83d":"x"}}`, "", "surrogate"),
	post("byte order mark", "\ufeff"+`{"tool":"exec"}`, "", ""),
	post("comment", `{"tool":"exec" /* no */}`, "", ""),
	post("trailing comma", `{"tool":"exec",}`, "", ""),
	post("control character", "{\"tool\":\"exec\",\"cwd\":\"a\nb\"}", "/cwd", ""),
	post("too deep", `{"tool":"exec","input":`+strings.Repeat(`{"a":`, 20000)+"1"+strings.Repeat("}", 20000)+"}", "", "depth"),
	post("unknown member", `{"tool":"exec","argv":["ls"]}`, "/argv", "unknown"),
	post("unknown member by case", `{"Tool":"exec"}`, "/Tool", "unknown"),
	post("unknown member of context", `{"tool":"exec","context":{"plan":"x"}}`, "/context/plan", "unknown"),
	post("unknown member of plan", `{"tool":"exec","plan":{"force":"x"}}`, "/plan/force", "unknown"),
	post("null member", `{"tool":"exec","workspace":null}`, "/workspace", "null"),
	post("null input", `{"tool":"exec","input":null}`, "/input", "null"),
	post("null in env", `{"tool":"exec","env":{"A":null}}`, "/env/A", "null"),
	post("number as string", `{"tool":"exec","env":{"A":1}}`, "/env/A", "a number"),
	post("string as boolean", `{"tool":"exec","stdin_open":"true"}`, "/stdin_open", "a string"),

	post("no tool", `{"input":{}}`, "/tool", ""),
	post("tool with a space", `{"tool":"ex ec"}`, "/tool", ""),
	post("tool with a slash", `{"tool":"../exec"}`, "/tool", ""),
	post("tool with a leading dot", `{"tool":".exec"}`, "/tool", ""),
	post("tool with a newline", `{"tool":"exec\n"}`, "/tool", ""),
	post("tool of 129 bytes", `{"tool":"`+strings.Repeat("a", 129)+`"}`, "/tool", "128"),
	post("input is an array", `{"tool":"exec","input":[]}`, "/input", "object"),
	post("input is a string", `{"tool":"exec","input":"{}"}`, "/input", "object"),

	// Names and paths (EX-02, PM-05, PM-15).
	post("container", `{"tool":"exec","container":"-x"}`, "/container", ""),
	post("container with a slash", `{"tool":"exec","container":"a/b"}`, "/container", ""),
	post("relative workspace", `{"tool":"exec","workspace":"app"}`, "/workspace", "absolute"),
	post("workspace with ..", `{"tool":"exec","workspace":"/a/../b"}`, "/workspace", ".."),
	post("workspace with .. at the end", `{"tool":"exec","workspace":"/a/.."}`, "/workspace", ".."),
	post("workspace with NUL", `{"tool":"exec","workspace":"/a\u0000b"}`, "/workspace", "NUL"),
	post("Windows workspace", `{"tool":"exec","workspace":"C:\\app"}`, "/workspace", "Windows"),
	post("Windows share", `{"tool":"exec","workspace":"\\\\host\\app"}`, "/workspace", "Windows"),
	post("long workspace", `{"tool":"exec","workspace":"/`+strings.Repeat("a", 4096)+`"}`, "/workspace", "4096"),
	post("cwd with ..", `{"tool":"exec","cwd":"../x"}`, "/cwd", ".."),
	post("cwd with NUL", `{"tool":"exec","cwd":"x\u0000"}`, "/cwd", "NUL"),
	post("Windows cwd", `{"tool":"exec","cwd":"c:/x"}`, "/cwd", "Windows"),
	post("environment", `{"tool":"exec","environment":"kubernetes"}`, "/environment", "auto"),
	post("mapping", `{"tool":"exec","mapping":"all"}`, "/mapping", "schema"),
	post("on_disconnect", `{"tool":"exec","on_disconnect":"detach"}`, "/on_disconnect", "continue"),
	post("on_slow_reader", `{"tool":"exec","on_slow_reader":"drop"}`, "/on_slow_reader", "wait"),
	post("on_slow_reader without a stream", `{"tool":"exec","on_slow_reader":"wait"}`, "/on_slow_reader", "stream"),
	post("plan.override", `{"tool":"exec","plan":{"override":"no good"}}`, "/plan/override", ""),
	post("plan.fallback", `{"tool":"exec","plan":{"fallback":"/a/../b"}}`, "/plan/fallback", ".."),

	// Names of variables (EX-06).
	post("variable with =", `{"tool":"exec","env":{"A=B":"c"}}`, "/env/A=B", "="),
	post("variable with NUL", `{"tool":"exec","env":{"A\u0000":"c"}}`, "", "NUL"),
	post("variable without a name", `{"tool":"exec","env":{"":"c"}}`, "/env/", ""),
	post("value with NUL", `{"tool":"exec","env":{"A/B":"c\u0000"}}`, "/env/A~1B", "NUL"),
	post("local variable with =", `{"tool":"exec","local_env":{"A=":"c"}}`, "/local_env/A=", "="),

	// Timeouts (EX-08).
	post("timeout 0", `{"tool":"exec","timeout_seconds":0}`, "/timeout_seconds", "not positive"),
	post("timeout -0", `{"tool":"exec","timeout_seconds":-0.0}`, "/timeout_seconds", "not positive"),
	post("negative timeout", `{"tool":"exec","timeout_seconds":-1}`, "/timeout_seconds", "not positive"),
	post("timeout over the maximum", `{"tool":"exec","timeout_seconds":3600.1}`, "/timeout_seconds", "3600"),
	post("huge timeout", `{"tool":"exec","timeout_seconds":1e300}`, "/timeout_seconds", "3600"),
	post("timeout that overflows", `{"tool":"exec","timeout_seconds":1e999}`, "/timeout_seconds", ""),
	post("timeout as a string", `{"tool":"exec","timeout_seconds":"1.5"}`, "/timeout_seconds", "a string"),
	post("timeout null", `{"tool":"exec","timeout_seconds":null}`, "/timeout_seconds", ""),
	post("timeout true", `{"tool":"exec","timeout_seconds":true}`, "/timeout_seconds", ""),
	post("idle timeout 0", `{"tool":"exec","idle_timeout_seconds":0}`, "/idle_timeout_seconds", "not positive"),
	post("idle timeout over the maximum", `{"tool":"exec","idle_timeout_seconds":4000}`, "/idle_timeout_seconds", "limits.max_timeout"),

	// Stdin (EX-20).
	post("stdin and stdin_base64", `{"tool":"exec","stdin":"","stdin_base64":""}`, "/stdin_base64", ""),
	post("stdin with stdin_open", `{"tool":"exec","stdin":"a","stdin_open":true}`, "/stdin_open", ""),
	post("stdin_base64 with stdin_open", `{"tool":"exec","stdin_base64":"YQ==","stdin_open":true}`, "/stdin_open", ""),
	post("bad base64", `{"tool":"exec","stdin_base64":"a-b_"}`, "/stdin_base64", ""),
	post("base64 without padding", `{"tool":"exec","stdin_base64":"YQ"}`, "/stdin_base64", ""),
	post("stdin for a tool without stdin", `{"tool":"greet","stdin":"a"}`, "/tool", ""),

	post("context.plan_id too long", `{"tool":"exec","context":{"plan_id":"`+strings.Repeat("p", 257)+`"}}`, "/context/plan_id", "256"),
	post("context.plan_id with NUL", `{"tool":"exec","context":{"plan_id":"a\u0000"}}`, "/context/plan_id", "NUL"),
	post("too many labels", `{"tool":"exec","context":{"labels":{`+labels(65)+`}}}`, "/context/labels", "64"),
	post("long label", `{"tool":"exec","context":{"labels":{"a":"`+strings.Repeat("x", 1025)+`"}}}`, "/context/labels/a", "1024"),

	// Terminals (EX-19).
	post("tty without a size", `{"tool":"exec","tty":{}}`, "/tty/columns", "65535"),
	post("tty without rows", `{"tool":"exec","tty":{"columns":80}}`, "/tty/rows", "65535"),
	post("tty of 0 columns", `{"tool":"exec","tty":{"columns":0,"rows":24}}`, "/tty/columns", "65535"),
	post("tty of too many rows", `{"tool":"exec","tty":{"columns":80,"rows":65536}}`, "/tty/rows", "65535"),
	post("tty of -1 columns", `{"tool":"exec","tty":{"columns":-1,"rows":24}}`, "/tty/columns", "65535"),
	post("tty of half a column", `{"tool":"exec","tty":{"columns":80.5,"rows":24}}`, "/tty/columns", ""),
	post("tty with pixels", `{"tool":"exec","tty":{"columns":80,"rows":24,"width":1}}`, "/tty/width", "unknown"),
	post("tty true", `{"tool":"exec","tty":true}`, "/tty", ""),
	post("tty null", `{"tool":"exec","tty":null}`, "/tty", "null"),
	post("tty of a tool that reads its input", `{"tool":"greet","tty":{"columns":80,"rows":24}}`, "/tty", "greet"),
	control("resize without a size", "resize", `{}`, "/columns", "65535"),
	control("resize beyond the maximum", "resize", `{"columns":80,"rows":70000}`, "/rows", "65535"),
	control("resize with an unknown member", "resize", `{"columns":80,"rows":24,"force":true}`, "/force", ""),
	control("no signal", "signal", `{}`, "/signal", "signal is required"),
	control("an unknown signal", "signal", `{"signal":"SIGFOO"}`, "/signal", "SIGHUP, SIGINT, "),
	control("signal 0", "signal", `{"signal":0}`, "/signal", "SIGINT"),
	control("signal 65", "signal", `{"signal":65}`, "/signal", "SIGINT"),
	control("signal -9", "signal", `{"signal":-9}`, "/signal", "SIGINT"),
	control("signal of a list", "signal", `{"signal":["INT"]}`, "/signal", "SIGINT"),
	control("signal null", "signal", `{"signal":null}`, "/signal", "null"),
	{
		"resize with a parameter", "POST", "/v1/invocations/" + someID + "/resize?columns=80", "{}", nil,
		400, dray.CodeInvalidRequest, "", "unknown query parameter",
	},

	// Rewritten text (PM-10).
	post("rewrite_text on a terminal", `{"tool":"exec","rewrite_text":true,"tty":{"columns":80,"rows":24}}`, "/rewrite_text", "terminal"),
	post("rewrite_text as a text", `{"tool":"exec","rewrite_text":"yes"}`, "/rewrite_text", ""),
	post("rewrite_text null", `{"tool":"exec","rewrite_text":null}`, "/rewrite_text", "null"),

	// The caller's paths (PM-17).
	post("paths of another side", `{"tool":"exec","paths":"both"}`, "/paths", "container"),
	post("rewrite_text of container paths", `{"tool":"exec","paths":"container","rewrite_text":true}`, "/rewrite_text", "rewritten"),
	post("mapping of container paths", `{"tool":"exec","paths":"container","mapping":"schema"}`, "/mapping", "mapped"),

	// Declared outputs (SY-11).
	post("sync of one text", `{"tool":"exec","sync":"/a"}`, "/sync", ""),
	post("sync without paths", `{"tool":"exec","sync":["a",""]}`, "/sync/1", "empty"),
	post("sync with ..", `{"tool":"exec","sync":["/a/../../etc"]}`, "/sync/0", ".."),
	post("sync with NUL", `{"tool":"exec","sync":["/a\u0000"]}`, "/sync/0", "NUL"),
	post("sync of numbers", `{"tool":"exec","sync":[1]}`, "/sync/0", ""),
	post("sync of too many paths", `{"tool":"exec","sync":[`+strings.Repeat(`"/a",`, 1000)+`"/a"]}`, "/sync", "1000"),
	post("sync of long paths", `{"tool":"exec","sync":[`+strings.Repeat(`"/`+strings.Repeat("a", 4000)+`",`, 16)+`"/`+strings.Repeat("a", 4000)+`"]}`, "/sync", "65536"),
	post("sync of a long path", `{"tool":"exec","sync":["/`+strings.Repeat("a", 4096)+`"]}`, "/sync/0", "4096"),

	// Parts of the contract that this version does not support.
	post("leftovers", `{"tool":"exec","leftovers":"leave"}`, "/leftovers", "kill"),
	{"Idempotency-Key of a sync", "POST", "/v1/sync", `{"workspace":"/w","paths":["/a"]}`, []string{"Idempotency-Key: k"}, 400, dray.CodeInvalidRequest, "", "not supported for /v1/sync"},
	{"Idempotency-Key of a route", "POST", "/v1/route", callBody, []string{"Idempotency-Key: k"}, 400, dray.CodeInvalidRequest, "", "not supported for /v1/route"},
	{
		"empty Idempotency-Key", "POST", "/v1/invocations", callBody,
		[]string{"Idempotency-Key: "},
		400,
		dray.CodeInvalidRequest, "", "invalid idempotency key",
	},

	{"unknown tool", "POST", "/v1/invocations", `{"tool":"Exec"}`, nil, 404, dray.CodeUnknownTool, "", ""},
	{"unknown tool to route", "POST", "/v1/route", `{"tool":"nope"}`, nil, 404, dray.CodeUnknownTool, "", ""},
	{"unknown tool to read", "GET", "/v1/tools/nope", "", nil, 404, dray.CodeUnknownTool, "", ""},
	{
		"malformed tool to read", "GET", "/v1/tools/a%2Fb", "", nil, 400, dray.CodeInvalidRequest, "",
		"",
	},
	{"malformed call to route", "POST", "/v1/route", `{"tool":"exec","cwd":".."}`, nil, 400, dray.CodeInvalidRequest, "/cwd", ""},

	// Content types and encodings (SE-02).
	{
		"no content type", "POST", "/v1/invocations", callBody,
		[]string{"Content-Type: "},
		415,
		dray.CodeUnsupportedMediaType, "", "application/json",
	},
	{
		"a form", "POST", "/v1/invocations", callBody,
		[]string{"Content-Type: application/x-www-form-urlencoded"},
		415, dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"text", "POST", "/v1/route", callBody,
		[]string{"Content-Type: text/plain"},
		415,
		dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"another charset", "POST", "/v1/paths", callBody,
		[]string{"Content-Type: application/json; charset=latin1"},
		415, dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"gzip", "POST", "/v1/invocations", callBody,
		[]string{"Content-Encoding: gzip"},
		415,
		dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"identity", "POST", "/v1/invocations", callBody,
		[]string{"Content-Encoding: identity"},
		415,
		dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"gzip to stdin", "POST", "/v1/invocations/" + someID + "/stdin", "x",
		[]string{"Content-Encoding: gzip"},
		415, dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"an empty encoding", "POST", "/v1/invocations", callBody,
		[]string{"Content-Encoding: "},
		415,
		dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"gzip without a body", "GET", "/v1/tools", "",
		[]string{"Content-Encoding: gzip"},
		415,
		dray.CodeUnsupportedMediaType, "", "",
	},
	{
		"no workspace", "POST", "/v1/workspaces/a%20b/up", "", nil, 400, dray.CodeInvalidRequest, "",
		"workspace id",
	},
	{"too large", "POST", "/v1/invocations", `{"tool":"exec","stdin":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, dray.CodeTooLarge, "", "1048576"},

	// Queries.
	{
		"query: state of approvals", "GET", "/v1/approvals?state=pendin", "", nil, 400,
		dray.CodeInvalidRequest, "", "use one of pending, approved, denied, used, expired, all",
	},
	get("unknown filter", "/v1/invocations?colour=red"),
	get("filter twice", "/v1/invocations?tool=a&tool=b"),
	get("malformed query", "/v1/invocations?tool=%zz"),
	get("semicolon", "/v1/invocations?tool=a;status=failed"),
	get("status", "/v1/invocations?status=done"),
	get("reason", "/v1/invocations?reason=bored"),
	get("environment", "/v1/invocations?environment=auto"),
	get("container", "/v1/invocations?container=a/b"),
	get("tool", "/v1/invocations?tool=a%20b"),
	get("since", "/v1/invocations?since=yesterday"),
	get("until", "/v1/invocations?until=2026-01-01"),
	get("limit 0", "/v1/invocations?limit=0"),
	get("limit 1001", "/v1/invocations?limit=1001"),
	get("limit text", "/v1/invocations?limit=all"),
	get("plan_id", "/v1/invocations?plan_id="+strings.Repeat("p", 300)),
	get("session_id", "/v1/invocations?session_id="+strings.Repeat("p", 300)),
	get("label without a value", "/v1/invocations?label=team"),
	get("label without a name", "/v1/invocations?label=:ci"),
	get("stats without a key", "/v1/audit/stats"),
	get("stats by another key", "/v1/audit/stats?by=color"),
	get("stats with a limit", "/v1/audit/stats?by=tool&limit=3"),
	get("follow as CSV", "/v1/audit/export?follow=1&format=csv"),
	get("follow running calls", "/v1/audit/export?follow=1&status=running"),
	get("begins without follow", "/v1/audit/export?begun=1"),
	get("follow after nothing", "/v1/audit/export?follow=1&after=x"),
	get("export: format", "/v1/audit/export?format=xml"),
	get("export: unknown filter", "/v1/audit/export?colour=red"),
	get("short id", "/v1/invocations?id=0123"),
	get("upper-case id", "/v1/invocations?id=0123ABCDEF"),
	get("relative workspace", "/v1/invocations?workspace=app"),
	get("code", "/v1/invocations?code=bad%20cwd"),
	get("unknown code", "/v1/invocations?code=bad_cwdd"),
	get("empty tool", "/v1/invocations?tool="),
	get("empty text", "/v1/audit/export?q="),
	get("empty plan of files", "/v1/audit/files?plan_id="),
	get("empty principal of events", "/v1/audit/events?principal="),
	get("min_duration_ms", "/v1/invocations?min_duration_ms=1s"),
	get("negative min_duration_ms", "/v1/invocations?min_duration_ms=-1"),
	get("sort", "/v1/invocations?sort=tool"),
	get("long argv", "/v1/invocations?argv="+strings.Repeat("a", 1025)),
	get("long image", "/v1/invocations?image="+strings.Repeat("a", 1025)),
	get("changes: unknown filter", "/v1/audit/files?tool=sync"),
	get("changes: limit 0", "/v1/audit/files?limit=0"),
	get("changes: invocation", "/v1/audit/files?invocation=x"),
	get("changes: relative path", "/v1/audit/files?path=a"),
	get("changes: long plan", "/v1/audit/files?plan_id="+strings.Repeat("p", 300)),
	get("wait_ms text", "/v1/invocations/"+someID+"?wait_ms=1s"),
	get("wait_ms negative", "/v1/invocations/"+someID+"?wait_ms=-1"),
	get("wait_ms of years", "/v1/invocations/"+someID+"?wait_ms=99999999999999"),
	get("wait_ms for tools", "/v1/tools?wait_ms=1"),
	get("after", "/v1/invocations/"+someID+"/events?after=x"),
	get("after beyond 2^53", "/v1/invocations/"+someID+"/events?after=9007199254740992"),
	get("after of an export", "/v1/audit/export?after=-1"),
	get("old", "/v1/audit/checkpoint?old=x"),
	get("parameter of workspaces", "/v1/workspaces?all=1"),
	{
		"Last-Event-ID", "GET", "/v1/invocations/" + someID + "/events", "",
		[]string{"Last-Event-ID: -3"},
		400, dray.CodeInvalidRequest, "", "",
	},
	{
		"after beside Last-Event-ID", "GET", "/v1/invocations/" + someID + "/events?after=-1", "",
		[]string{"Last-Event-ID: 3"},
		400, dray.CodeInvalidRequest, "", "",
	},
	{
		"empty Last-Event-ID", "GET", "/v1/invocations/" + someID + "/events", "",
		[]string{"Last-Event-ID: "},
		400, dray.CodeInvalidRequest, "", "",
	},
	{
		"wait_ms of a stream", "POST", "/v1/invocations?wait_ms=5", callBody,
		[]string{"Accept: text/event-stream"},
		400, dray.CodeInvalidRequest, "", "on_disconnect",
	},
	{
		"stdin offset", "POST", "/v1/invocations/" + someID + "/stdin?offset=-1", "x", nil, 400,
		dray.CodeInvalidRequest, "", "offset",
	},
	{
		"stdin eof", "POST", "/v1/invocations/" + someID + "/stdin?eof=yes", "x", nil, 400,
		dray.CodeInvalidRequest, "", "eof",
	},

	// Unknown resources.
	{"no such id", "GET", "/v1/invocations/" + someID, "", nil, 404, dray.CodeNotFound, "", ""},
	{"not an id", "GET", "/v1/invocations/%2e%2e%2fsecret", "", nil, 404, dray.CodeNotFound, "", ""},
	{
		"an id in another form", "GET", "/v1/invocations/" + strings.ToUpper(someID), "", nil, 404,
		dray.CodeNotFound, "", "",
	},
	{
		"no such events", "GET", "/v1/invocations/" + someID + "/events", "", nil, 404, dray.CodeNotFound,
		"", "",
	},
	{
		"no such output", "GET", "/v1/invocations/" + someID + "/output/stdout", "", nil, 404,
		dray.CodeNotFound, "", "",
	},
	{
		"no such text", "GET", "/v1/invocations/" + someID + "/output/stdout?rewritten=yes", "", nil, 400,
		dray.CodeInvalidRequest, "", "auto",
	},
	{
		"no such stream", "GET", "/v1/invocations/" + someID + "/output/stdin", "", nil, 404,
		dray.CodeNotFound, "", "stdout",
	},
	{
		"no such call to write to", "POST", "/v1/invocations/" + someID + "/stdin", "", nil, 404,
		dray.CodeNotFound, "", "",
	},
	{
		"no such call to cancel", "POST", "/v1/invocations/" + someID + "/cancel", "", nil, 404,
		dray.CodeNotFound, "", "",
	},
	{"no such path", "GET", "/v2", "", nil, 404, dray.CodeNotFound, "", "openapi"},
	{"the whole server", "OPTIONS", "/", "", nil, 404, dray.CodeNotFound, "", ""},
	{"a path that is not clean", "GET", "/v1//tools", "", nil, 404, dray.CodeNotFound, "", ""},
	{"a slash at the end", "GET", "/v1/tools/", "", nil, 404, dray.CodeNotFound, "", ""},
	{"metrics", "GET", "/metrics", "", nil, 404, dray.CodeNotFound, "", ""},
	{"mcp", "POST", "/mcp", "{}", nil, 404, dray.CodeNotFound, "", ""},
	{"no such call to signal", "POST", "/v1/invocations/" + someID + "/signal", `{"signal":15}`, nil, 404, dray.CodeNotFound, "", ""},
	{"no such call to resize", "POST", "/v1/invocations/" + someID + "/resize", `{"columns":1,"rows":1}`, nil, 404, dray.CodeNotFound, "", ""},

	{
		"method", "DELETE", "/v1/invocations", "", nil, 405, dray.CodeMethodNotAllowed, "",
		"GET, HEAD, POST",
	},
	{
		"method of an invocation", "PATCH", "/v1/invocations/" + someID, "", nil, 405,
		dray.CodeMethodNotAllowed, "", "GET, HEAD",
	},
	{
		"GET has no side effects", "GET", "/v1/invocations/" + someID + "/cancel", "", nil, 405,
		dray.CodeMethodNotAllowed, "", "POST",
	},
	{"odd method", "BREW", "/v1/tools", "", nil, 405, dray.CodeMethodNotAllowed, "", "GET"},

	{"cancel with a body", "POST", "/v1/invocations/" + someID + "/cancel", `{"why":"x"}`, nil, 400, dray.CodeInvalidRequest, "/why", ""},
	{"workspace id", "POST", "/v1/workspaces/a%20b/up", "", nil, 400, dray.CodeInvalidRequest, "", ""},
	{
		"workspace folder", "POST", "/v1/workspaces/%2Fa%2F..%2Fb/up", "", nil, 400,
		dray.CodeInvalidRequest, "", "..",
	},
	{"workspace body", "POST", "/v1/workspaces/app/up", `{"force":true}`, nil, 400, dray.CodeInvalidRequest, "/force", ""},
	{"workspace variables", "POST", "/v1/workspaces/app/up", `{"local_env":{"A":"b"}}`, nil, 400, dray.CodeInvalidRequest, "/local_env", ""},
	{"sync without paths", "POST", "/v1/sync", `{"workspace":"/w"}`, nil, 400, dray.CodeInvalidRequest, "/paths", "1000"},
	{"sync of no paths", "POST", "/v1/sync", `{"workspace":"/w","paths":[]}`, nil, 400, dray.CodeInvalidRequest, "/paths", "1000"},
	{"sync of an empty path", "POST", "/v1/sync", `{"workspace":"/w","paths":["/a",""]}`, nil, 400, dray.CodeInvalidRequest, "/paths/1", ""},
	{"sync without a workspace", "POST", "/v1/sync", `{"paths":["/a"]}`, nil, 400, dray.CodeInvalidRequest, "/workspace", ""},
	{"sync with an unknown member", "POST", "/v1/sync", `{"workspace":"/w","paths":["/a"],"force":true}`, nil, 400, dray.CodeInvalidRequest, "/force", ""},
	{"sync with an invalid direction", "POST", "/v1/sync", `{"workspace":"/w","paths":["/a"],"direction":"up"}`, nil, 400, dray.CodeInvalidRequest, "/direction", ""},
	{"sync with an invalid on_refused", "POST", "/v1/sync", `{"workspace":"/w","paths":["/a"],"on_refused":"ask"}`, nil, 400, dray.CodeInvalidRequest, "/on_refused", ""},
	{"sync of numbers", "POST", "/v1/sync", `{"workspace":"/w","paths":[1]}`, nil, 400, dray.CodeInvalidRequest, "/paths/0", ""},
	{"sync of a relative workspace", "POST", "/v1/sync", `{"workspace":"w","paths":["/a"]}`, nil, 400, dray.CodeInvalidRequest, "/workspace", ""},
	{"sync with a parameter", "POST", "/v1/sync?wait_ms=1", `{"workspace":"/w","paths":["/a"]}`, nil, 400, dray.CodeInvalidRequest, "", ""},
	{"sync without its tool", "POST", "/v1/sync", `{"workspace":"/w","paths":["/a"]}`, nil, 404, dray.CodeUnknownTool, "", ""},
	{"paths without a workspace", "POST", "/v1/paths", `{"direction":"to_host","paths":["/a"]}`, nil, 400, dray.CodeInvalidRequest, "/workspace", ""},
	{"paths without direction", "POST", "/v1/paths", `{"workspace":"/w","paths":["/a"]}`, nil, 400, dray.CodeInvalidRequest, "/direction", ""},
	{"paths with an invalid direction", "POST", "/v1/paths", `{"workspace":"/w","direction":"up","paths":["/a"]}`, nil, 400, dray.CodeInvalidRequest, "/direction", ""},
	{"no paths", "POST", "/v1/paths", `{"workspace":"/w","direction":"to_host"}`, nil, 400, dray.CodeInvalidRequest, "/paths", ""},
	{"paths with ..", "POST", "/v1/paths", `{"workspace":"/w","direction":"to_host","paths":["/a","/a/../b"]}`, nil, 400, dray.CodeInvalidInput, "/paths/1", ".."},
	{"paths with NUL", "POST", "/v1/paths", `{"workspace":"/w","direction":"to_host","paths":["/a\u0000"]}`, nil, 400, dray.CodeInvalidInput, "/paths/0", "NUL"},
}

func labels(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = `"l` + strings.Repeat("x", i) + `":""`
	}
	return strings.Join(all, ",")
}

// Every refusal is a problem as in the contract, and has no effect.
func TestRefusals(t *testing.T) {
	d := start(t, nil)
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			a := d.do(c.method, c.path, c.body, c.headers...)
			p := a.problem(t)
			if a.status != c.status || p.Code != c.code {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if p.Type != "about:blank" || p.Status != a.status || p.Title != http.StatusText(a.status) ||
				p.Detail == "" || p.Hint == "" {
				t.Errorf("incomplete problem: %s", a.body)
			}
			if c.pointer != "" && (len(p.Errors) == 0 || p.Errors[0].Pointer != c.pointer) {
				t.Errorf("pointer %s is missing in %s", c.pointer, a.body)
			}
			if !strings.Contains(p.Detail+p.Hint, c.contains) {
				t.Errorf("%q is missing in %s", c.contains, a.body)
			}
			if (a.status == 405) != (a.header.Get("Allow") != "") {
				t.Errorf("Allow: %q", a.header.Get("Allow"))
			}
			if len(a.body) > 2000 {
				t.Errorf("the problem has %d bytes", len(a.body))
			}
		})
	}
	if n := d.audit.len(); n != 0 {
		t.Errorf("%d calls were accepted", n)
	}
}

func TestRefusalListsAllViolations(t *testing.T) {
	d := start(t, nil)
	p := d.do("POST", "/v1/invocations", `{"tool":"a b","cwd":"..","timeout_seconds":0}`).problem(t)
	var pointers []string
	for _, e := range p.Errors {
		pointers = append(pointers, e.Pointer)
	}
	if strings.Join(pointers, " ") != "/tool /cwd /timeout_seconds" ||
		!strings.Contains(p.Detail, "2 more") {
		t.Errorf("%+v", p)
	}
}

// An input that violates the schema of the tool is refused before the call is accepted (RT-04).
func TestInputViolatesSchema(t *testing.T) {
	d := start(t, func(p *fakeDeps) {
		p.checkInput = func(json.RawMessage) error {
			e := dray.Errorf(dray.CodeInvalidInput, "argv is missing").WithHint("see the schema")
			e.Details = []dray.Detail{{Pointer: "/input/argv", Message: "is missing"}}
			return e
		}
	})
	for path, body := range map[string]string{"/v1/invocations": `{"tool":"exec"}`, "/v1/route": `{"tool":"exec","input":{}}`} {
		a := d.do("POST", path, body)
		if p := a.problem(t); a.status != 400 || p.Code != dray.CodeInvalidInput ||
			p.Errors[0].Pointer != "/input/argv" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if d.audit.len() != 0 {
		t.Error("a call was accepted")
	}
}

// A contradiction in the request is refused; an environment that does not exist ends the call
// (RT-01).
func TestRouteErrors(t *testing.T) {
	for _, c := range []struct {
		code   dray.Code
		status int
	}{
		{dray.CodeRouteConflict, 422}, {dray.CodeInvalidRequest, 400}, {
			dray.CodeContainerNotFound,
			200,
		}, {dray.CodeWorkspaceNotFound, 200},
	} {
		err := dray.Errorf(c.code, "no route").WithHint("change it")
		d := start(t, func(p *fakeDeps) {
			p.route = func(dray.Invocation) (dray.Route, error) {
				return dray.Route{Candidates: []dray.Candidate{{Rule: "call.container", Reason: "x"}}}, err
			}
		})
		if a := d.do("POST", "/v1/invocations", callBody); a.status != c.status ||
			(d.audit.len() == 1) != (c.status == 200) {
			t.Errorf("%s: %d %s", c.code, a.status, a.body)
		}
		a := d.do("POST", "/v1/route", `{"tool":"exec"}`)
		want := `{"environment":"","rule":"","container":"","workspace":"","candidates":[{"rule":"call.container","reason":"x"}],` +
			`"error":{"code":"` + string(c.code) + `","message":"no route","hint":"change it"}}`
		if a.status != 200 || string(a.body) != want {
			t.Errorf("%s: route: %d %s", c.code, a.status, a.body)
		}
	}
}

func TestBlankValuesCountAsAbsent(t *testing.T) {
	var got dray.Invocation
	d := start(t, func(p *fakeDeps) {
		p.route = func(inv dray.Invocation) (dray.Route, error) { got = inv; return dray.Route{}, nil }
	})
	a := d.do("POST", "/v1/route", `{"tool":"exec","workspace":" ","container":"\t","cwd":".","plan":{"override":" ","fallback":"host"},"timeout_seconds":1e-12}`)
	if a.status != 200 || got.Workspace != "" || got.Container != "" || got.Cwd != "" ||
		got.Plan != (dray.PlanRouting{Fallback: "host"}) {
		t.Errorf("%d %+v", a.status, got)
	}
	if got.Timeout != 1 || string(got.Input) != "{}" || got.Principal != selfPrincipal {
		t.Errorf("%+v", got)
	}
}

func TestWorkspaceDirInPath(t *testing.T) {
	u := "/v1/workspaces/" + url.PathEscape("/home/me/my app") + "/stop"
	d := start(t, echoAction)
	if a := d.do("POST", u, ""); a.status != 200 || !strings.Contains(string(a.body), `"folder":"/home/me/my app"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Each refused request is counted once, with who sent it and its code (AU-09).
func TestRefusedRequestsAreCounted(t *testing.T) {
	d := start(t, nil)
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/v1/invocations", "{"},
		{"POST", "/v1/invocations", `{"tool":"none"}`},
		{"GET", "/v1/invocations/" + uuid.NewString(), ""},
		{"PUT", "/v1/invocations", ""},
		{"GET", "/none", ""},
		{"GET", "/healthz", ""},
		{"POST", "/v1/invocations", callBody},
	} {
		_ = d.do(request.method, request.path, request.body)
	}
	d.audit.mu.Lock()
	defer d.audit.mu.Unlock()
	want := []string{"invalid_request", "unknown_tool", "not_found", "method_not_allowed", "not_found"}
	for i := range want {
		want[i] = selfPrincipal + " " + want[i]
	}
	if !slices.Equal(d.audit.rejected, want) {
		t.Errorf("counted %q, want %q", d.audit.rejected, want)
	}
}
