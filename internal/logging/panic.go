package logging

import (
	"crypto/rand"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// RecoverPanics calls work. A panic is logged under an id and returned as an error that names the
// id. It is for goroutines whose panic no caller would recover (EX-18).
func RecoverPanics(log *zap.Logger, doing string, work func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = PanicError(log, doing, v, debug.Stack())
		}
	}()
	work()
	return nil
}

// PanicError logs a recovered panic under a new id and returns an error that names the id.
func PanicError(log *zap.Logger, doing string, value any, stack []byte) error {
	id := rand.Text()
	log.Error("goroutine panicked", zap.String("id", id), zap.String("doing", doing),
		zap.String("panic", fmt.Sprint(value)), zap.ByteString("stack", stack))
	return dray.InternalError(dray.CodeInternal, id, "%s", doing)
}
