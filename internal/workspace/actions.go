package workspace

import (
	"context"

	"github.com/dray-dev/dray"
)

// Action is a change of a workspace that a caller may ask for.
type Action string

// The actions.
const (
	ActionUp    Action = "up"
	ActionStop  Action = "stop"
	ActionTrust Action = "trust"
)

// Run performs an action on a workspace, given by an id of the list or by its absolute directory. It
// reports the progress of ActionUp and returns the state of the workspace afterwards. ActionTrust
// needs no engine.
func (m *Manager) Run(ctx context.Context, action Action, id string,
	progress func(phase, message string),
) (Info, error) {
	folder, err := m.Folder(ctx, id)
	if err != nil {
		return Info{}, err
	}
	switch action {
	case ActionUp:
		err = m.Up(ctx, folder, progress)
	case ActionStop:
		err = m.Stop(ctx, folder)
	case ActionTrust:
		return m.trustAndDescribe(ctx, folder)
	default:
		err = dray.Errorf(dray.CodeInternal, "unknown action %q", action)
	}
	if err != nil {
		return Info{}, err
	}
	return m.Get(ctx, folder)
}

func (m *Manager) trustAndDescribe(ctx context.Context, folder string) (Info, error) {
	summary, err := m.Trust(ctx, folder)
	if err != nil {
		return Info{}, err
	}
	info, err := m.Get(ctx, folder)
	if dray.CodeOf(err) == dray.CodeEngineUnavailable {
		info = Info{ID: ID(folder), Folder: folder, State: Discovered, Trusted: true}
		err = nil // the trust is stored; the state of the container is unknown
	}
	info.Trust = &summary
	return info, err
}
