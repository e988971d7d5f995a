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

// The test binary, started with these variables, makes calls until it is killed.
const (
	crashDir   = "DRAY_TEST_CRASH_DIR"
	crashRound = "DRAY_TEST_CRASH_ROUND"
	crashSeed  = "DRAY_TEST_CRASH_SEED"
)

// crashID returns the id of a call, which determines its exit code and input.
func crashID(round, n int) string { return fmt.Sprintf("019a7b2c-0000-7000-9%03x-%012x", round, n) }

func crashCode(id string) int {
	n, err := strconv.ParseInt(id[24:], 16, 64)
	if err != nil {
		panic(err)
	}
	return int(n % 100)
}

// crashChild makes calls from several goroutines and prints "try ID" before a call, "ran ID" within
// it and "end ID" after it. Each line is one write, so a kill leaves complete lines.
func crashChild(dir string) {
	s, _, err := Open(context.Background(), options(dir))
	if err != nil {
		panic(err)
	}
	round, err := strconv.Atoi(os.Getenv(crashRound))
	if err != nil {
		panic(err)
	}
	log := func(step, id string) { _, _ = os.Stdout.WriteString(step + " " + id + "\n") }
	next := dray.ExecutorFunc(func(_ context.Context, call dray.Call, _ dray.Sink) (dray.Result,
		error,
	) {
		log("ran", call.Invocation.ID)
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
				log("try", inv.ID)
				if _, err := s.Executor(next).Execute(context.Background(), dray.Call{Invocation: inv},
					dray.Discard); err != nil {
					panic(err)
				}
				log("end", inv.ID)
			}
		})
	}
	wg.Wait()
}

// childLog is what a child printed about its calls.
type childLog struct{ tried, ran, ended map[string]bool }

// crash runs a child and kills it after the given number of lines.
func crash(t *testing.T, dir string, round, lines int) childLog {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, crashRound+"="+strconv.Itoa(round))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := childLog{tried: map[string]bool{}, ran: map[string]bool{}, ended: map[string]bool{}}
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ {
		step, id, _ := strings.Cut(scanner.Text(), " ")
		map[string]map[string]bool{
			"try": printed.tried, "ran": printed.ran,
			"end": printed.ended,
		}[step][id] = true
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
	return printed
}

// A process is killed twenty times at random points. Acknowledged calls are recorded, calls never
// tried are not, and every call has exactly one end (AU-01, AU-03).
func TestKilledProcessLosesNothing(t *testing.T) {
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
	before := map[string]string{} // reason of each call of the earlier rounds
	for round := range rounds {
		printed := crash(t, dir, round, random.IntN(600))
		s, found := reopen(t, options(dir))
		checkLog(t, s)
		after := reasons(t, s)
		checkRound(t, printed, before, after, found)
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
		t.Error("no call was killed between its begin and end records: the test proves nothing")
	}
}

// reasons returns the reason of each call, and checks that its other columns belong to it.
func reasons(t *testing.T, s *Store) map[string]string {
	t.Helper()
	rows, err := s.read.QueryContext(context.Background(), `SELECT id, reason, exit_code, input_sha256 IS NOT NULL FROM invocations`)
	must(t, err)
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
			t.Errorf("%s ended as %s with the code of another call", id, reason)
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

func checkRound(t *testing.T, printed childLog, before, after map[string]string, found int) {
	t.Helper()
	for id, reason := range before {
		if after[id] != reason {
			t.Errorf("lost: %s had ended as %s, now %q", id, reason, after[id])
		}
	}
	for id := range printed.ran {
		if after[id] == "" {
			t.Errorf("lost: %s ran and has no row", id)
		}
	}
	for id := range printed.ended {
		if after[id] != "exited" {
			t.Errorf("lost: the end of %s was acknowledged, its reason is %q", id, after[id])
		}
	}
	interrupted := 0
	for id, reason := range after {
		if before[id] != "" {
			continue
		}
		if !printed.tried[id] {
			t.Errorf("invented: %s was never tried", id)
		}
		if reason == "interrupted" {
			interrupted++
		}
	}
	if interrupted != found {
		t.Errorf("Open returns %d interrupted calls, there are %d", found, interrupted)
	}
}
