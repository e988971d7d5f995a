package container

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/wire"
)

// EX-18: a panic in a goroutine of the engine's client, and one in an agent's connection, are told
// as internal with an id that the log has with the stack; they are not told as a lost agent.
func TestDefectsHaveAnID(t *testing.T) {
	core, logs := observer.New(zapcore.ErrorLevel)
	e := &Engine{log: zap.New(core)}
	for name, err := range map[string]error{
		"planted": e.recoverPanics("working", func() { panic("planted") }),
		"in frames": e.lossError(Container{},
			fmt.Errorf("reading: %w", &wire.PanicError{
				Value: "in frames",
				Stack: []byte("engine_test.go"),
			})),
	} {
		told := dray.AsError(err)
		if told == nil || told.Code != dray.CodeInternal {
			t.Errorf("%s: told as %+v", name, told)
			continue
		}
		logged := false
		for _, entry := range logs.All() {
			fields := entry.ContextMap()
			id, _ := fields["id"].(string)
			logged = logged || id != "" && strings.Contains(told.Hint, id) && fields["panic"] == name &&
				strings.Contains(fmt.Sprint(fields["stack"]), "engine_test.go")
		}
		if !logged {
			t.Errorf("%s: %+v, and the log has %v", name, told, logs.All())
		}
	}
	if err := e.recoverPanics("working", func() {}); err != nil {
		t.Error(err)
	}
}
