package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

func newRules(t testing.TB, opts Options) *Rules {
	t.Helper()
	r, invalid := New(opts)
	for _, err := range invalid {
		t.Fatalf("pattern %d: %v (%s)", err.Index, err, err.Fix)
	}
	return r
}

// collector receives a redacted stream.
type collector struct {
	bytes.Buffer

	raw int64 // bytes of the stream before redaction
}

func (c *collector) Write(p []byte) (int, error) {
	c.raw += int64(len(p))
	return c.Buffer.Write(p)
}

func (c *collector) WriteMark(mark []byte, size int64) error {
	c.raw += size
	_, err := c.Buffer.Write(mark)
	return err
}

// inParts redacts a text that arrives in parts of the sizes that next returns.
func inParts(t testing.TB, r *Redactor, s string, next func() int) string {
	t.Helper()
	var out collector
	filter := r.Stream(&out)
	for rest := s; rest != ""; {
		n := min(len(rest), max(next(), 1))
		if _, err := filter.Write([]byte(rest[:n])); err != nil {
			t.Fatal(err)
		}
		if held := filter.Buffered(); held > maxSpan+MaxMatch+MaxMatch/8 {
			t.Fatalf("%d bytes are held", held)
		}
		rest = rest[n:]
	}
	if err := filter.Close(); err != nil {
		t.Fatal(err)
	}
	if out.raw != int64(len(s)) {
		t.Errorf("%d of %d bytes are accounted for", out.raw, len(s))
	}
	return out.String()
}

const canary = "canary-7f3Q/9+x"

func callRedactor(t testing.TB, opts Options, values ...string) *Redactor {
	t.Helper()
	env := map[string]string{}
	for i, v := range values {
		env[fmt.Sprintf("V%d_TOKEN", i)] = v
	}
	opts.Names = append(opts.Names, "*_token")
	return newRules(t, opts).ForCall(dray.Invocation{Env: env}, nil)
}

// A secret is found in each of its forms, wherever the stream is split (AU-07).
func TestStream_SplitEverywhere(t *testing.T) {
	quoted, _ := json.Marshal("x" + canary + "\"y")
	const foreign = "pässw/örtlich-😀\n"
	forms := map[string]string{
		"plain":  "a " + canary + " b",
		"twice":  canary + canary,
		"json":   string(quoted),
		"url":    "?q=" + url.QueryEscape(canary) + "&r=1",
		"path":   "/" + url.PathEscape(canary) + "/",
		"hex":    hex.EncodeToString([]byte("ab" + canary)),
		"upper":  strings.ToUpper(hex.EncodeToString([]byte("ab" + canary))),
		"base64": base64.StdEncoding.EncodeToString([]byte(canary)),
		"shift1": base64.StdEncoding.EncodeToString([]byte("1" + canary + "23")),
		"shift2": base64.URLEncoding.EncodeToString([]byte("12" + canary + "3")),

		"ASCII JSON":         `"p\u00e4ssw/\u00f6rtlich-\ud83d\ude00\n"`,
		"ASCII JSON in JSON": `"\"p\\u00e4ssw/\\u00f6rtlich-\\ud83d\\ude00\\n\""`,
		"slashes":            `"pässw\/örtlich-😀\n"`,
		"ASCII and slashes":  `"p\u00e4ssw\/\u00f6rtlich-\ud83d\ude00\n"`,
		"upper-case JSON":    `"p\u00E4ssw/\u00F6rtlich-\uD83D\uDE00\n"`,
		"upper-case slashes": `"p\u00E4ssw\/\u00F6rtlich-\uD83D\uDE00\n"`,
		"upper-case in JSON": `"\"p\\u00E4ssw/\\u00F6rtlich-\\uD83D\\uDE00\\n\""`,
		".NET":               `"\u0022\u003Cp\u00E4ss\u002B\u0027\u003E\u0026"`,
	}
	r := callRedactor(t, Options{}, canary, foreign, `"<päss+'>&`)
	for name, text := range forms {
		t.Run(name, func(t *testing.T) {
			whole := r.Text(text)
			if !strings.Contains(whole, markPrefix) {
				t.Fatalf("nothing is replaced in %q", whole)
			}
			for i := 1; i < len(text); i++ {
				sizes := []int{i, len(text)}
				got := inParts(t, r, text, func() int { n := sizes[0]; sizes = sizes[1:]; return n })
				if got != whole {
					t.Errorf("split at %d: %q, want %q", i, got, whole)
				}
			}
			if got := inParts(t, r, text, func() int { return 1 }); got != whole {
				t.Errorf("byte by byte: %q, want %q", got, whole)
			}
		})
	}
}

// The same secret has the same mark, another one or another key has not (AU-07).
func TestMarks(t *testing.T) {
	r := callRedactor(t, Options{Key: []byte{1}}, canary, "another-secret")
	mark := r.Text(canary)
	if !markPattern.MatchString(mark) || len(mark) != len(markPrefix)+markDigits+1 {
		t.Fatalf("mark %q", mark)
	}
	if got := r.Text("-" + canary + "-"); got != "-"+mark+"-" {
		t.Errorf("%q has another mark than %q", got, mark)
	}
	if got := r.Text(mark + " again"); got != mark+" again" {
		t.Errorf("a mark was redacted: %q", got)
	}
	if r.Text("another-secret") == mark {
		t.Error("two secrets have one mark")
	}
	if callRedactor(t, Options{Key: []byte{2}}, canary).Text(canary) == mark {
		t.Error("two keys give one mark")
	}
}

func TestPatterns(t *testing.T) {
	long := strings.Repeat("Ab3", 20)
	const key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA0000\n1111==\n" +
		"-----END RSA PRIVATE KEY-----"
	for _, test := range []struct {
		pattern, text, want string
	}{
		{"s3cret", "a s3cret b", "a * b"},
		{"s3cret|b", "a s3cret b", "a * *"},
		{`pin=(?P<secret>\d+)`, "pin=1234;pin=5", "pin=*;pin=*"},
		{`\bab+\b`, "xabb abb abbx", "xabb * abbx"},
		{`^k.*$`, "ok\nkey 1\nno k", "ok\n*\nno k"},
		{`(?i)pass\w+`, "PASSword1 b", "* b"},
		{`é+x`, "aééx", "a*"},
		{"builtin:aws", "AKIAIOSFODNN7EXAMPLE xAKIAIOSFODNN7EXAMPLE", "* xAKIAIOSFODNN7EXAMPLE"},
		{"builtin:github", "t=ghp_" + long + ".", "t=*."},
		{"builtin:github", "github_pat_" + long, "*"},
		{"builtin:slack", "xoxb-1234567890-abc", "*"},
		{"builtin:jwt", "a eyJhbGciOiJI.eyJzdWIiOi.c2ln b", "a * b"},
		{"builtin:authorization", "Authorization: Bearer " + long + "\n", "Authorization: Bearer *\n"},
		{"builtin:authorization", "authorization: basic dTpw", "authorization: basic *"},
		{"builtin:url", "https://u:p%40ss@host/x http://host:80/", "https://u:*@host/x http://host:80/"},
		{"builtin:private_key", "a\n" + key + "\nb", "a\n*\nb"},
		{"builtin:private_key", "a\n" + key[:52] + "\nand more", "a\n*\nand more"},
		{
			"builtin:private_key", `{"k":"` + strings.ReplaceAll(key, "\n", `\n`) + `"}`,
			`{"k":"*"}`,
		},
		{"builtin:all", "xoxb-1234567890-abc AKIAIOSFODNN7EXAMPLE", "* *"},
	} {
		r := newRules(t, Options{Patterns: []string{test.pattern}}).ForCall(dray.Invocation{}, nil)
		for size := 1; size <= len(test.text); size++ {
			got := markPattern.ReplaceAllString(
				inParts(t, r, test.text, func() int { return size }), "*")
			if got != test.want {
				t.Errorf("%s in parts of %d bytes: %q, want %q", test.pattern, size, got, test.want)
			}
		}
	}
}

// A pattern is refused if it would match everywhere, or nowhere in a stream (CF-01).
func TestNew_Refused(t *testing.T) {
	for pattern, problem := range map[string]string{
		"a(":                              "is not a regular expression",
		"a*":                              "matches the empty text",
		`\b`:                              "matches the empty text",
		"^$":                              "matches the empty text",
		"":                                "matches the empty text",
		`\Aabc`:                           `uses \A`,
		`abc\z`:                           `uses \A or \z`,
		strings.Repeat("a", 5000):         "has 5000 bytes",
		strings.Repeat("[^x]{1,1000}", 9): "is too complex",
		"builtin:nothing":                 "is not a built-in pattern",
	} {
		_, invalid := New(Options{Patterns: []string{"fine", pattern}})
		if len(invalid) != 1 || invalid[0].Index != 1 || !strings.Contains(invalid[0].Problem, problem) ||
			invalid[0].Fix == "" {
			t.Errorf("%.20q: %v, want %q", pattern, invalid, problem)
		}
	}
	for _, name := range []string{"", "A=B", "A[B]"} {
		if _, invalid := New(Options{Names: []string{name}}); len(invalid) != 1 || !invalid[0].Name {
			t.Errorf("name %q: %v", name, invalid)
		}
	}
}

// Of a long value only the first bytes are searched for, so that it needs little memory.
func TestStream_LongValue(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	value := make([]byte, maxLiteral+100_000)
	for i := range value {
		value[i] = byte('a' + rng.IntN(26))
	}
	got := inParts(t, callRedactor(t, Options{}, string(value)), string(value),
		func() int { return 1 + rng.IntN(64<<10) })
	if rest := markPattern.ReplaceAllString(got, ""); rest != string(value[maxLiteral:]) {
		t.Errorf("%d bytes are left, want %d", len(rest), len(value)-maxLiteral)
	}
}

// Many values of one call do not displace those of the daemon, and cost no square.
func TestForCall_ManyValues(t *testing.T) {
	rules := newRules(t, Options{Names: []string{"*_TOKEN"}, Variables: []string{"A_TOKEN=" + canary}})
	input, err := json.Marshal(map[string]any{"list": make([]int, 100_000), "last": "last-value"})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for i := range 2 * maxValues {
		env[fmt.Sprintf("V%d_TOKEN", i)] = fmt.Sprintf("value-%d", i)
	}
	fields := []string{"/last"}
	for i := range 100_000 {
		fields = append(fields, fmt.Sprintf("/list/%d", i))
	}
	r := rules.ForCall(dray.Invocation{Env: env, Input: input}, fields)
	if got := r.Invocation(dray.Invocation{Input: input}).Input; bytes.Contains(got, []byte("0,")) {
		t.Error("a marked element is not replaced")
	}
	if got := r.Text(canary); got == canary {
		t.Error("the value of the daemon's variable is not replaced")
	}
}

// Only the end of a text that may begin a secret is held back, so a prompt appears at once (AU-07).
func TestStream_Held(t *testing.T) {
	r := callRedactor(t, Options{Patterns: []string{"builtin:all"}}, canary)
	var out collector
	filter := r.Stream(&out)
	for _, step := range []struct {
		text string
		held int
	}{
		{"root@box:~# ", 0}, {"ls", 0}, {"\r\n", 0}, {"$ can", 3}, {"dy", 0}, {" AKI", 3}, {"A0", 5}, {"b no", 0},
	} {
		_, _ = filter.Write([]byte(step.text))
		if got := filter.Buffered(); got != step.held {
			t.Errorf("after %q %d bytes are held, want %d", step.text, got, step.held)
		}
	}
	_, _ = filter.Write([]byte(" ghp_" + strings.Repeat("a", 36)))
	_ = filter.Flush()
	_, _ = filter.Write([]byte(" " + canary))
	_ = filter.Close()
	want := "root@box:~# ls\r\n$ candy AKIA0b no * *"
	if got := markPattern.ReplaceAllString(out.String(), "*"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The memory of a stream is bounded, whatever it contains.
func TestStream_Bounded(t *testing.T) {
	secret := strings.Repeat("a", 6)
	patterns := []string{`x[^y]*y`, "builtin:all"}
	r := callRedactor(t, Options{Patterns: patterns}, secret, strings.Repeat("long ", 4000))
	for _, text := range []string{
		"a", "x", "eyJ", "long ", "-----BEGIN PRIVATE KEY-----", "://u:", "x-----BEGIN A",
	} {
		s := strings.Repeat(text, 12_000/len(text))
		rng := rand.New(rand.NewPCG(1, 2))
		whole := inParts(t, r, s, func() int { return len(s) })
		got := inParts(t, r, s, func() int { return 1 + rng.IntN(5000) })
		if got != whole {
			t.Errorf("%q in parts differs from the whole", text)
		}
	}
}

// Marked fields of an input are replaced as a whole, and their values elsewhere (AU-07).
func TestForCall_Fields(t *testing.T) {
	input := json.RawMessage(`{"a": {"b": ["x", "` + canary + `"]}, "pin": 123456, "list":[1,{"k":"see-me"}],
		"text":"has ` + canary + ` and 123456", "short": "abc", "` + canary + `": 1.50}`)
	r := newRules(t, Options{}).ForCall(dray.Invocation{Input: input},
		[]string{"/a/b/1", "/pin", "/list/1", "/short"})
	inv := r.Invocation(dray.Invocation{
		Input: input, Cwd: "/" + canary, Env: map[string]string{"A": "b"},
		Context: dray.CallContext{Labels: map[string]string{"l": "see-me"}},
	})
	want := `{"a": {"b": ["x", "*"]}, "pin": "*", "list":[1,"*"],
		"text":"has * and *", "short": "*", "*": 1.50}`
	if got := markPattern.ReplaceAllString(string(inv.Input), "*"); got != want {
		t.Errorf("input %s, want %s", got, want)
	}
	if inv.Cwd == "/"+canary || inv.Context.Labels["l"] == "see-me" || inv.Env["A"] != "" {
		t.Errorf("invocation %+v", inv)
	}
	if got := r.Text("abc"); got != "abc" {
		t.Errorf("a value of 3 bytes is searched for: %q", got)
	}
}

// Names that are secrets are replaced, also short ones, and the rest of the input is not (AU-07).
func TestForCall_Names(t *testing.T) {
	input := json.RawMessage(`{"pins": {"hunter2": "of hunter2", "ab": "ab"}, "ab": 1}`)
	r := newRules(t, Options{}).ForCall(dray.Invocation{Input: input},
		[]string{dray.SecretName + "/pins/hunter2", dray.SecretName + "/pins/ab"})
	got := string(r.Invocation(dray.Invocation{Input: input}).Input)
	if want := `{"pins": {"*": "of *", "*": "ab"}, "ab": 1}`; markPattern.ReplaceAllString(got, "*") != want {
		t.Errorf("input %s, want %s", got, want)
	}
}

func TestResult(t *testing.T) {
	r := callRedactor(t, Options{}, canary)
	res := r.Result(dray.Result{
		Output: json.RawMessage(`{"a":"` + canary + `"}`),
		Error:  dray.Errorf(dray.CodeInternal, "failed: %s", canary).WithHint("see %s", canary),
		Route:  dray.Route{Candidates: []dray.Candidate{{Reason: canary}}},
		Metadata: dray.Metadata{
			Warnings: []string{canary}, Kill: &dray.KillReport{Survivors: dray.Survivors{Proven: true}},
		},
	})
	if b := fmt.Sprintf("%s %+v", res.Output, res); strings.Contains(b, canary) {
		t.Errorf("result %s", b)
	}
	if res.Error.Code != dray.CodeInternal || !res.Metadata.Kill.Survivors.Proven {
		t.Errorf("result %+v", res)
	}
}

// Without a secret nothing is filtered, so it costs nothing.
func TestForCall_Nothing(t *testing.T) {
	if r := newRules(t, Options{Names: []string{"*_KEY"}}).ForCall(
		dray.Invocation{Env: map[string]string{"PATH": "/usr/bin"}}, nil); r != nil {
		t.Errorf("redactor %+v", r)
	}
}

// FuzzStream checks that a stream in parts is redacted as the whole text is (AU-07).
func FuzzStream(f *testing.F) {
	f.Add([]byte("a canary-7f3Q/9+x b ghp_abc"), uint64(1), "s3[a-z]+")
	f.Add([]byte("://u:pw@h -----BEGIN PRIVATE KEY-----\nabcdefghijklmnopqrstuv\n"), uint64(2), "(?i)é|x+y")
	f.Add(bytes.Repeat([]byte("aaaaaab"), 3000), uint64(3), `\ba+`)
	f.Fuzz(func(t *testing.T, text []byte, seed uint64, pattern string) {
		r, invalid := New(Options{Patterns: []string{"builtin:all", pattern}})
		if len(invalid) > 0 {
			t.Skip()
		}
		redactor := r.redactor([]string{canary, "aaaaaa", "é\nline-of-sixteen-bytes\nx"})
		rng := rand.New(rand.NewPCG(seed, 0))
		most := 1 + rng.IntN(300)
		whole := redactor.unmarked(string(text))
		got := inParts(t, redactor, string(text), func() int { return rng.IntN(most) })
		if got != whole {
			t.Errorf("in parts %q, whole %q", got, whole)
		}
		if strings.Contains(whole, canary) {
			t.Errorf("a secret is left in %q", whole)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	line := []byte("2026-11-22T10:00:00Z INFO the server has handled a request of a client in 12ms\n")
	chunk := bytes.Repeat(line, 1+(64<<10)/len(line))[:64<<10]
	for name, opts := range map[string]Options{
		"literals":    {},
		"builtin":     {Patterns: []string{"builtin:all"}},
		"prefix":      {Patterns: []string{"sk-[0-9a-f]{32}"}},
		"first bytes": {Patterns: []string{`(?i)password=\S+`}},
		"any byte":    {Patterns: []string{`\w+@example`}},
	} {
		b.Run(name, func(b *testing.B) {
			r := newRules(b, opts).redactor([]string{canary, "another-secret"})
			if name != "literals" {
				r = newRules(b, opts).redactor(nil)
			}
			filter := r.Stream(&discard{})
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				_, _ = filter.Write(chunk)
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error)       { return len(p), nil }
func (discard) WriteMark(_ []byte, _ int64) error { return nil }

// BenchmarkRecord redacts what is recorded of a short call in a container.
func BenchmarkRecord(b *testing.B) {
	rules := newRules(b, Options{Patterns: []string{"builtin:all"}})
	inv := dray.Invocation{
		ID: "01a1fb74-9e73-7388-ae94-fd8a007814e9", Tool: "exec", Workspace: "/home/me/src/app",
		Input: json.RawMessage(`{"argv":["go","test","./..."]}`),
	}
	res := dray.Result{
		Route: dray.Route{Candidates: []dray.Candidate{
			{Rule: "call.container", Reason: "the call names no container"}, {Rule: "devcontainer.nearest"},
		}},
		Metadata: dray.Metadata{
			Container: &dray.ContainerMetadata{ID: strings.Repeat("a", 64), Image: "app:1", User: "me"},
			Mapping:   &dray.MappingReport{}, Kill: &dray.KillReport{},
		},
	}
	for b.Loop() {
		r := rules.ForCall(inv, nil)
		r.Invocation(inv)
		r.Route(res.Route)
		r.Result(res)
	}
}

func BenchmarkForCall(b *testing.B) {
	r := newRules(b, Options{Patterns: []string{"builtin:all"}, Names: []string{"*_TOKEN"}})
	inv := dray.Invocation{Env: map[string]string{"A_TOKEN": canary, "PATH": "/usr/bin"}}
	for b.Loop() {
		r.ForCall(inv, nil)
	}
}
