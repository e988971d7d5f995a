package command

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
)

// A reload is refused to other users, and recorded in the audit log before it applies (CF-04).
func TestReload(t *testing.T) {
	d := newSingleSlotDaemon(t)
	old := d.current.Load()
	text, err := os.ReadFile(old.cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "routing: {fallback: host}\n"...)
	if err := os.WriteFile(old.cfg.File, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"uid:4242", "token:default"} {
		if _, err := d.Reload(t.Context(), other); err == nil || d.current.Load() != old {
			t.Errorf("%q reloaded the configuration: %v", other, err)
		}
	}
	if _, err := d.Reload(t.Context(), "uid:0"); err != nil {
		t.Fatal(err)
	}
	if got := d.current.Load().cfg.Routing.Fallback; got != "host" || old.cfg.Routing.Fallback != "" {
		t.Errorf("the fallback is %q, and was %q", got, old.cfg.Routing.Fallback)
	}
	db, err := sql.Open("sqlite3", old.cfg.State.AuditDB())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var body string
	if err := db.QueryRowContext(context.Background(),
		`SELECT body FROM events WHERE kind = 'reload' AND invocation = ''`).Scan(&body); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(body, `{"principal":"uid:0","config_file":"`) ||
		!strings.Contains(body, `"changed":["routing.fallback"],"digest_before":"`) {
		t.Errorf("the event is %s", body)
	}
}
