package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/api"
	"github.com/dray-dev/dray/internal/call"
)

// A receipt from the daemon verifies by its public key; others than the owner and the operator get
// none, and only an operator may verify the log (AU-06, SE-06).
func TestReceiptsAndCheckpoints(t *testing.T) {
	dir := t.TempDir()
	d, end := withAuditStore(t, dir)
	defer end()
	rec := d.do("POST", "/v1/invocations", `{"tool":"exec","input":{}}`).record(t)
	key, err := audit.PublicKey(dir + "/audit.db")
	if err != nil {
		t.Fatal(err)
	}
	if a := d.do("GET", "/v1/audit/checkpoint", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	} else if c, err := key.Open(a.body); err != nil || c.Size != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	before := d.do("GET", "/v1/audit/checkpoint", "").body
	d.do("POST", "/v1/invocations", `{"tool":"exec","input":{}}`).record(t)
	if a := d.do("GET", "/v1/audit/checkpoint?old=2", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	} else if _, c, err := key.VerifyConsistency(a.body, before); err != nil || c.Size != 4 {
		t.Errorf("%+v, %v", c, err)
	}
	for query, bodies := range map[string]bool{"": true, "?body=true": true, "?body=false": false} {
		a := d.do("GET", "/v1/audit/receipt/"+rec.ID+query, "")
		r, _, err := key.VerifyReceipt(a.body)
		if err != nil || len(r.Events) != 2 || (r.Events[0].Body != nil) != bodies {
			t.Errorf("%q: %d %s, %v", query, a.status, a.body, err)
		}
	}
	for path, status := range map[string]int{
		"checkpoint?old=0": 200, "checkpoint?old=4": 200, "checkpoint?old=5": 400,
		"checkpoint?old=-1": 400, "checkpoint?old=x": 400, "checkpoint?old=": 400,
		"receipt/" + strings.Repeat("0", 36): 404, "receipt/x": 404, "verify": 200,
		"receipt/019a7b2c-0000-7000-8000-000000000001": 404, "receipt/" + rec.ID + "?body=x": 400,
	} {
		if a := d.do("GET", "/v1/audit/"+path, ""); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// blockingProver verifies until the request ends.
type blockingProver struct {
	noProver
	began, ended chan struct{}
}

func (p blockingProver) Verify(ctx context.Context) (audit.Report, error) {
	p.began <- struct{}{}
	<-ctx.Done()
	p.ended <- struct{}{}
	return audit.Report{}, ctx.Err()
}

// The log is verified by one request at a time, and no longer than its client waits (AU-06).
func TestVerifyRunsOnce(t *testing.T) {
	p := blockingProver{began: make(chan struct{}), ended: make(chan struct{})}
	d := start(t, func(deps *fakeDeps) { deps.config = func(c *api.Config) { c.Prover = p } })
	for range 2 {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			req := d.request("GET", "/v1/audit/verify", "").WithContext(ctx)
			_, err := d.client.Do(req) //nolint:bodyclose // it fails
			left <- err
		}()
		<-p.began
		a := d.do("GET", "/v1/audit/verify", "")
		if a.status != 429 || a.problem(t).Code != dray.CodeBusy || a.header.Get("Retry-After") == "" {
			t.Errorf("during a run: %d %v %s", a.status, a.header, a.body)
		}
		leave()
		<-p.ended
		if err := <-left; err == nil {
			t.Error("the request that its client left has a response")
		}
	}
}

// A user who was let in gets no receipt of calls of others, and may not verify the log (SE-06).
func TestProofsOfOthers(t *testing.T) {
	dir := t.TempDir()
	d, end := withAuditStore(t, dir)
	id := d.do("POST", "/v1/invocations", `{"tool":"exec","input":{}}`).record(t).ID
	end()
	s, _, err := audit.Open(t.Context(), audit.Options{
		Path: dir + "/audit.db", CapturesDir: dir + "/captures",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if receipt, err := s.Receipt(t.Context(), "uid:1", id, false); err == nil {
		t.Errorf("the receipt of another principal:\n%s", receipt)
	}
	if err := (call.Access{UID: 5}).CheckOperator("uid:1", "verify the audit log"); err == nil {
		t.Error("uid:1 is an operator")
	}
}
