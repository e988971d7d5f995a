package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/devcontainer/helper"
	"github.com/dray-dev/dray/internal/tool"
)

// toolStates is the file of the tools' states.
type toolStates struct {
	Disabled []string `json:"disabled"`
}

// openToolStates reads which tools are disabled. A change is recorded in the audit log and then
// written to the file, before it applies.
func openToolStates(state config.State, log *audit.Store) (*tool.States, error) {
	path := state.ToolStates()
	var file toolStates
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, dray.Errorf(dray.CodeInvalidRequest, "read the states of the tools: %s: %w", path,
			err).WithHint("correct the file, or remove it: then all tools are active")
	}
	return tool.NewStates(file.Disabled, func(ctx context.Context, c tool.StateChange) error {
		event := &audit.ToolChanged{Principal: c.Principal, Tool: c.Tool, State: string(c.State)}
		if err := log.RecordEvent(ctx, event); err != nil {
			return err
		}
		text, err := json.Marshal(toolStates{c.Disabled})
		if err == nil {
			err = helper.ReplaceFile(path, text)
		}
		if err != nil {
			return fmt.Errorf("write the states of the tools: %w", err)
		}
		return nil
	}), nil
}
