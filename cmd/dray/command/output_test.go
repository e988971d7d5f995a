package command

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

func TestTable(t *testing.T) {
	tab := table{head: []string{"ID", "NAME", "MS"}}
	tab.add("1", "größer", "10.0")
	tab.add("22", "a\x1b[2Jb\nc", "")
	var out bytes.Buffer
	if err := tab.write(&out); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
ID  NAME          MS
1   größer        10.0
22  a\x1b[2Jb\nc
`, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestSections(t *testing.T) {
	head := section{}
	head.add("id", "1")
	head.add("left out", "")
	route := section{title: "route"}
	route.add("rule", "host\x1b[0m")
	route.add("environment", "host")
	var out bytes.Buffer
	err := writeSections(&out, []section{
		head,
		{title: "empty"},
		route,
		{title: "stdout", text: "a\nb\x1b[31m\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
id  1

route
  rule         host\x1b[0m
  environment  host

stdout
  a
  b\x1b[31m
`, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestProgress_NoTerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, 0)
	p.show("build", "step 1/2\x1b[1A")
	p.show("build", "step 1/2\x1b[1A")
	p.show("start", "")
	p.clear()
	if want := "dray: build: step 1/2\\x1b[1A\ndray: start\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestProgress_ShortWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, time.Second)
		p.show("connect", "")
		time.Sleep(900 * time.Millisecond)
		p.clear()
		time.Sleep(time.Minute)
		if out.Len() > 0 {
			t.Errorf("printed %q", out.String())
		}
	})
}

// How far a phase is, is printed on a terminal only, in one line, and after the delay.
func TestProgress_Count(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, file bytes.Buffer
		terminal := newProgress(&out, time.Second)
		terminal.terminal = true
		other := newProgress(&file, time.Second)
		for done := range int64(3) {
			terminal.count("verify", "events", done, 2)
			other.count("verify", "events", done, 2)
			time.Sleep(600 * time.Millisecond)
		}
		terminal.clear()
		other.clear()
		if want := "dray: verify: 2 of 2 events\r\x1b[K"; out.String() != want || file.Len() > 0 {
			t.Errorf("got %q and %q, want %q", out.String(), file.String(), want)
		}
	})
}

// An export shows on a terminal how much was read (AU-08).
func TestProgress_Export(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, time.Second)
		p.terminal = true
		in := &watchedReader{r: strings.NewReader(strings.Repeat("one\ntwo\n", 3)), progress: p}
		buf := make([]byte, 8)
		for range 3 {
			if _, err := in.Read(buf); err != nil {
				t.Fatal(err)
			}
			time.Sleep(600 * time.Millisecond)
		}
		p.clear()
		if want := "dray: export: 6 lines, 0.0 MB\r\x1b[K"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
}

func TestProgress_LongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, time.Second)
		p.show("find", "")
		p.show("build", "step 1/2")
		time.Sleep(2 * time.Second)
		p.show("build", "step 2/2")
		p.clear()
		if want := "dray: build: step 1/2\ndray: build: step 2/2\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	})
}

func TestProgress_Terminal(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, terminal: true}
	p.show("build", strings.Repeat("x", 100))
	p.show("build", "done")
	p.clear()
	p.clear()
	want := "dray: build: " + strings.Repeat("x", 65) + "…" + "\r\x1b[K" + "dray: build: done" +
		"\r\x1b[K"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestDeferredWriter(t *testing.T) {
	var out bytes.Buffer
	h := &deferredWriter{w: &out, limit: 4}
	for _, s := range []string{"ab", "cd"} {
		if _, err := h.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if out.Len() != 0 || h.passing {
		t.Errorf("passed %q before the limit", out.String())
	}
	for _, s := range []string{"e", "f"} {
		if _, err := h.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.flush(); err != nil || out.String() != "abcdef" {
		t.Errorf("passed %q, %v", out.String(), err)
	}
}

// A script that was cut off by a full disk is no success.
func TestCompletionToFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var stderr bytes.Buffer
		code := Execute(t.Context(), []string{"completion", shell}, nil, full, &stderr)
		if code != exitFailed || !strings.Contains(stderr.String(), "hint: free some space") {
			t.Errorf("%s: exit code %d: %s", shell, code, stderr.String())
		}
	}
}

// Lines fit the width, a cut cell ends with an ellipsis, and a colour takes no width. Rows that are
// written later get no second head (AU-08).
func TestTableFitsTerminal(t *testing.T) {
	tab := table{head: []string{"ID", endColumn, "COMMAND"}, width: 24, paint: paintEnd}
	var got strings.Builder
	for _, end := range []string{"succeeded", "exit 1"} {
		tab.add("1", end, "go test ./... \x1b[2J")
		if err := tab.write(&got); err != nil {
			t.Fatal(err)
		}
	}
	const want = "ID  END        COMMAND\n" +
		"1   \x1b[32msucceeded\x1b[0m  go test …\n" +
		"1   \x1b[31mexit 1\x1b[0m     go test …\n"
	if got.String() != want {
		t.Errorf("%q, want %q", got.String(), want)
	}
}

// A long code of one call does not take the command's place, and stays recognizable (AU-08).
func TestTableCutsLongEnds(t *testing.T) {
	tab := table{head: []string{"TIME", endColumn, "COMMAND"}, width: 50}
	tab.add("10:00:00", "workspace_untrusted", "go test -run TestEverything ./...")
	tab.add("10:00:01", "succeeded", "go vet")
	var got strings.Builder
	if err := tab.write(&got); err != nil {
		t.Fatal(err)
	}
	const want = "TIME      END             COMMAND\n" +
		"10:00:00  workspace_unt…  go test -run TestEveryt…\n" +
		"10:00:01  succeeded       go vet\n"
	if got.String() != want {
		t.Errorf("\n%swant\n%s", got.String(), want)
	}
}

// A list shows what a call did: its command, or the input of its tool (AU-08).
func TestCommandLine(t *testing.T) {
	for input, want := range map[string]string{
		`{"argv": ["go", "test", "a b"], "stdin": "x"}`: "go test 'a b'", `{"command": "ls | wc"}`: "ls | wc",
		`{ "path": "go.mod", "limit": 5 }`: `{"path":"go.mod","limit":5}`, `{"argv": 5}`: `{"argv":5}`,
		`{"command": ""}`: `{"command":""}`, `{}`: "-", ` null `: "-", "": "-",
		`{"text": "` + strings.Repeat("é", 200) + `"}`: `{"text":"` + strings.Repeat("é", 95) + "…",
	} {
		if got := commandLine(json.RawMessage(input)); got != want {
			t.Errorf("%s: %s, want %s", input, got, want)
		}
	}
}

// Of a table that is too wide, spare columns are left out and paths are cut at their beginning, so
// that the last column is visible; later rows have the same columns (AU-08).
func TestTableLeavesOutColumns(t *testing.T) {
	for width, want := range map[int]string{
		90: "TIME      WHERE            END     WORKSPACE  COMMAND\n" +
			"10:00:00  web-1            exit 1  /home/app  go test -run TestEverything ./...\n" +
			"10:00:01  /home/me/src/ap  exit 1  /home/app  go vet\n",
		54: "TIME      WHERE       END     COMMAND\n" +
			"10:00:00  web-1       exit 1  go test -run TestEveryt…\n" +
			"10:00:01  …me/src/ap  exit 1  go vet\n",
	} {
		tab := table{head: []string{"TIME", "WHERE", "END", "WORKSPACE", "COMMAND"}, width: width}
		tab = tab.leaveOut("WORKSPACE")
		var got strings.Builder
		for _, row := range [][]string{
			{"10:00:00", "web-1", "exit 1", "/home/app", "go test -run TestEverything ./..."},
			{"10:00:01", "/home/me/src/ap", "exit 1", "/home/app", "go vet"},
		} {
			tab.add(row...)
		}
		if err := tab.write(&got); err != nil {
			t.Fatal(err)
		}
		if got.String() != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got.String(), want)
		}
	}
}

// On a terminal of 80 columns the lists show what ran and what happened, with ids that commands
// take (AU-08).
func TestListsOnTerminal(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if out, err := home.dray(t, "exec", "--", "echo", "the command is visible").CombinedOutput(); err != nil {
		t.Fatal(string(out), err)
	}
	shown := func(args ...string) string {
		r, terminal := onTerminal(t, home.dray(t, args...))
		text := readUntil(t, terminal, "")
		if code := r.exit(t); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
		for line := range strings.Lines(text) {
			plain := regexp.MustCompile("\x1b\\[[0-9;]*[mK]").ReplaceAllString(strings.TrimSpace(line), "")
			if n := utf8.RuneCountInString(plain); n > 80 {
				t.Errorf("%v: a line of %d characters: %s", args, n, plain)
			}
		}
		return text
	}
	list := shown("audit", "list")
	if !strings.Contains(list, "echo 'the command is v") {
		t.Errorf("audit list shows\n%s", list)
	}
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}`).FindString(list)
	if record := shown("audit", "show", id); !strings.Contains(record, "the command is visible") {
		t.Errorf("audit show %s shows\n%s", id, record)
	}
	if events := shown("audit", "events"); !strings.Contains(events, "succeeded, exited 0") {
		t.Errorf("audit events shows\n%s", events)
	}
	shown("tools")
}
