package features

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cucumber/godog"
	_ "github.com/mattn/go-sqlite3" // the steps read the audit log as an operator would
)

func (w *world) trailSteps(sc *godog.ScenarioContext) {
	sc.Then(`^the audit log records (status|reason|exit_code|tool|environment|container_id) (\S+) for the call$`, w.columnIs)
	sc.Then(`^the audit log contains the events "(.*)" of the call$`, w.eventsAre)
	sc.Then(`^the audit log contains /metadata/container as JSON$`, w.containerColumn)
	sc.Given(`^another program locks the audit database$`, w.holdTrail)
	sc.When(`^the audit database is unlocked$`, func() error { return w.release() })
	sc.Then(`^requesting the call again returns the same$`, w.sameAgain)
	sc.Then(`^the call is the first of the list$`, w.firstOfList)
}

// trail opens the database read-only for one query.
func (w *world) trail(ask func(*sql.DB) error) error {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(w.daemon.state, "audit.db")+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	return ask(db)
}

// column reads a column of the call's row as JSON.
func (w *world) column(ctx context.Context, name string) (text string, err error) {
	err = w.trail(func(db *sql.DB) error {
		// a name from the step's pattern
		query := "SELECT coalesce(json_quote(" + name + "), 'null') FROM invocations WHERE id = ?"
		return db.QueryRowContext(ctx, query, w.answer.id()).Scan(&text)
	})
	return text, err
}

func (w *world) columnIs(ctx context.Context, name, want string) error {
	got, err := w.column(ctx, name)
	if err != nil {
		return err
	}
	return differ(got, w.named(want))
}

func (w *world) eventsAre(ctx context.Context, kinds string) error {
	var got []string
	err := w.trail(func(db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "SELECT kind FROM events WHERE invocation = ? ORDER BY seq",
			w.answer.id())
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var kind string
			if err := rows.Scan(&kind); err != nil {
				return err
			}
			got = append(got, kind)
		}
		return rows.Err()
	})
	if err != nil {
		return err
	}
	return differ(strings.Join(got, " "), kinds)
}

func (w *world) containerColumn(ctx context.Context) error {
	var text string
	err := w.trail(func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT metadata_container FROM invocations WHERE id = ?",
			w.answer.id()).Scan(&text)
	})
	if err != nil {
		return err
	}
	got, err := decode([]byte(text))
	if err != nil {
		return err
	}
	if want := w.answer.at("/metadata/container"); want == nil || !same(got, want) {
		return fmt.Errorf("it is %v, in the response %v", got, want)
	}
	return nil
}

func (w *world) sameAgain(ctx context.Context) error {
	again, err := w.daemon.ask(ctx, http.MethodGet, "/v1/invocations/"+w.answer.id(), nil)
	if err == nil && !same(again.value, w.answer.value) {
		err = fmt.Errorf("first %s, then %s", w.answer.raw, again.raw)
	}
	return err
}

func (w *world) firstOfList(ctx context.Context) error {
	list, err := w.daemon.ask(ctx, http.MethodGet, "/v1/invocations?limit=1", nil)
	if err == nil && list.at("/items/0/id") != w.answer.id() {
		err = fmt.Errorf("it is not: %s", list.raw)
	}
	return err
}

// holdTrail takes the write lock of the database, like a backup program that hangs.
func (w *world) holdTrail(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(w.daemon.state,
		"audit.db")+"?_txlock=immediate")
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	w.release = sync.OnceValue(func() error { return errors.Join(tx.Rollback(), db.Close()) })
	w.later(func(context.Context) error { return w.release() })
	return nil
}
