package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// events writes go test's events in short: "run T", "out T text", "pass T", and for the package
// "pass", "fail", "out - text".
func events(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		action, rest, _ := strings.Cut(line, " ")
		test, text, _ := strings.Cut(rest, " ")
		if action == "exit" {
			fmt.Fprintf(&b, `{"Action":"exit","Status":%s}`+"\n", rest)
			continue
		}
		if action == "out" {
			action = "output"
		}
		fmt.Fprintf(&b, `{"Action":%q,"Package":"p","Test":%q,"Output":%q}`+"\n", action, strings.TrimPrefix(test, "-"), text+"\n")
	}
	return b.String()
}

func TestCountGo(t *testing.T) {
	tests := map[string]struct {
		in       string
		want     suite
		failures []string
	}{
		"a test with subtests is its subtests": {
			in:   events("run A", "run A/x", "run A/y", "pass A/x", "pass A/y", "pass A", "pass", "exit 0"),
			want: suite{Passed: 2},
		},
		"a failed subtest is not counted again": {
			in: events("run A", "run A/x", "run A/y", "fail A/x", "pass A/y", "fail A", "fail",
				"exit 1"),
			want:     suite{Passed: 1, Failed: 1},
			failures: []string{"p A/x"},
		},
		"nor through a subtest with a slash in its name": {
			in:       events("run A", "run A/x/y", "fail A/x/y", "fail A", "fail", "exit 1"),
			want:     suite{Failed: 1},
			failures: []string{"p A/x/y"},
		},
		"a test may fail beside its subtests": {
			in:       events("run A", "run A/x", "pass A/x", "fail A", "fail", "exit 1"),
			want:     suite{Passed: 1, Failed: 1},
			failures: []string{"p A"},
		},
		"a package may fail without a test": {
			in:       events("run A", "pass A", "out - leaked a goroutine", "fail", "exit 1"),
			want:     suite{Passed: 1, Failed: 1},
			failures: []string{"p"},
		},
		"a package that was killed": {
			in:       events("run A", "pass A", "run B", "fail", "exit 1"),
			want:     suite{Passed: 1, Failed: 1},
			failures: []string{"p B did not finish"},
		},
		"a runner that fails alone": {
			in:       events("run A", "pass A", "pass", "exit 2"),
			want:     suite{Passed: 1, Failed: 1},
			failures: []string{"go test ended with status 2"},
		},
		"a runner that was cut off": {
			in:       events("run A"),
			want:     suite{Failed: 2},
			failures: []string{"p A did not finish", "go test was cut off"},
		},
		"a skip has its reason": {
			in: events("run A", "out A === RUN A", "out A a_test.go:1: needs cgroup 2", "skip A", "pass",
				"exit 0"),
			want: suite{Skipped: 1, Skips: []string{"p A: a_test.go:1: needs cgroup 2"}},
		},
		"a skip without a reason is told as one": {
			in: events("run A", "out A a_test.go:1:", "skip A", "run B", "skip B", "pass", "exit 0"),
			want: suite{Skipped: 2, Skips: []string{
				"p A: a_test.go:1: no reason given",
				"p B: no reason given",
			}},
		},
		"a skip for want of the engine is a failure": {
			in:       events("run A", "out A a_test.go:1: no engine answers", "skip A", "pass", "exit 0"),
			want:     suite{Failed: 1},
			failures: []string{"p A was skipped, though scripts/setup provides what it wants: a_test.go:1: no engine answers"},
		},
		"a gap that no set-up can close is a skip": {
			in: events("run A", "out A a_test.go:1: gap: only root can start an engine", "skip A", "pass",
				"exit 0"),
			want: suite{Skipped: 1, Skips: []string{"p A: a_test.go:1: gap: only root can start an engine"}},
		},
		"a package without tests is no skip": {
			in: events("skip", "exit 0"),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := countGo(strings.NewReader(tt.in), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Failures = tt.failures
			requireSuite(t, got, tt.want)
		})
	}
}

func TestCountGoRefusesWhatIsNotJSON(t *testing.T) {
	if _, err := countGo(strings.NewReader("go: cannot find main module\n"), io.Discard); err == nil {
		t.Fatal("text that is not JSON was accepted")
	}
}

// A failed test's output must reach the reader, a passed one's must not.
func TestCountGoPrintsFailures(t *testing.T) {
	var out bytes.Buffer
	in := events("run A", "out A quiet", "pass A", "run B", "out B loud", "fail B", "fail", "exit 1")
	if _, err := countGo(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "loud") || strings.Contains(got, "quiet") {
		t.Fatalf("printed %q", got)
	}
}

func TestCountRobot(t *testing.T) {
	const output = `<robot><suite name="s"><suite name="inner">
		<test name="a"><kw name="k"><status status="FAIL">caught</status></kw><status status="PASS">fine</status></test>
		<test name="b"><status status="FAIL">1 != 2&#10;more</status></test></suite>
		<test name="c"><status status="SKIP">needs root</status></test>
		<test name="d"><status status="SKIP">no engine</status></test>
		<test name="e"><status status="NOT RUN"></status></test>
		</suite></robot>`
	var got suite
	if err := countRobot(strings.NewReader(output), &got); err != nil {
		t.Fatal(err)
	}
	requireSuite(t, got, suite{
		Passed: 1, Failed: 3, Skipped: 1, Skips: []string{"c: needs root"},
		Failures: []string{
			"b: 1 != 2", "d was skipped, though scripts/setup provides what it wants: no engine", "e: ",
		},
	})
}

func TestCountRobotFileWithoutOutput(t *testing.T) {
	got := countRobotFile(filepath.Join(t.TempDir(), "output.xml"), 252, io.Discard)
	if got.Failed != 1 {
		t.Fatalf("%d failed, want 1", got.Failed)
	}
}

func TestTotal(t *testing.T) {
	tests := map[string]struct {
		suites []suite
		line   string
		err    error
	}{
		"all well": {
			[]suite{{Passed: 2, Skipped: 1, Skips: []string{"x"}}, {Passed: 3}},
			"5 passed, 0 failed, 1 skipped", nil,
		},
		"a failure": {
			[]suite{{Passed: 2}, {Failed: 1, Failures: []string{"y"}}},
			"2 passed, 1 failed, 0 skipped", errNotGreen,
		},
		"nothing ran": {[]suite{{}}, "0 passed, 0 failed, 0 skipped", errNotGreen},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "results")
			for _, s := range tt.suites {
				if err := appendSuite(path, s); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			err := run([]string{"total", path}, nil, &out)
			if !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if !strings.HasSuffix(out.String(), "\n"+tt.line+"\n") {
				t.Errorf("printed %q, want the last line %q", out.String(), tt.line)
			}
		})
	}
}

func requireSuite(t *testing.T, got, want suite) {
	t.Helper()
	if got.Passed != want.Passed || got.Failed != want.Failed || got.Skipped != want.Skipped {
		t.Errorf("%d passed, %d failed, %d skipped, want %d, %d, %d",
			got.Passed, got.Failed, got.Skipped, want.Passed, want.Failed, want.Skipped)
	}
	if !slices.Equal(got.Failures, want.Failures) {
		t.Errorf("failures %q, want %q", got.Failures, want.Failures)
	}
	if !slices.Equal(got.Skips, want.Skips) {
		t.Errorf("skips %q, want %q", got.Skips, want.Skips)
	}
}
