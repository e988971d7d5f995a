package agent

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/logging"
	"github.com/dray-dev/dray/internal/wire"
)

// A panic in a goroutine of the client, or in the connection of an agent, is an internal error with
// the id under which the log has the stack. It is not reported as a lost agent (EX-18).
func TestPanicIsLoggedUnderID(t *testing.T) {
	core, logs := observer.New(zapcore.ErrorLevel)
	log := zap.New(core)
	for name, err := range map[string]error{
		"in a goroutine": logging.RecoverPanics(log, "working", func() { panic("in a goroutine") }),
		"in the agent": (&agentProcess{env: &environment{conn: connector{log: log}}}).
			failedStart(&wire.Failed{Code: dray.CodeInternal, Message: "in the agent\nloss_test.go:1"}),
		"in the connection": connector{log: log}.lossError(fmt.Errorf("read: %w",
			&wire.PanicError{Value: "in the connection", Stack: []byte("loss_test.go")})),
	} {
		internal := dray.AsError(err)
		if internal == nil || internal.Code != dray.CodeInternal {
			t.Errorf("%s: got %+v", name, internal)
			continue
		}
		logged := false
		for _, entry := range logs.All() {
			fields := entry.ContextMap()
			id, _ := fields["id"].(string)
			logged = logged || id != "" && strings.Contains(internal.Hint, id) && fields["panic"] == name &&
				strings.Contains(fmt.Sprintf("%s", fields["stack"]), "loss_test.go")
		}
		if !logged {
			t.Errorf("%s: got %+v, and the log has %v", name, internal, logs.All())
		}
	}
	if err := logging.RecoverPanics(log, "working", func() {}); err != nil {
		t.Error(err)
	}
}
