package audit

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// A key belongs to one call of one principal, also when the call was interrupted and after a
// restart. A second call with the key does not run (RE-01).
func TestIdempotencyKeyIsClaimedOnce(t *testing.T) {
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	claim := &dray.Idempotency{Key: "k", Request: "0f"}
	inv := newInvocation("exec")
	_, err := s.begin(t.Context(), dray.Call{Invocation: inv, Idempotency: claim}, time.Now())
	must(t, err)
	second := dray.Call{Invocation: newInvocation("exec"), Idempotency: claim}
	_, err = s.Executor(mustNotRun(t)).Execute(t.Context(), second, dray.Discard)
	if dray.CodeOf(err) != dray.CodeAuditUnavailable {
		t.Errorf("the second call returns %v", err)
	}
	rec, request, err := s.Claimed(t.Context(), inv.Principal, "k")
	if err != nil || rec.ID != inv.ID || rec.Status != dray.StatusRunning || request != "0f" {
		t.Errorf("the key belongs to %+v, %q (%v)", rec, request, err)
	}
	if _, _, err := s.Claimed(t.Context(), "another", "k"); dray.CodeOf(err) != dray.CodeNotFound {
		t.Errorf("the key of another principal: %v", err)
	}
	must(t, s.Close(context.Background()))
	s, _ = reopen(t, opts)
	rec, request, err = s.Claimed(t.Context(), inv.Principal, "k")
	if err != nil || rec.ID != inv.ID || rec.Reason != dray.ReasonInterrupted || request != "0f" {
		t.Errorf("after a restart the key belongs to %+v, %q (%v)", rec, request, err)
	}
	checkLog(t, s)
	checkNoFindings(t, mustVerify(t, opts, nil))
}

// A key is made once, with mode 0600. A file that is no key is refused and stays.
func TestLoadHMACKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "k")
	first, err := LoadHMACKey(path)
	must(t, err)
	again, err := LoadHMACKey(path)
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	if !bytes.Equal(again, first) || len(first) != hmacKeySize || info.Mode() != 0o600 {
		t.Errorf("%x, then %x, mode %v", first, again, info.Mode())
	}
	must(t, os.WriteFile(path, []byte("short"), 0o600))
	if _, err := LoadHMACKey(path); err == nil {
		t.Error("a short key was accepted")
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
