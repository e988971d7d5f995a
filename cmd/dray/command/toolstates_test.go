package command

import (
	"database/sql"
	"os"
	"testing"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/tool"
)

// A change of a tool's state is in the audit log and in the state directory (RT-06).
func TestToolStates(t *testing.T) {
	d := newSingleSlotDaemon(t)
	state := d.current.Load().cfg.State
	err := d.toolStates.Set(t.Context(), "uid:7", "shell", tool.Disabled)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openToolStates(state, d.audit)
	if err != nil || again.Of("shell") != tool.Disabled || again.Of("exec") != tool.Active {
		t.Errorf("read again: shell is %s, exec is %s, %v", again.Of("shell"), again.Of("exec"), err)
	}
	db, err := sql.Open("sqlite3", state.AuditDB())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var body string
	query := "SELECT body FROM events WHERE kind = ? AND invocation = ''"
	kind := (*audit.ToolChanged)(nil).Kind()
	if err := db.QueryRowContext(t.Context(), query, kind).Scan(&body); err != nil {
		t.Fatal(err)
	}
	if want := `{"principal":"uid:7","tool":"shell","state":"disabled"}`; body != want {
		t.Errorf("the event is %s", body)
	}
}

// A damaged file does not enable a tool: the daemon does not start.
func TestToolStates_Damaged(t *testing.T) {
	state := config.State(t.TempDir())
	if err := os.WriteFile(state.ToolStates(), []byte(`{"disabled": ["shell"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openToolStates(state, nil); err == nil {
		t.Error("the file was read")
	}
}
