package pathmapper_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/pathmapper"
)

func listed(paths []dray.MappedPath) []string {
	var list []string
	for _, p := range paths {
		list = append(list, fmt.Sprintf("%s %s -> %s", p.Pointer, p.From, p.To))
	}
	return list
}

// Paths in the strings of texts become the container's, each once and listed. Other members stay
// (PM-16).
func TestInputTexts(t *testing.T) {
	t.Parallel()
	m := layout(t)
	for _, c := range []struct {
		name, in, out string
		mapped        []string
	}{
		{"whole", `{"argv":["/home/me/app/x"]}`, `{"argv":["/workspace/x"]}`, []string{"/input/argv/0 /home/me/app/x -> /workspace/x"}},
		{
			"option", `{"argv":["go","-C=/home/me/app/x","-I/srv/shared"]}`,
			`{"argv":["go","-C=/workspace/x","-I/workspace/lib/shared"]}`,
			[]string{
				"/input/argv/1 /home/me/app/x -> /workspace/x",
				"/input/argv/2 /srv/shared -> /workspace/lib/shared",
			},
		},
		{
			"command", `{"argv":"cat /home/me/app/x; ls \"/data/a b\" >file:///data/y|/home/me/app:/data"}`,
			`{"argv":"cat /workspace/x; ls \"/mnt/big data/a b\" >file:///mnt/big%20data/y|/workspace:/mnt/big data"}`,
			[]string{
				"/input/argv /home/me/app/x -> /workspace/x", "/input/argv /data/a b -> /mnt/big data/a b",
				"/input/argv /data/y -> /mnt/big%20data/y", "/input/argv /home/me/app -> /workspace",
				"/input/argv /data -> /mnt/big data",
			},
		},
		{"other words", `{"argv":["x/home/me/app","/home/me/application","http://h/home/me/app"]}`, "", nil},
		{"dot dot", `{"argv":["cat /home/me/app/../x"]}`, "", nil},
		{"hidden", `{"argv":["cat /home/me/app/node_modules/x"]}`, "", nil},
		{"another member", `{"env":["cat /home/me/app/x"],"deep":{"argv":"cat /home/me/app/x"}}`, "", nil},
		{"escaped name", `{"\u0061rgv":["cat \u002fhome/me/app"]}`, `{"\u0061rgv":["cat /workspace"]}`, []string{"/input/argv/0 /home/me/app -> /workspace"}},
	} {
		if c.out == "" {
			c.out = c.in
		}
		for _, mode := range []dray.MappingMode{dray.MapDefault, dray.MapSchema, dray.MapNone} {
			opts := pathmapper.Options{Mode: mode, Texts: []string{"argv"}, Pointer: "/input"}
			out, rep, err := m.Input(jsontext.Value(c.in), opts)
			if err != nil || string(out) != c.out || !slices.Equal(listed(rep.Mapped), c.mapped) {
				t.Errorf("%s, mode %q: %s, %v\nmapped %q", c.name, mode, out, err, listed(rep.Mapped))
			}
			if len(rep.Mapped) == len(c.mapped) && mode != dray.MapDefault {
				if found := m.TextPaths(jsontext.Value(c.in), opts); !slices.Equal(listed(found), c.mapped) {
					t.Errorf("%s: found %q", c.name, listed(found))
				}
			}
		}
	}
}

// A whole path that the heuristic maps is not explained, and one with ".." is refused as ever
// (PM-05, PM-16).
func TestInputTextsAndHeuristic(t *testing.T) {
	t.Parallel()
	m := layout(t)
	opts := pathmapper.Options{Texts: []string{"argv"}, Pointer: "/input"}
	found := m.TextPaths(jsontext.Value(`{"argv":["/home/me/app/x","a=/home/me/app/y"]}`), opts)
	if want := []string{"/input/argv/1 /home/me/app/y -> /workspace/y"}; !slices.Equal(listed(found), want) {
		t.Errorf("found %q", listed(found))
	}
	_, _, err := m.Input(jsontext.Value(`{"argv":["/home/me/app/../x:/home/me/app"]}`), opts)
	if dray.CodeOf(err) != dray.CodePathInvalid {
		t.Errorf("error %v", err)
	}
	// the report is bounded, and everything is rewritten
	long := `{"argv":"` + strings.Repeat("/home/me/app/x ", 20_000) + `"}`
	out, rep, err := m.Input(jsontext.Value(long), opts)
	if err != nil || len(rep.Mapped) != 10_000 || strings.Contains(string(out), "/home") ||
		len(rep.Errors) != 1 {
		t.Errorf("%d mapped, %v, %v", len(rep.Mapped), rep.Errors, err)
	}
}

// FuzzInputTexts checks that a text in an input becomes what the Rewriter makes of it, and the
// original text again on its way out (PM-16).
func FuzzInputTexts(f *testing.F) {
	m := layout(f)
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, given []byte) {
		text := strings.ToValidUTF8(string(spell(given)), "?")
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		opts := pathmapper.Options{Mode: dray.MapNone, Texts: []string{"command"}}
		out, rep, err := m.Input(jsontext.Value(`{"command":`+string(quoted)+`}`), opts)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Command string }
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		want, n := m.RewriteText(pathmapper.ToContainer, []byte(text))
		if got.Command != string(want) ||
			int64(len(rep.Mapped)) != min(n, 10_000) && len(rep.Errors) == 0 {
			t.Fatalf("%q became %q instead of %q, %d listed of %d", text, got.Command, want,
				len(rep.Mapped), n)
		}
		// hosts' text that comes from a container text comes back to it
		if !comesBack([]byte(text)) {
			return
		}
		there, _ := m.RewriteText(pathmapper.ToHost, []byte(text))
		quoted, _ = json.Marshal(string(there))
		out, _, err = m.Input(jsontext.Value(`{"command":`+string(quoted)+`}`), opts)
		if err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(out, &got)
		if got.Command != text {
			t.Fatalf("%q came back as %q", text, got.Command)
		}
	})
}

func BenchmarkInputTexts(b *testing.B) {
	m := layout(b)
	raw := jsontext.Value(`{"argv":["go","test","-C=/home/me/app/x","-run","Test","./..."]}`)
	for name, texts := range map[string][]string{"off": nil, "on": {"argv"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _, _ = m.Input(raw, pathmapper.Options{Texts: texts, Pointer: "/input"})
			}
		})
	}
}
