package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/policy"
)

// Deny is stronger than ask, ask than allow; an error and the lack of a match deny (SE-04).
func TestEffects(t *testing.T) {
	const permit = `permit (principal, action == Action::"call", resource)`
	for name, c := range map[string]struct {
		text string
		want policy.Effect
	}{
		"permit":             {permit + ";", policy.Allow},
		"ask":                {permit + `; @ask("why") ` + permit + ";", policy.Ask},
		"forbid":             {permit + `; @ask("why") ` + permit + "; forbid (principal, action, resource);", policy.Deny},
		"no match":           {permit + " when { context.opaque };", policy.Deny},
		"error":              {permit + "; " + permit + " when { 9223372036854775807 + 1 == 0 };", policy.Deny},
		"error of an ask":    {permit + `; @ask("x") ` + permit + " when { 9223372036854775807 + 1 == 0 };", policy.Deny},
		"another principal":  {`permit (principal == Principal::"uid:0", action == Action::"call", resource);`, policy.Deny},
		"the same principal": {`permit (principal == Principal::"uid:1000", action == Action::"call", resource);`, policy.Allow},
	} {
		d := newEngine(t, c.text).Decide(t.Context(), shell(t, "ls"))
		if d.Effect != c.want || d.Effect != policy.Allow && len(d.Reasons) == 0 {
			t.Errorf("%s: %+v, want %s", name, d, c.want)
		}
	}
}

// Without files everything is allowed except what a tool says itself (RT-05).
func TestNoFiles(t *testing.T) {
	e, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	call := shell(t, "rm x")
	if d := e.Decide(t.Context(), call); d.Effect != policy.Allow {
		t.Errorf("%+v", d)
	}
	call.Tool.Capabilities.HumanApprovalRequired = true
	if d := e.Decide(t.Context(), call); d.Effect != policy.Ask {
		t.Errorf("%+v", d)
	}
}

// A tool that is denied whatever its input is not listed (SE-04).
func TestDecideList(t *testing.T) {
	const permit = `permit (principal, action == Action::"call", resource);`
	for name, c := range map[string]struct {
		text string
		want policy.Effect
	}{
		"permitted":             {permit, policy.Allow},
		"permitted sometimes":   {`permit (principal, action == Action::"call", resource) when { context.opaque };`, policy.Allow},
		"forbidden":             {permit + `forbid (principal, action, resource == Tool::"shell");`, policy.Deny},
		"forbidden sometimes":   {permit + `forbid (principal, action == Action::"call", resource) when { context.opaque };`, policy.Allow},
		"forbidden by a name":   {permit + `forbid (principal, action == Action::"call", resource) when { resource.name == "shell" };`, policy.Deny},
		"hidden":                {permit + `forbid (principal, action == Action::"list", resource);`, policy.Deny},
		"of another principal":  {`permit (principal == Principal::"uid:0", action, resource);`, policy.Deny},
		"permitted another one": {`permit (principal, action, resource == Tool::"exec");`, policy.Deny},
	} {
		d := newEngine(t, c.text).DecideList("uid:1000", &dray.Tool{Name: "shell"})
		if d.Effect != c.want {
			t.Errorf("%s: %+v, want %s", name, d, c.want)
		}
	}
}

// The default policies (SE-04).
func TestDefault(t *testing.T) {
	e, err := policy.New(policy.Options{Files: []string{policy.Default}})
	if err != nil {
		t.Fatal(err)
	}
	host := func(c dray.Call) dray.Call { c.Route.Environment = dray.KindHost; return c }
	env := func(c dray.Call) dray.Call { c.Invocation.Env = map[string]string{"LD_PRELOAD": "x"}; return c }
	lint := callOf(t, "lint", struct{}{})
	unsafe := callOf(t, "mine", map[string]string{})
	unsafe.Tool.Capabilities.Unsafe = true
	reading := callOf(t, "read_file", map[string]string{})
	reading.Tool.Capabilities.ReadOnly = true
	for name, c := range map[string]struct {
		call dray.Call
		want policy.Effect
	}{
		"container": {shell(t, "make"), policy.Allow}, "host": {host(shell(t, "ls")), policy.Ask},
		"variable of a declared one": {env(lint), policy.Ask}, "variable": {env(shell(t, "ls")), policy.Allow},
		"variable, host": {host(env(shell(t, "ls"))), policy.Ask}, "unsafe": {unsafe, policy.Ask},
		"read": {host(reading), policy.Allow}, "declared": {callOf(t, "lint", struct{}{}), policy.Allow},
		"declared, host": {host(callOf(t, "lint", struct{}{})), policy.Ask},
	} {
		if name == "read" {
			c.call.Tool.StartsProcess = false
		}
		if d := e.Decide(t.Context(), c.call); d.Effect != c.want {
			t.Errorf("%s: %+v, want %s", name, d, c.want)
		}
	}
}

// What allows a call is no reason to ask about it (RT-05).
func TestReasonsOfApproval(t *testing.T) {
	e := newEngine(t, `permit (principal, action, resource);`)
	tool := &dray.Tool{Name: "deploy", Capabilities: dray.ToolCapabilities{HumanApprovalRequired: true}}
	d := e.Decide(t.Context(), dray.Call{Tool: tool, Invocation: dray.Invocation{Tool: "deploy"}})
	want := "tool deploy requires that a human approves each call"
	if d.Effect != policy.Ask || len(d.Policies) != 0 || len(d.Reasons) != 1 || d.Reasons[0] != want {
		t.Errorf("%+v", d)
	}
}

// A file with a mistake is refused, also one with a misspelled annotation: @aks would allow what
// @ask asks about (SE-04).
func TestFilesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"permit (principal, action, resource":                                                    "not valid Cedar",
		"\n\npermit (principal, action == Action::\"call\", resource) when { context.nothing };": ":3: policy policy1 does not fit",
		`permit (principal, action == Action::"run", resource);`:                                 "does not fit",
		"": "has no policy",
		`@id("a") permit (principal, action, resource); @id("a") permit (principal, action, resource);`: "two policies",
		`@ask("x") forbid (principal, action, resource);`:                                               "a forbid with @ask",
		`@aks("x") permit (principal, action, resource);`:                                               "the annotation @aks",
		`@reason("x") permit (principal, action, resource);`:                                            "a permit with @reason",
		"permit (principal, action, resource)\n@id(\"x\") forbid (principal, action, resource);":        `a.cedar:2: is not valid Cedar: "@" is where ";" is expected`,
		"permit (principal, action, resource)":                                                          `the file ends where ";" is expected`,
		`permit (principal, action, resource) when { true and true };`:                                  `"and" is where "}" is expected`,
		"permit (principal, action, resource)\nwhen { principal == 'a' };":                              "a.cedar:2: is not valid Cedar: column ",
		"permit (principal, action, resource\n, };":                                                     `a.cedar:2: is not valid Cedar: "}" is where ")" is expected`,
	} {
		file := filepath.Join(t.TempDir(), "a.cedar")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := policy.New(policy.Options{Files: []string{file}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for _, name := range []string{"/nonexistent", "~/a.cedar"} {
		if _, err := policy.New(policy.Options{Files: []string{name}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// A command of a session is opaque: earlier ones chose what its names mean (SE-04).
func TestFacts_Session(t *testing.T) {
	for _, session := range []string{"", "s"} {
		c := callOf(t, "shell", map[string]string{"command": "ls", "session": session})
		if f := policy.FactsOf(t.Context(), c, nil); f.Opaque != (session != "") {
			t.Errorf("session %q: opaque is %v", session, f.Opaque)
		}
	}
}
