package mcp

import (
	"testing"
	"time"

	"github.com/dray-dev/dray"
)

// A tool that failed has completed its task; only what the daemon lost or failed itself has failed
// (MC-04).
func TestNewTask_Status(t *testing.T) {
	begin := dray.NewRecord(dray.Invocation{ID: "a", Tool: "shell"}, time.Now())
	ended := func(reason dray.Reason, code dray.Code) dray.Record {
		rec := begin
		rec.Status, rec.Reason = dray.StatusFailed, reason
		if code != "" {
			rec.Error = dray.Errorf(code, "why")
		}
		return rec
	}
	for name, c := range map[string]struct {
		rec     dray.Record
		want    taskStatus
		isError bool
	}{
		"running":     {rec: begin, want: taskWorking},
		"exited":      {rec: ended(dray.ReasonExited, ""), want: taskCompleted},
		"timeout":     {rec: ended(dray.ReasonTimeout, ""), want: taskCompleted, isError: true},
		"denied":      {rec: ended(dray.ReasonDenied, dray.CodeDenied), want: taskCompleted, isError: true},
		"cancelled":   {rec: ended(dray.ReasonCancelled, ""), want: taskCancelled},
		"interrupted": {rec: ended(dray.ReasonInterrupted, ""), want: taskFailed},
		"internal":    {rec: ended(dray.ReasonUnavailable, dray.CodeInternal), want: taskFailed},
	} {
		t.Run(name, func(t *testing.T) {
			got := newTask(c.rec, 1000)
			if got.Status != c.want {
				t.Fatalf("the status is %s, want %s", got.Status, c.want)
			}
			if (got.Result != nil) != (c.want == taskCompleted) ||
				(got.Error != nil) != (c.want == taskFailed) {
				t.Errorf("result %v, error %v", got.Result, got.Error)
			}
			if got.Result != nil && got.Result.IsError != c.isError {
				t.Errorf("isError is %v", got.Result.IsError)
			}
			if got.Error != nil && (got.Error.Code != codeInternal || got.Error.Message == "") {
				t.Errorf("the error is %+v", got.Error)
			}
			created := createdTask(c.rec)
			if created.ResultType != "task" || created.Result != nil || created.Error != nil {
				t.Errorf("when it is created: %+v", created)
			}
		})
	}
}
