package container

import (
	"crypto/rand"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
)

// recoverPanics does the work of a goroutine that no call is around, so that nobody else would catch its panic: it is logged under an id, and told as an
// error with that id to whoever relies on the work (EX-18).
func (e *Engine) recoverPanics(doing string, work func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = e.panicError(doing, v, debug.Stack())
		}
	}()
	work()
	return nil
}

// panicError logs a panic under an id and makes an error that names it.
func (e *Engine) panicError(doing string, value any, stack []byte) error {
	id := rand.Text()
	e.log.Error("goroutine panicked", zap.String("id", id), zap.String("doing", doing), zap.String("panic", fmt.Sprint(value)), zap.ByteString("stack", stack))
	return dray.InternalError(dray.CodeInternal, id, "%s", doing)
}
