package api_test

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
)

// An export has a call in each line, and only calls that the caller may see (AU-08).
func TestExport(t *testing.T) {
	d := start(t, nil)
	d.audit.put(dray.Record{ID: someID, Tool: "=cmd()", Principal: "token:ci", Input: json.RawMessage(
		`{"argv":["a","b\nc"]}`), Context: dray.CallContext{Labels: map[string]string{"b": "2", "a": "1"}}})
	d.audit.put(dray.Record{ID: "other", Tool: "exec", Principal: "token:other"})
	a := d.doAs("token:ci", "GET", "/v1/audit/export?since=2026-01-02T03:04:05Z", "")
	var rec dray.Record
	if err := json.Unmarshal(a.body, &rec); err != nil || a.status != 200 || rec.ID != someID ||
		!strings.HasSuffix(string(a.body), "}\n") || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d %s %v", a.status, a.body, err)
	}
	if d.audit.listed.Since.IsZero() || d.audit.listed.Principal != "token:ci" {
		t.Errorf("the filters are %+v", d.audit.listed)
	}
	a = d.doAs("token:ci", "GET", "/v1/audit/export?format=csv", "")
	rows, err := csv.NewReader(strings.NewReader(string(a.body))).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d %s %v", a.status, a.body, err)
	}
	row := map[string]string{}
	for i, column := range rows[0] {
		row[column] = rows[1][i]
	}
	if row["tool"] != "'=cmd()" || row["command"] != `["a","b\nc"]` || row["labels"] != "a=1\nb=2" {
		t.Errorf("%q", row)
	}
}

// An export that fails before its first call is an error, and a later failure breaks the connection
// (AU-08).
func TestExportFails(t *testing.T) {
	failed := dray.Errorf(dray.CodeAuditUnavailable, "the disk is gone")
	for _, format := range []string{"jsonl", "csv"} {
		d := start(t, nil)
		d.audit.exportErr = failed
		if a := d.do("GET", "/v1/audit/export?format="+format, ""); a.status != 503 {
			t.Errorf("%s: %d %s", format, a.status, a.body)
		}
		d.audit.put(dray.Record{ID: someID, Tool: strings.Repeat("x", 1<<20), Principal: selfPrincipal})
		resp, err := d.client.Do(d.request("GET", "/v1/audit/export?format="+format, ""))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d, read until %v", format, resp.StatusCode, err)
		}
	}
}

// A client that leaves its export is no fault of the daemon, and fills no log (AU-09).
func TestExportToClientThatLeaves(t *testing.T) {
	d := start(t, nil)
	d.audit.put(dray.Record{ID: someID, Tool: strings.Repeat("x", 16<<20), Principal: selfPrincipal})
	resp, err := d.client.Do(d.request("GET", "/v1/audit/export", ""))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	must(t, d.server.Shutdown(t.Context()))
	if n := d.logs.FilterMessage("export ended early").Len(); n > 0 {
		t.Errorf("%d warnings", n)
	}
}

// Statistics are those of the calls that the caller may see (AU-08).
func TestStatsOfCaller(t *testing.T) {
	d := start(t, nil)
	a := d.doAs("token:ci", "GET", "/v1/audit/stats?by=tool&reason=timeout", "")
	const want = `{"items":[{"key":"exec","calls":2,"failed":1,"p50_ms":1.5,"p99_ms":null,"bytes":0}]}`
	if a.status != 200 || string(a.body) != want || d.audit.listed.Principal != "token:ci" ||
		d.audit.listed.Reason != dray.ReasonTimeout {
		t.Errorf("%d %s of %+v", a.status, a.body, d.audit.listed)
	}
}

// Calls are followed with the number of their event, for the calls of the caller, until the daemon
// shuts down, which does not wait for the reader (AU-08).
func TestFollowedCalls(t *testing.T) {
	d := start(t, nil)
	resp, err := d.client.Do(d.request("GET", "/v1/audit/export?follow=1&after=41", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	line, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, `{"seq":42,"id":"`+someID+`","tool":"exec"`) ||
		resp.Header.Get("Dray-Audit-Seq") != "41" {
		t.Errorf("%v %q %v", resp.Header, line, err)
	}
	if d.audit.begun {
		t.Error("begins are followed unasked")
	}
	also, err := d.client.Do(d.request("GET", "/v1/audit/export?follow=1&begun=1&status=running", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer also.Body.Close()
	// the header is sent before the log is read
	if _, err := bufio.NewReader(also.Body).ReadString('\n'); err != nil || !d.audit.begun {
		t.Errorf("with begins: %s, %v", also.Status, err)
	}
	must(t, d.server.Shutdown(t.Context()))
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the shutdown: %q %v", rest, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
