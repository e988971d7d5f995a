package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/devcontainer"
)

var errUpTimeout = errors.New("it took longer than devcontainer.up_timeout")

// upWithTimeout brings a workspace up within devcontainer.up_timeout. Nobody's call is around it: a panic ends this start and nothing else.
func (m *Manager) upWithTimeout(ctx context.Context, loc devcontainer.Location, progress func(phase, message string)) (id string, err error) {
	defer func() {
		if p := recover(); p != nil {
			id, err = "", m.panicError(loc, p)
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.UpTimeout, fmt.Errorf("%w (%v)", errUpTimeout, m.cfg.UpTimeout))
	defer cancel()
	id, err = m.runUp(ctx, loc, progress)
	if err != nil && errors.Is(context.Cause(ctx), errUpTimeout) {
		err = dray.AsError(err).WithHint("look at what it said last (`dray workspace up %s` shows it) for what hangs; "+
			"raise devcontainer.up_timeout if the build needs that long", loc.Workspace)
	}
	return id, err
}

// panicError logs a panic under an id and makes an error that names it.
func (m *Manager) panicError(loc devcontainer.Location, p any) error {
	id := rand.Text()
	m.log.Error("bringing a workspace up panicked", zap.String("id", id), zap.String("workspace", loc.Workspace),
		zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
	return dray.InternalError(dray.CodeInternal, id, "bringing up %s", loc.Workspace)
}
