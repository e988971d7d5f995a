package features

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// elicits is the _meta of a request whose client can ask its user.
var elicits = strings.Replace(plainMeta, `Capabilities":{}`,
	`Capabilities":{"elicitation":{"form":{}}}`, 1)

// question makes a call over MCP, and returns the state of the question about it and its body.
func (a *asking) question(to string) (state, body string) {
	a.t.Helper()
	body = plainCall("1", "deploy", fmt.Sprintf(`{"to":%q,"cwd":"%s/work"}`, to, a.root), elicits)
	resp := postMCP(a.t.Context(), a.t, a.daemon, "", "deploy", body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	found := requestState.FindSubmatch(text)
	if found == nil {
		a.t.Fatalf("the client's user is not asked: %s", text)
	}
	return string(found[1]), body
}

var requestState = regexp.MustCompile(`"requestState":"([^"]+)"`)

// answered returns the body of a request that answers a question.
func answered(body, state, action string) string {
	return strings.Replace(body, `"_meta":`, fmt.Sprintf(
		`"requestState":%q,"inputResponses":{"approval":{"action":%q,"content":{}}},"_meta":`,
		state, action), 1)
}

// A user who declines a call that another one has approved meanwhile has the last word on it
// (MC-05).
func TestApprovalDeclinedAfterApproval(t *testing.T) {
	a := startAsking(t, "")
	state, body := a.question("prod")
	id, _, _ := strings.Cut(state, ".")
	if status := a.decide(id, "approve"); status != http.StatusOK {
		t.Fatal(status)
	}
	resp := postMCP(t.Context(), t, a.daemon, "", "deploy", answered(body, state, "decline"))
	defer resp.Body.Close()
	if got := fmt.Sprint(readReply(t, resp).message); a.runs() != 0 || !strings.Contains(got, "declined") {
		t.Errorf("%d runs: %s", a.runs(), got)
	}
	a.steps(id, "pending", "approved")
}

// A call that waited for its approval while a reload forbade it does not run (SE-04).
func TestApprovalAfterPolicyHasChanged(t *testing.T) {
	dir := newDir(t)
	permit := "permit (principal, action, resource);\n"
	writeFiles(t, dir, map[string]string{"p.cedar": permit})
	a := startAsking(t, "policy: {files: ["+dir+"/p.cedar]}\n")
	got, err := a.call(t.Context(), "?wait_ms=0", a.deploy("prod"))
	if err != nil || got.status != http.StatusAccepted {
		t.Fatalf("%v: %s", err, got.raw)
	}
	waiting := got.id()
	var approval string
	for deadline := time.Now().Add(20 * time.Second); approval == ""; {
		if time.Now().After(deadline) {
			t.Fatal("the call does not wait for an approval")
		}
		approval, _ = getFrom(t, a.daemon, "/v1/invocations/"+waiting).at("/approval").(string)
	}
	writeFiles(t, dir, map[string]string{
		"p.cedar": permit + `forbid (principal, action == Action::"call", resource == Tool::"deploy");`,
	})
	if ran := a.dray(t.Context(), nil, "reload"); ran.code != 0 {
		t.Fatalf("reload: %s", ran.stderr)
	}
	if status := a.decide(approval, "approve"); status != http.StatusOK {
		t.Fatal(status)
	}
	end := getFrom(t, a.daemon, "/v1/invocations/"+waiting+"?wait_ms=20000")
	if end.at("/error/code") != "denied" || a.runs() != 0 {
		t.Errorf("%d runs: %s", a.runs(), end.raw)
	}
}

// In a container an approval is of a directory as it is called there, where no symlink leads
// elsewhere (SE-04).
func TestApprovalOfDirectoryInContainer(t *testing.T) {
	g := startGuarded(t)
	app := g.root + "/app"
	in := func(cwd, command string) map[string]any {
		body := g.body(app, "shell", map[string]any{"command": command})
		body["paths"], body["cwd"] = "container", cwd
		return body
	}
	g.runs(in("/tmp", "mkdir a b && ln -s a link"))
	for _, cwd := range []string{"/tmp/link", "/tmp/a"} {
		body := in(cwd, "eval 'pwd -P > /workspaces/app/"+cwd[5:]+"'")
		g.approve(g.pending(body))
		got, err := g.call(t.Context(), "", body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(app + "/" + cwd[5:])
		if ran := err == nil; ran != (cwd == "/tmp/a") || !ran && got.at("/error/code") != "bad_cwd" {
			t.Errorf("in %s, ran %v: %s", cwd, ran, got.raw)
		}
	}
}
