package executortest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// The bytes of argv arrive unchanged (EX-04).
func testArgv(t *testing.T, h Harness) {
	odd := []string{"", " ", "$HOME `id` \"'\\", "a\nb\n", "1.0", "1e3", "0x10", "--", "-e", "ü", "*", "{a,b}", "%s\\n", "\x01\x7f"}
	if h.caps().ExactSurvivors { // the engine's API takes text alone
		odd = append(odd, "\xff\xfe", "\xc3")
	}
	r := random(t)
	for range h.rounds() {
		b := bytes.ReplaceAll(randomBytes(r, 1+r.IntN(40)), []byte{0}, []byte{1})
		if !h.caps().ExactSurvivors {
			for i := range b {
				b[i] = b[i]&0x7f | 1
			}
		}
		odd = append(odd, string(b))
	}
	got := finish(h.start(t, dray.ProcessSpec{Argv: append([]string{"/bin/sh", "-c", `printf '%s\000' "$@"`, "sh"}, odd...)}), nil)
	h.ok(t, got, 0)
	if want := strings.Join(odd, "\x00") + "\x00"; got.stdout != want {
		t.Errorf("got %q\nwant %q", got.stdout, want)
	}
	long := strings.Repeat("x", 100<<10)
	if got := h.sh(t, `printf %s ${#1}`, long); got.stdout != fmt.Sprint(len(long)) {
		t.Errorf("a long argument: %.100q", got.stdout)
	}
}

// stdin arrives unchanged, with its end (EX-03).
func testStdin(t *testing.T, h Harness) {
	r := random(t)
	for _, n := range []int{0, 1, 4097, 3<<20 + 7} {
		blob := randomBytes(r, n)
		sum := sha256.Sum256(blob)
		got := finish(h.shell(t, "sha256sum"), blob)
		h.ok(t, got, 0)
		if !strings.HasPrefix(got.stdout, hex.EncodeToString(sum[:])) {
			t.Errorf("%d bytes: got %q", n, got.stdout)
		}
	}
	blob := randomBytes(r, 1<<20)
	if got := finish(h.shell(t, "cat"), blob); got.stdout != string(blob) {
		t.Errorf("through and back: %d bytes of %d", len(got.stdout), len(blob))
	}
}

// A process need not read its stdin, whatever its size.
func testStdinUnread(t *testing.T, h Harness) {
	for range h.rounds() {
		got := withTimeout(t, 30*time.Second,
			func() processResult { return finish(h.shell(t, "exit 3"), make([]byte, 2<<20)) })
		h.ok(t, got, 3)
	}
}

// Both outputs are separate and exact, also when they exceed all buffers (CA-01).
func testStreams(t *testing.T, h Harness) {
	const n = 3 << 20
	got := h.sh(t, `head -c $1 /dev/zero | tr '\0' o & head -c $1 /dev/zero | tr '\0' e >&2; wait`, fmt.Sprint(n))
	h.ok(t, got, 0)
	if got.stdout != strings.Repeat("o", n) || got.stderr != strings.Repeat("e", n) {
		t.Errorf("got %d and %d bytes, want %d each and nothing of the other's", len(got.stdout),
			len(got.stderr), n)
	}
	r := random(t)
	for range h.rounds() {
		out, errOut := randomBytes(r, r.IntN(70000)), randomBytes(r, 1000)
		got := finish(h.shell(t, fmt.Sprintf("head -c %d; cat >&2", len(out))),
			append(append([]byte(nil), out...), errOut...))
		if !strings.HasPrefix(string(out)+string(errOut), got.stdout) ||
			got.stdout+got.stderr != string(out)+string(errOut) {
			t.Fatalf("got %d and %d bytes of %d and %d", len(got.stdout), len(got.stderr), len(out),
				len(errOut))
		}
	}
	// output that is read late is complete
	slow := h.shell(t, "head -c 1000000 /dev/zero; echo end >&2")
	var late []byte
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, slow.Output(dray.Stderr)) })
	_ = slow.Stdin().Close()
	late, _ = io.ReadAll(slow.Output(dray.Stdout))
	wg.Wait()
	if _, err := slow.Wait(); err != nil || len(late) != 1000000 {
		t.Errorf("got %d bytes, %v", len(late), err)
	}
}

func testOutputEnds(t *testing.T, h Harness) {
	for range h.rounds() {
		p := h.shell(t, "echo out; sleep 600")
		pidless := make([]byte, 4)
		if _, err := io.ReadFull(p.Output(dray.Stdout), pidless); err != nil ||
			string(pidless) != "out\n" {
			t.Fatalf("got %q, %v", pidless, err)
		}
		p.Stop(0)
		got := withTimeout(t, 20*time.Second, func() processResult { return collect(p) })
		if got.stdout != "" || got.err != nil {
			t.Fatalf("got %+v", got)
		}
		if n, err := p.Output(dray.Stdout).Read(pidless); n != 0 || err == nil {
			t.Fatalf("reading on gives %d bytes, %v", n, err)
		}
		if _, err := p.Stdin().Write(make([]byte, 1<<20)); err == nil {
			t.Fatal("an ended process accepts stdin")
		}
	}
}

func testManyAtOnce(t *testing.T, h Harness) {
	n := 64
	if !h.caps().ExactSurvivors {
		n = 8
	}
	var all sync.WaitGroup
	for i := range n {
		p := h.shell(t, `cat; exit $1`, fmt.Sprint(i))
		all.Go(func() {
			want := strings.Repeat(fmt.Sprintln(i), 5000)
			if got := finish(p, []byte(want)); got.stdout != want || got.exit.Code != i || got.err != nil {
				t.Errorf("call %d: %d bytes, %+v, %v", i, len(got.stdout), got.exit, got.err)
			}
		})
	}
	all.Wait()
}

// The call's variables override those of the environment.
func testEnvironment(t *testing.T, h Harness) {
	p := h.start(t, dray.ProcessSpec{
		Argv: []string{"/bin/sh", "-c", `tr '\0' '\n' </proc/self/environ; printf '%s|' "$MULTI" "$EMPTY" "$TERM"`},
		Env:  map[string]string{"MULTI": "a\nb = c", "EMPTY": "", "TERM": "of-the-call"},
	})
	got := finish(p, nil)
	h.ok(t, got, 0)
	if !strings.HasSuffix(got.stdout, "a\nb = c||of-the-call|") {
		t.Errorf("got %q", got.stdout)
	}
	lines := strings.Split(got.stdout, "\n")
	for _, want := range h.Set {
		if !slices.Contains(lines, want) {
			t.Errorf("%s is not set in\n%s", want, got.stdout)
		}
	}
	for _, name := range h.Unset {
		if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+"=") }) {
			t.Errorf("%s is set", name)
		}
	}
	for _, name := range []string{"PATH", "HOME", "TERM"} {
		if n := strings.Count("\n"+got.stdout, "\n"+name+"="); n != 1 {
			t.Errorf("%s is set %d times", name, n)
		}
	}
}

func testDir(t *testing.T, h Harness) {
	if got := h.sh(t, "pwd -P"); got.stdout != h.Dir+"\n" {
		t.Errorf("got %q, want %q", got.stdout, h.Dir)
	}
	h.ok(t, h.sh(t, `mkdir -p 'with  space/ü' && ln -sfn 'with  space' link`), 0)
	p := h.start(t, dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", "pwd -P"}, Dir: h.Dir +
		"/link/ü"})
	if got := finish(p, nil); got.stdout != h.Dir+"/with  space/ü\n" {
		t.Errorf("got %q", got.stdout)
	}
	p, err := h.Environment.Start(t.Context(),
		dray.ProcessSpec{Argv: []string{"/bin/sh", "-c", "pwd -P"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := finish(p, nil); got.stdout != h.caps().WorkspaceFolder+"\n" {
		t.Errorf("without a directory: got %q, want the workspace folder %q", got.stdout, h.caps().
			WorkspaceFolder)
	}
}

// A process starts in the directory that RealDir names, or not at all (SE-04).
func testRealDir(t *testing.T, h Harness) {
	h.ok(t, h.sh(t, `mkdir -p real/one real/two && ln -sfn real/one to && ln -sfn real via`), 0)
	one := h.Dir + "/real/one"
	if c := h.caps().Container; c != nil && c.Transport == "engine" { // it starts in RealDir itself
		p, err := h.Environment.Start(t.Context(), dray.ProcessSpec{
			Argv: []string{"/bin/sh", "-c", "pwd -P"}, Dir: h.Dir + "/real/two", RealDir: one,
		})
		if err != nil || finish(p, nil).stdout != one+"\n" {
			t.Errorf("the engine's exec starts elsewhere, or not: %v", err)
		}
		return
	}
	for dir, starts := range map[string]bool{
		one: true, h.Dir + "/to": true, h.Dir + "/via/one": true, h.Dir + "/via/../real/one/": true,
		h.Dir + "/real/two": false, h.Dir + "/real": false, h.Dir: false, "/": false,
		h.Dir + "/no/such": false,
	} {
		for _, argv := range [][]string{{"/bin/sh", "-c", "pwd -P"}, {"./no-such-program"}} {
			p, err := h.Environment.Start(t.Context(), dray.ProcessSpec{Argv: argv, Dir: dir, RealDir: one})
			switch {
			case err == nil && len(argv) == 1:
				t.Errorf("in %s a program that is missing starts", dir)
			case err == nil:
				if got := finish(p, nil); got.stdout != one+"\n" || !starts {
					t.Errorf("in %s it starts in %q", dir, got.stdout)
				}
			case starts && len(argv) == 1 && dray.CodeOf(err) == dray.CodeExecutableNotFound:
			case starts, dray.CodeOf(err) != dray.CodeBadCwd && dray.CodeOf(err) != dray.CodeDenied:
				t.Errorf("in %s: %v", dir, err)
			}
		}
	}
}

// User, group and supplementary groups are right (EX-07).
func testUser(t *testing.T, h Harness) {
	got := h.sh(t, `echo $(id -u) $(id -g) $(id -G); echo again >/dev/stderr; echo again >/dev/stdout`)
	h.ok(t, got, 0)
	if got.stdout != h.ID+"\nagain\n" || got.stderr != "again\n" {
		t.Errorf("got %q and %q, want %q; the streams can be opened by name", got.stdout, got.stderr,
			h.ID)
	}
}

// No fd above 2 is inherited; umask, signals and limits are those of a fresh exec; the process
// leads its own session and group (EX-16).
func testFreshProcess(t *testing.T, h Harness) {
	got := h.sh(t, `umask; while read -r name value; do case $name in SigBlk:|SigIgn:) echo $value;; esac; done </proc/self/status
		echo $(ls /proc/self/fd); echo $$; read -r stat </proc/$$/stat; set -- ${stat##*) }; echo $3 $4; ulimit -n; ulimit -c`)
	h.ok(t, got, 0)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != 8 {
		t.Fatalf("got %q", lines)
	}
	ignored := strings.TrimLeft(lines[2], "0")
	// 3 is of ls
	if lines[0] != "0022" || strings.Trim(lines[1], "0") != "" ||
		ignored != strings.TrimLeft(h.Ignored, "0") || lines[3] != "0 1 2 3" {
		t.Errorf("umask, blocked and ignored signals, descriptors are %q", lines[:4])
	}
	if want := lines[4] + " " + lines[4]; lines[5] != want {
		t.Errorf("process %s is in group and session %s", lines[4], lines[5])
	}
}
