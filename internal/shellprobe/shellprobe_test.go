package shellprobe

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Only what the shell prints between the markers is its environment.
func TestParseOutput(t *testing.T) {
	const mark = "dray-0123"
	for name, c := range map[string]struct {
		out  string
		want []string
		ok   bool
	}{
		"plain": {mark + "A=1\x00B=2\x00" + mark, []string{"A=1", "B=2"}, true},
		"the shell's folder": {
			mark + "A=1\x00PWD=/\x00OLDPWD=/x\x00" + mark,
			[]string{"A=1", "OLDPWD=/x"},
			true,
		},
		"banner before":    {"welcome\nX=evil\x00\n" + mark + "A=1\x00" + mark, []string{"A=1"}, true},
		"banner after":     {mark + "A=1\x00" + mark + "bye\nX=evil\x00", []string{"A=1"}, true},
		"lines in a value": {mark + "A=1\nB=2\x00" + mark, []string{"A=1\nB=2"}, true},
		"mark in a value": {
			mark + "A=" + mark + "\x00B=2\x00" + mark,
			[]string{"A=" + mark, "B=2"},
			true,
		},
		"empty":              {mark + mark, nil, true},
		"no mark":            {"A=1\x00", nil, false},
		"one mark":           {mark + "A=1\x00", nil, false},
		"nothing":            {"", nil, false},
		"marks that overlap": {mark[:len(mark)-1] + mark, nil, false},
	} {
		got, err := Probe{marker: mark}.ParseOutput([]byte(c.out))
		if (err == nil) != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func FuzzParseOutput(f *testing.F) {
	f.Add([]byte("mA=1\x00m"), "m")
	f.Fuzz(func(t *testing.T, out []byte, mark string) {
		env, err := Probe{marker: mark}.ParseOutput(out)
		for _, kv := range env {
			if kv == "" || strings.ContainsRune(kv, 0) || err != nil || !bytes.Contains(out, []byte(kv)) {
				t.Errorf("%q", kv)
			}
		}
	})
}

// A real shell runs the probe, with and without cat, and each probe has a marker of its own
// (EX-07).
func TestProbeWithShell(t *testing.T) {
	for _, kind := range []string{"", "none", "no such kind"} {
		if _, ok := New(kind); ok {
			t.Errorf("%q has a probe", kind)
		}
	}
	for _, path := range []string{"/usr/bin:/bin", "/nowhere"} {
		q, ok := New("loginShell")
		other, _ := New("loginShell")
		if !ok || q == other {
			t.Fatalf("got %+v and %+v", q, other)
		}
		argv := q.Argv("/bin/sh", `while read -r line; do :; done </dev/null; printf 'A=1\0PATH=x\0'`)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = []string{"A=1", "PATH=" + path, "HOME=/"}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if env, err := q.ParseOutput(out); err != nil || !slices.Contains(env, "A=1") {
			t.Errorf("PATH %s: got %q, %v", path, env, err)
		}
	}
}
