package tool

import (
	"testing"

	"github.com/dray-dev/dray"
)

// Text is rewritten if the call, or else the tool, requests it, in a container and without a
// terminal (PM-10).
func TestTextRewriting(t *testing.T) {
	asks := func(yes bool) func(*dray.Call) {
		return func(c *dray.Call) { c.Invocation.RewriteText = &yes }
	}
	says := func(c *commandTool) { c.RewriteText = true }
	b := newFixture(t, command("plain", `pwd; pwd >&2`), command("rewrites", `pwd; pwd >&2`, says), command("both", `echo "{\"p\":\"$PWD\"}"`, asJSON, says))
	onHost := *b
	b.contain()
	for _, c := range []struct {
		name   string
		bench  *fixture
		tool   string
		change func(*dray.Call)
		paths  int64
		want   string
	}{
		{"nobody asks", b, "plain", func(*dray.Call) {}, -1, b.folder},
		{"the call asks", b, "plain", asks(true), 1, "/srv/app"},
		{"the tool asks", b, "rewrites", func(*dray.Call) {}, 1, "/srv/app"},
		{"the call refuses", b, "rewrites", asks(false), -1, b.folder},
		{"on the host", &onHost, "rewrites", asks(true), -1, b.folder},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := c.bench.call(t, c.tool, object{}, c.change)
			succeeded(t, res)
			for _, got := range []dray.StreamSummary{res.Stdout, res.Stderr} {
				paths := int64(-1)
				if got.Rewritten != nil {
					paths = got.Rewritten.Paths
				}
				if got.Text != c.want+"\n" || paths != c.paths || got.SHA256 != sum(b.folder+"\n") {
					t.Errorf("%q, %d paths, %+v", got.Text, paths, got)
				}
			}
		})
	}
	res := b.call(t, "both", object{})
	succeeded(t, res)
	if string(res.Output) != `{"p":"/srv/app"}` || res.Stdout.Text != "{\"p\":\"/srv/app\"}\n" {
		t.Errorf("output %s, text %s", res.Output, res.Stdout.Text)
	}
	wantMapped(t, res, "/output/p "+b.folder+" -> /srv/app")
	terminal := func(c *dray.Call) { c.Invocation.Terminal = &dray.TerminalSize{Columns: 80, Rows: 24} }
	res = b.call(t, "exec", object{"argv": []string{"pwd"}}, asks(true), terminal)
	succeeded(t, res)
	if res.Stdout.Text != b.folder+"\r\n" || res.Stdout.Rewritten != nil {
		t.Errorf("on a terminal: %+v", res.Stdout)
	}
}
