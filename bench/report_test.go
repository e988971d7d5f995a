package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// measured makes results in which each of the ways took always the same time.
func measured(took map[string]time.Duration) *results {
	var ws []way
	for _, name := range []string{wayDray, wayDockerExec, wayDevcontainer} {
		if _, ok := took[name]; ok {
			ws = append(ws, way{name: name})
		}
	}
	r := newResults(ws)
	for _, w := range ws {
		for _, c := range commands {
			r.of(w, c).add([]time.Duration{took[w.name], took[w.name]})
		}
	}
	return r
}

func TestTable(t *testing.T) {
	got := table([]string{"way", "p50"}, [][]string{{"a", "1"}, {"b", "2"}})
	want := "| way | p50 |\n| --- | --: |\n| a | 1 |\n| b | 2 |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.00 ms", 4560 * time.Microsecond: "4.56 ms", 9996 * time.Microsecond: "10.0 ms", 45600 * time.Microsecond: "45.6 ms",
		99960 * time.Microsecond: "100 ms", 1234 * time.Millisecond: "1234 ms",
	} {
		if got := millis(d); got != want {
			t.Errorf("%s is shown as %s, want %s", d, got, want)
		}
	}
}

func TestSerialTableComparesWithDray(t *testing.T) {
	r := measured(map[string]time.Duration{wayDray: 2 * time.Millisecond, wayDockerExec: 50 * time.Millisecond})
	got := serialTable(r, commands[0])
	for _, want := range []string{
		"| dray, HTTP | 2 | 2.00 ms | 2.00 ms | 2.00 ms to 2.00 ms | 1.00 | 1.00 |\n",
		"| `docker exec` | 2 | 50.0 ms | 50.0 ms | 50.0 ms to 50.0 ms | 25.0 | 25.0 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

func TestTargets(t *testing.T) {
	const ms = time.Millisecond
	tests := map[string]struct {
		took   map[string]time.Duration
		missed int
	}{
		"both are met":                {map[string]time.Duration{wayDray: 2 * ms, wayDockerExec: 31 * ms, wayDevcontainer: 201 * ms}, 0},
		"exactly is met":              {map[string]time.Duration{wayDray: 2 * ms, wayDockerExec: 30 * ms, wayDevcontainer: 200 * ms}, 0},
		"one is missed":               {map[string]time.Duration{wayDray: 2 * ms, wayDockerExec: 29 * ms, wayDevcontainer: 200 * ms}, 2},
		"both are missed":             {map[string]time.Duration{wayDray: 2 * ms, wayDockerExec: 29 * ms, wayDevcontainer: 199 * ms}, 4},
		"what was not measured fails": {map[string]time.Duration{wayDray: 2 * ms, wayDockerExec: 31 * ms}, 2},
		"nothing at all fails":        {nil, 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			verdicts := judge(measured(tt.took))
			text := verdictTable(verdicts)
			if got := strings.Count(text, "| **missed** |"); got != tt.missed {
				t.Errorf("%d are missed, want %d:\n%s", got, tt.missed, text)
			}
			if err := missed(verdicts, true, quiet); (err != nil) != (tt.missed > 0) {
				t.Errorf("with -check: %v", err)
			}
			if err := missed(verdicts, false, quiet); err != nil {
				t.Errorf("without -check: %v", err)
			}
		})
	}
}

func TestPublishKeepsTheText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	page := "# Title\n\nbefore\n\n" + beginMark + "\nold\n" + endMark + "\n\nafter\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "# Title\n\nbefore\n\n" + beginMark + "\n\nnew\n\n" + endMark + "\n\nafter\n"
	for range 2 { // a second run finds what the first wrote
		if err := publish(path, "new\n", nil); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestPublishRefusesAPageWithoutMarks(t *testing.T) {
	for _, page := range []string{"", "text\n", beginMark + "\n", endMark + "\n" + beginMark + "\n"} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := publish(path, "new\n", nil); !errors.Is(err, errMarks) {
			t.Errorf("page %q: %v", page, err)
		}
		if got, _ := os.ReadFile(path); string(got) != page {
			t.Errorf("page %q was changed to %q", page, got)
		}
	}
}

func TestPublishPrintsWithoutAPage(t *testing.T) {
	var out strings.Builder
	if err := publish("", "new\n", &out); err != nil || out.String() != "new\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
