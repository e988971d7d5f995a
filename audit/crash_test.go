package audit

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// The test binary, started with this variable, is a daemon that makes calls until it is killed.
const (
	crashDir   = "DRAY_TEST_CRASH_DIR"
	crashRound = "DRAY_TEST_CRASH_ROUND"
	crashSeed  = "DRAY_TEST_CRASH_SEED"
)

// crashID is the id of a call; the exit code and the input of the call follow from it.
func crashID(round, n int) string { return fmt.Sprintf("019a7b2c-0000-7000-9%03x-%012x", round, n) }

func crashCode(id string) int {
	n, err := strconv.ParseInt(id[24:], 16, 64)
	if err != nil {
		panic(err)
	}
	return int(n % 100)
}

// crashChild makes calls from many goroutines and says on stdout what it is about to do and what
// was done: "try ID" before a call, "ran ID" within it, "end ID" after it. Each line is one write,
// so a kill leaves whole lines.
func crashChild(dir string) {
	s, _, err := Open(context.Background(), options(dir))
	if err != nil {
		panic(err)
	}
	round, err := strconv.Atoi(os.Getenv(crashRound))
	if err != nil {
		panic(err)
	}
	say := func(word, id string) { _, _ = os.Stdout.WriteString(word + " " + id + "\n") }
	next := dray.ExecutorFunc(func(_ context.Context, call dray.Call, _ dray.Sink) (dray.Result,
		error,
	) {
		say("ran", call.Invocation.ID)
		return exited(crashCode(call.Invocation.ID)), nil
	})
	const callers = 16
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for n := caller; ; n += callers {
				inv := dray.Invocation{ID: crashID(round, n), Tool: "exec", Principal: "uid:0"}
				if n%7 == 0 {
					inv.Input = longJSON(maxInline + 1 + n)
				}
				say("try", inv.ID)
				if _, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv},
					dray.Discard); err != nil {
					panic(err)
				}
				say("end", inv.ID)
			}
		})
	}
	wg.Wait()
}

// said is what a child said of its calls.
type said struct{ tried, ran, ended map[string]bool }

// crash runs a child and kills it after so many lines.
func crash(t *testing.T, dir string, round, lines int) said {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, crashRound+"="+strconv.Itoa(round))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := said{tried: map[string]bool{}, ran: map[string]bool{}, ended: map[string]bool{}}
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ {
		word, id, _ := strings.Cut(scanner.Text(), " ")
		map[string]map[string]bool{"try": told.tried, "ran": told.ran, "end": told.ended}[word][id] = true
		if n == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok ||
		status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended by itself: %v", cmd.ProcessState)
	}
	return told
}

// AU-01, AU-03: a daemon is killed at any point of its traffic, twenty times over. What it
// acknowledged is there, what it never tried is not, and every call has exactly one end.
func TestCrash(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(crashSeed); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", crashSeed, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	before := map[string]string{} // how each call of the rounds before ended
	for round := range rounds {
		told := crash(t, dir, round, random.IntN(600))
		s, found := reopen(t, options(dir))
		checkTrail(t, s)
		after := reasons(t, s)
		checkRound(t, told, before, after, found)
		before = after
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	interrupted := 0
	for _, reason := range before {
		if reason == string(dray.ReasonInterrupted) {
			interrupted++
		}
	}
	t.Logf("%d calls, %d of them interrupted", len(before), interrupted)
	if interrupted == 0 {
		t.Error("no round caught a call between begin and end: the test shows nothing")
	}
}

// reasons gives why each call ended, and checks that what it recorded is its own.
func reasons(t *testing.T, s *Store) map[string]string {
	t.Helper()
	rows, err := s.read.QueryContext(context.Background(), `SELECT id, reason, exit_code, input_sha256 IS NOT NULL FROM invocations`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got := map[string]string{}
	for rows.Next() {
		var id, reason string
		var code *int
		var long bool
		if err := rows.Scan(&id, &reason, &code, &long); err != nil {
			t.Fatal(err)
		}
		if exited := reason == "exited"; exited != (code != nil) || exited && *code != crashCode(id) {
			t.Errorf("%s ended as %s with another call's code", id, reason)
		}
		if long {
			if rec := get(t, s, id); len(rec.Input) <= maxInline || len(rec.Metadata.Warnings) > 0 {
				t.Errorf("the input of %s is lost: %v", id, rec.Metadata.Warnings)
			}
		}
		got[id] = reason
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

func checkRound(t *testing.T, told said, before, after map[string]string, found int) {
	t.Helper()
	for id, reason := range before {
		if after[id] != reason {
			t.Errorf("lost: %s had ended as %s, now %q", id, reason, after[id])
		}
	}
	for id := range told.ran {
		if after[id] == "" {
			t.Errorf("lost: %s ran and has no row", id)
		}
	}
	for id := range told.ended {
		if after[id] != "exited" {
			t.Errorf("lost: the end of %s was acknowledged, it is %q", id, after[id])
		}
	}
	interrupted := 0
	for id, reason := range after {
		if before[id] != "" {
			continue
		}
		if !told.tried[id] {
			t.Errorf("invented: %s was never tried", id)
		}
		if reason == "interrupted" {
			interrupted++
		}
	}
	if interrupted != found {
		t.Errorf("Open tells of %d interrupted calls, there are %d", found, interrupted)
	}
}
