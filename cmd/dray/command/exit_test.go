package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/client"
)

func TestExitCodes(t *testing.T) {
	coded := func(c dray.Code) error { return fmt.Errorf("call: %w", dray.Errorf(c, "x")) }
	tests := map[string]struct {
		err        error
		want, tool int
	}{
		"done":                {nil, 0, 0},
		"said already":        {exitError(7), 7, 7},
		"usage":               {usagef("x"), 2, 125},
		"bad request":         {coded(dray.CodeInvalidRequest), 2, 125},
		"bad input":           {coded(dray.CodeInvalidInput), 2, 125},
		"no daemon":           {client.ErrNoDaemon, 3, 125},
		"silent daemon":       {client.ErrUnresponsive, 3, 125},
		"daemon does not run": {startError{dray.Errorf(dray.CodeInternal, "x")}, 3, 125},
		"denied":              {coded(dray.CodeDenied), 4, 125},
		"another's daemon":    {coded(dray.CodeUnauthorized), 4, 125},
		"untrusted":           {coded(dray.CodeWorkspaceUntrusted), 4, 125},
		"not found":           {coded(dray.CodeNotFound), 5, 125},
		"unknown tool":        {coded(dray.CodeUnknownTool), 5, 125},
		"no devcontainer":     {coded(dray.CodeNoDevcontainer), 5, 125},
		"no workspace":        {coded(dray.CodeWorkspaceNotFound), 5, 125},
		"no container":        {coded(dray.CodeContainerNotFound), 5, 125},
		"no engine":           {coded(dray.CodeEngineUnavailable), 1, 125},
		"audit unavailable":   {coded(dray.CodeAuditUnavailable), 1, 125},
		"defect":              {errors.New("x"), 1, 125},
		"interrupted":         {errInterrupted, 130, 130},
		"cancelled":           {context.Canceled, 130, 130},
		"interrupted start": {
			startError{dray.Errorf(dray.CodeInternal, "wait: %w", errInterrupted)},
			130, 130,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(tt.err); got != tt.want {
				t.Errorf("exit code %d, want %d", got, tt.want)
			}
			if got := toolExitCode(tt.err); got != tt.tool {
				t.Errorf("exit code of exec %d, want %d", got, tt.tool)
			}
		})
	}
}

// Every error code has an exit code here, so that the author of a new code must choose one.
func TestEveryCodeHasAnExitCode(t *testing.T) {
	byExitCode := map[int]string{
		exitUsage:  "invalid_request invalid_input",
		exitDenied: "denied unauthorized workspace_untrusted approval_required",
		exitNotFound: "not_found unknown_tool container_not_found workspace_not_found " +
			"no_devcontainer",
		exitFailed: "forbidden_host forbidden_origin method_not_allowed conflict too_large " +
			"unsupported_media_type sync_refused route_conflict idempotency_mismatch busy budget_exceeded internal audit_unavailable " +
			"shutting_down container_unavailable container_failed engine_unavailable helper_missing " +
			"executable_not_found not_executable bad_cwd bad_user path_invalid path_too_deep " +
			"output_invalid limit_exceeded disk_full agent_lost transfer_failed unsupported",
	}
	want := map[string]int{}
	for exit, codes := range byExitCode {
		for code := range strings.FieldsSeq(codes) {
			want[code] = exit
		}
	}
	source, err := os.ReadFile("../../../errors.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`Code\w+ +Code = "(\w+)"`).FindAllSubmatch(source, -1)
	if len(declared) != len(want) {
		t.Errorf("errors.go has %d codes, this test %d", len(declared), len(want))
	}
	for _, m := range declared {
		code := string(m[1])
		if exit, ok := want[code]; !ok || exitOfCode(dray.Code(code)) != exit {
			t.Errorf("exit code %d for %s, want %d", exitOfCode(dray.Code(code)), code, exit)
		}
	}
}

func TestRecordExitCodes(t *testing.T) {
	code := func(n int) *int { return &n }
	failed := func(c dray.Code) *dray.Error { return &dray.Error{Code: c} }
	tests := map[string]struct {
		rec  dray.Record
		want int
	}{
		"succeeded": {dray.Record{
			Status: dray.StatusSucceeded, Reason: dray.ReasonExited,
			ExitCode: code(0),
		}, 0},
		"its own code": {dray.Record{
			Status: dray.StatusFailed, Reason: dray.ReasonExited,
			ExitCode: code(3),
		}, 3},
		"its own 125": {dray.Record{
			Status: dray.StatusFailed, Reason: dray.ReasonExited,
			ExitCode: code(125),
		}, 125},
		"output invalid": {dray.Record{
			Status: dray.StatusFailed, Reason: dray.ReasonExited,
			ExitCode: code(0), Error: failed(dray.CodeOutputInvalid),
		}, 125},
		"signal": {dray.Record{
			Reason: dray.ReasonSignalled,
			Signal: &dray.Signal{Name: "SIGKILL", Number: 9},
		}, 137},
		"timeout":      {dray.Record{Reason: dray.ReasonTimeout}, 124},
		"idle timeout": {dray.Record{Reason: dray.ReasonIdleTimeout}, 124},
		"cancelled":    {dray.Record{Reason: dray.ReasonCancelled}, 130},
		"not found": {dray.Record{
			Reason: dray.ReasonStartFailed,
			Error:  failed(dray.CodeExecutableNotFound),
		}, 127},
		"not executable": {dray.Record{
			Reason: dray.ReasonStartFailed,
			Error:  failed(dray.CodeNotExecutable),
		}, 126},
		"no such folder": {
			dray.Record{Reason: dray.ReasonStartFailed, Error: failed(dray.CodeBadCwd)},
			125,
		},
		"denied": {dray.Record{Reason: dray.ReasonDenied, Error: failed(dray.CodeDenied)}, 125},
		"invalid": {
			dray.Record{Reason: dray.ReasonInvalid, Error: failed(dray.CodePathInvalid)},
			125,
		},
		"unavailable": {
			dray.Record{Reason: dray.ReasonUnavailable, Error: failed(dray.CodeAgentLost)},
			125,
		},
		"interrupted": {dray.Record{Reason: dray.ReasonInterrupted}, 125},
		"no memory":   {dray.Record{Reason: dray.ReasonOOM}, 137},
		"output limit": {
			dray.Record{Reason: dray.ReasonOutputLimit, Error: failed(dray.CodeDiskFull)},
			125,
		},
		"of later times": {dray.Record{Reason: "of later times"}, 125},
		"still running":  {dray.Record{Status: dray.StatusRunning}, 125},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := recordExitCode(tt.rec); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// A failed write of the output must not look like success.
func TestOutputError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{
		{"version"}, {"--version"}, {}, {"--help"}, {"help", "tools"}, {"tools", "lint", "--help"}, {"config"},
	} {
		var said bytes.Buffer
		if code := Execute(t.Context(), args, nil, full, &said); code != exitFailed ||
			!strings.Contains(said.String(), "no space left") {
			t.Errorf("%q: exit code %d: %s", args, code, said.String())
		}
	}
}
