package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dray-dev/dray/audit/proof"
)

// tampering is a change of the files of a closed log by another program, with what finds it: the
// files alone, when the stored checkpoints were removed, and a checkpoint from before.
type tampering struct {
	name        string
	alone, with bool
	change      func(t *testing.T, l *closedLog)
}

// closedLog is a log with something of every kind, as its attacker sees it.
type closedLog struct {
	opts  Options
	files stateFiles
	db    *sql.DB
	last  int64
	// triggers keep a program from changing events by accident. A careful attacker drops them and
	// creates them again.
	triggers []string
}

func (l *closedLog) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	mustExec(t, l.db, statement, args...)
}

// sqlTampering is a change by SQL statements, which a checkpoint finds.
func sqlTampering(name string, alone bool, statement string) tampering {
	return tampering{name, alone, true, func(t *testing.T, l *closedLog) {
		t.Helper()
		l.exec(t, statement)
	}}
}

// Events 3 and 4 of the log are the begin and end of a call. The last one is the end of a call of
// which nothing else remains once it is removed.
var tamperings = []tampering{
	sqlTampering("the body of an event edited", true,
		`UPDATE events SET body = replace(body, '"exec"', '"exes"') WHERE seq = 3`),
	sqlTampering("the kind of an event edited", true,
		`UPDATE events SET kind = 'interrupted' WHERE seq = 4`),
	sqlTampering("the time of an event edited", true,
		`UPDATE events SET at = at + 1 WHERE seq = 3`),
	sqlTampering("the invocation of an event edited", true,
		`UPDATE events SET invocation = upper(invocation) WHERE seq = 3`),
	sqlTampering("the leaf of an event edited", true,
		`UPDATE events SET leaf = zeroblob(32) WHERE seq = 3`),
	sqlTampering("two events swapped", true, swapEvents),
	sqlTampering("an event in the middle deleted", true, `DELETE FROM events WHERE seq = 3`),
	sqlTampering("many events in the middle deleted", true,
		`DELETE FROM events WHERE seq BETWEEN 3 AND 8`),
	sqlTampering("the first event deleted", true, `DELETE FROM events WHERE seq = 1`),
	sqlTampering("an event deleted and the later ones renumbered", true,
		`DELETE FROM events WHERE seq = 3; `+renumber),
	sqlTampering("the last event deleted", true,
		`DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)`),
	sqlTampering("the last call deleted, with its row", false, deleteLastCall),
	{"an event inserted in the middle", true, true, insertInTheMiddle},
	sqlTampering("an event appended", true, `INSERT INTO events (seq, invocation, kind, at, body, leaf)
		SELECT max(seq) + 1, '', 'tool', 1, '{}', zeroblob(32) FROM events`),
	{"an event appended with its right leaf", false, false, appendForged},
	{"a body edited, with its leaf", true, true, func(t *testing.T, l *closedLog) {
		l.editBody(t)
		l.rehash(t, 3, 3)
	}},
	{"a body edited, with all leaves, hashes and rows", false, true, func(t *testing.T, l *closedLog) {
		l.editBody(t)
		l.exec(t, `UPDATE invocations SET tool = 'exes' WHERE seq = 3`)
		l.rehash(t, 1, l.last)
	}},
	{
		"a call deleted, all later events renumbered and rehashed", false, true,
		func(t *testing.T, l *closedLog) {
			l.exec(t, deleteFirstCall)
			l.rehash(t, 1, l.last-2)
		},
	},
	{"the file replaced by an older copy", false, true, func(t *testing.T, l *closedLog) {
		if err := l.db.Close(); err != nil {
			t.Fatal(err)
		}
		writeFile(t, l.opts.Path, readFile(t, l.opts.Path+".older"))
	}},
	{"everything replaced by another log, with its key", false, true, replaceAll},
	sqlTampering("a row deleted", true, `DELETE FROM invocations WHERE seq = 3`),
	sqlTampering("a column of a row edited", true,
		`UPDATE invocations SET principal = 'uid:1' WHERE seq = 3`),
	sqlTampering("a row invented", true,
		`INSERT INTO invocations (seq, id, tool, principal, status, started_at)
		VALUES (2, 'x', 'exec', 'uid:0', 'succeeded', 1)`),
	sqlTampering("a row of no event invented", true,
		`INSERT INTO invocations (seq, id, tool, principal, status, started_at)
		VALUES (100000, 'x', 'exec', 'uid:0', 'succeeded', 1)`),
	sqlTampering("a changed file edited", true, `UPDATE changed_files SET path = '/other'
		WHERE (seq, n) IN (SELECT seq, n FROM changed_files LIMIT 1)`),
	sqlTampering("a changed file deleted", true, `DELETE FROM changed_files
		WHERE (seq, n) IN (SELECT seq, n FROM changed_files LIMIT 1)`),
	sqlTampering("a changed file invented", true, `INSERT INTO changed_files
		SELECT seq, 1000, invocation, principal, plan_id, environment, path, action, NULL, NULL, at
		FROM changed_files LIMIT 1`),
	sqlTampering("a hash of the Merkle log edited", true,
		`UPDATE merkle_nodes SET hash = zeroblob(32)`),
	sqlTampering("a hash of the Merkle log deleted", true, `DELETE FROM merkle_nodes`),
	{"a body removed as retention does", true, true, func(t *testing.T, l *closedLog) {
		body := scan[string](t, l.db, `SELECT body FROM events WHERE seq = 3`)
		sum := sha256.Sum256([]byte(body))
		l.exec(t, `UPDATE events SET body = NULL, body_sha256 = ? WHERE seq = 3`, sum[:])
		l.exec(t, `DELETE FROM invocations WHERE seq = 3`)
	}},
	{
		"bodies removed, with a row that says that retention did so", true, true,
		func(t *testing.T, l *closedLog) {
			sum := sha256.Sum256([]byte(scan[string](t, l.db, `SELECT body FROM events WHERE seq = 1`)))
			l.exec(t, `UPDATE events SET body = NULL, body_sha256 = ? WHERE seq = 1`, sum[:])
			l.exec(t, `DELETE FROM invocations WHERE seq = 1; INSERT INTO prunings VALUES (2, 1, 1, 1, 1, 1, 1)`)
		},
	},
	{
		"a trigger that keeps events from changes removed", true, true,
		func(t *testing.T, l *closedLog) { l.triggers = l.triggers[1:] },
	},
	sqlTampering("an index dropped", true, `DROP INDEX invocations_tool`),
	{"an index that hides a row", true, true, func(t *testing.T, l *closedLog) {
		l.exec(t, `PRAGMA writable_schema = ON; UPDATE sqlite_schema
			SET sql = 'CREATE INDEX invocations_tool ON invocations (tool, started_at) WHERE seq <> 3'
			WHERE name = 'invocations_tool'`)
		l.reconnect(t)
		l.exec(t, `REINDEX invocations_tool; PRAGMA writable_schema = ON; UPDATE sqlite_schema
			SET sql = 'CREATE INDEX invocations_tool ON invocations (tool, started_at)'
			WHERE name = 'invocations_tool'`)
	}},
	{"a page overwritten", true, true, overwritePage},
	{"the page with the versions of the schema overwritten", true, true, overwriteVersions},
	{"a file in captures/ edited", true, true, func(t *testing.T, l *closedLog) {
		writeFile(t, l.capture(t), "forged")
	}},
	{"a file in captures/ deleted", true, true, func(t *testing.T, l *closedLog) {
		if err := os.Remove(l.capture(t)); err != nil {
			t.Fatal(err)
		}
	}},
	{"the public key replaced", true, true, func(t *testing.T, l *closedLog) {
		writeFile(t, l.files.public, otherSigner(t).Verifier().String()+"\n")
	}},
}

// Events are moved to negative numbers first, because the numbers are unique.
const (
	swapEvents = `UPDATE events SET seq = -seq WHERE seq IN (3, 5);
		UPDATE events SET seq = 8 + seq WHERE seq IN (-3, -5)`

	renumber = `UPDATE events SET seq = -seq WHERE seq > 3; UPDATE events SET seq = -seq - 1 WHERE seq < 0;
		UPDATE invocations SET seq = -seq WHERE seq > 3; UPDATE invocations SET seq = -seq - 1 WHERE seq < 0`

	deleteLastCall = `DELETE FROM changed_files WHERE seq > (SELECT max(seq) FROM invocations);
		DELETE FROM events WHERE seq >= (SELECT max(seq) FROM invocations);
		DELETE FROM invocations WHERE seq = (SELECT max(seq) FROM invocations)`

	deleteFirstCall = `DELETE FROM invocations WHERE seq = 3; DELETE FROM events WHERE seq IN (3, 4);
		UPDATE events SET seq = -seq WHERE seq > 4; UPDATE events SET seq = -seq - 2 WHERE seq < 0;
		UPDATE invocations SET seq = -seq, ended_seq = ended_seq - 2 WHERE seq > 4;
		UPDATE invocations SET seq = -seq - 2 WHERE seq < 0;
		UPDATE changed_files SET seq = -seq WHERE seq > 4;
		UPDATE changed_files SET seq = -seq - 2 WHERE seq < 0;
		DELETE FROM labels WHERE seq = 3; UPDATE labels SET seq = seq - 2 WHERE seq > 4`
)

func (l *closedLog) editBody(t *testing.T) {
	t.Helper()
	l.exec(t, `UPDATE events SET body = replace(body, '"tool":"exec"', '"tool":"exes"') WHERE seq = 3`)
}

// rehash computes the leaves of some events again, and of a whole log all hashes.
func (l *closedLog) rehash(t *testing.T, first, last int64) {
	t.Helper()
	events, err := selectAll(context.Background(), l.db, selectQuery{
		sql: `SELECT ` + eventColumns + ` FROM events ORDER BY seq`,
	}, (*storedEvent).columns)
	must(t, err)
	if first == 1 {
		l.exec(t, `DELETE FROM merkle_nodes`)
	}
	var edge proof.Edge
	for _, e := range events {
		p, err := e.proof()
		must(t, err)
		leaf := p.Leaf()
		if e.seq >= first && e.seq <= last {
			l.exec(t, `UPDATE events SET leaf = ? WHERE seq = ?`, leaf[:], e.seq)
		}
		for _, n := range edge.Append(leaf) {
			if first == 1 {
				l.exec(t, insertNode, n.Level, n.N, n.Hash[:])
			}
		}
	}
}

func insertInTheMiddle(t *testing.T, l *closedLog) {
	l.exec(t, `UPDATE events SET seq = -seq WHERE seq >= 3; UPDATE events SET seq = 1 - seq WHERE seq < 0`)
	l.exec(t, `INSERT INTO events (seq, invocation, kind, at, body, leaf) VALUES (3, '', 'tool', 1, '{}', ?)`,
		leafOf(3, "tool", "{}"))
}

func appendForged(t *testing.T, l *closedLog) {
	l.exec(t, `INSERT INTO events (seq, invocation, kind, at, body, leaf) VALUES (?, '', 'tool', 1, '{}', ?)`,
		l.last+1, leafOf(l.last+1, "tool", "{}"))
}

func leafOf(seq int64, kind, body string) []byte {
	leaf := proof.Event{Seq: seq, At: 1, Kind: kind, BodySHA256: sha256.Sum256([]byte(body))}.Leaf()
	return leaf[:]
}

func replaceAll(t *testing.T, l *closedLog) {
	other := options(t.TempDir())
	recordSamples(t, other)
	if err := l.db.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(l.opts.Path)
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(filepath.Dir(other.Path)))
	}
	must(t, err)
}

func otherSigner(t *testing.T) *proof.Signer {
	t.Helper()
	private, err := proof.NewKey()
	must(t, err)
	s, err := proof.NewSigner(private)
	must(t, err)
	return s
}

// capture returns a file that an event refers to.
func (l *closedLog) capture(t *testing.T) string {
	t.Helper()
	name := scan[string](t, l.db, `SELECT input_sha256 FROM invocations WHERE input_sha256 IS NOT NULL LIMIT 1`)
	return filepath.Join(l.opts.CapturesDir, name)
}

// overwritePage overwrites a page with events.
func overwritePage(t *testing.T, l *closedLog) {
	id := scan[string](t, l.db, `SELECT invocation FROM events WHERE seq = 3`)
	if err := l.db.Close(); err != nil {
		t.Fatal(err)
	}
	file := readFile(t, l.opts.Path)
	for at := pageSize; at < len(file); at += pageSize {
		page := file[at : at+pageSize]
		if page[0] == tableLeaf && strings.Contains(page, id+"begun") {
			writeFile(t, l.opts.Path, file[:at]+badPage+file[at+pageSize:])
			return
		}
	}
	t.Fatal("no page has the event")
}

func overwriteVersions(t *testing.T, l *closedLog) {
	root := scan[int](t, l.db, `SELECT rootpage FROM sqlite_schema WHERE name = 'goose_db_version'`)
	if err := l.db.Close(); err != nil {
		t.Fatal(err)
	}
	at, file := (root-1)*pageSize, readFile(t, l.opts.Path)
	writeFile(t, l.opts.Path, file[:at]+badPage+file[at+pageSize:])
}

// pageSize is the number of bytes of a page of SQLite.
const pageSize = 4096

var badPage = strings.Repeat("\xff", pageSize)

// tableLeaf is the first byte of a page of SQLite with rows.
const tableLeaf = 0x0d

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func (l *closedLog) reconnect(t *testing.T) {
	t.Helper()
	if err := l.db.Close(); err != nil {
		t.Fatal(err)
	}
	l.db = rawDB(t, l.opts.Path)
}

// newClosedLog returns a log with something of every kind, two hashes in merkle_nodes, an older
// copy of its file, and a checkpoint.
func newClosedLog(t *testing.T) (dir string, checkpoint []byte) {
	t.Helper()
	opts := options(t.TempDir())
	s, _ := reopen(t, opts)
	recordSampleEvents(t, s)
	older := readFile(t, opts.Path)
	s, _ = reopen(t, opts)
	recordCalls(t, s, 256)
	checkpoint, err := s.Checkpoint(context.Background())
	if err == nil {
		err = s.Close(context.Background())
	}
	must(t, err)
	writeFile(t, opts.Path+".older", older)
	return filepath.Dir(opts.Path), checkpoint
}

// copyLog returns a copy of a log.
func copyLog(t *testing.T, dir string) *closedLog {
	t.Helper()
	opts := options(t.TempDir())
	if err := os.CopyFS(filepath.Dir(opts.Path), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	l := &closedLog{opts: opts, files: filesOf(opts.Path), db: rawDB(t, opts.Path)}
	l.last = scan[int64](t, l.db, `SELECT max(seq) FROM events`)
	return l
}

func (l *closedLog) dropTriggers(t *testing.T) {
	t.Helper()
	l.triggers = texts(t, l.db, `SELECT sql FROM sqlite_schema WHERE type = 'trigger'`)
	for _, name := range texts(t, l.db, `SELECT name FROM sqlite_schema WHERE type = 'trigger'`) {
		l.exec(t, `DROP TRIGGER `+name)
	}
}

// close creates the triggers again, if the file is still the same.
func (l *closedLog) close() {
	for _, statement := range l.triggers {
		_, _ = l.db.ExecContext(context.Background(), statement)
	}
	_ = l.db.Close()
}

// Every kind of tampering is found with a checkpoint from before, and without one, or not, exactly
// as the documentation says (AU-06).
func TestTampering(t *testing.T) {
	dir, checkpoint := newClosedLog(t)
	for _, tt := range tamperings {
		t.Run(tt.name, func(t *testing.T) {
			l := copyLog(t, dir)
			checkNoFindings(t, mustVerify(t, l.opts, checkpoint))
			l.dropTriggers(t)
			tt.change(t, l)
			l.close()
			if with := mustVerify(t, l.opts, checkpoint); with.OK == tt.with {
				t.Errorf("with a checkpoint: %+v", with.Findings)
			}
			if err := os.RemoveAll(l.files.checkpoints); err != nil {
				t.Fatal(err)
			}
			alone := mustVerify(t, l.opts, nil)
			if alone.OK == tt.alone {
				t.Errorf("without a checkpoint: %+v", alone.Findings)
			}
			for _, f := range alone.Findings {
				if f.Kind == "" || f.Message == "" || f.Seq == 0 && f.Column == "" && f.Kind != FindingDamage {
					t.Errorf("a finding that names nothing: %+v", f)
				}
			}
		})
	}
}

// The table of the documentation is that of the test (AU-06).
func TestTamperingIsDocumented(t *testing.T) {
	page := readFile(t, "../docs/explanation/audit-proof.md")
	yes := map[bool]string{true: "found", false: "**not found**"}
	for _, tt := range tamperings {
		if row := fmt.Sprintf("| %s | %s | %s |\n", tt.name, yes[tt.alone], yes[tt.with]); !strings.Contains(page, row) {
			t.Errorf("the page does not have the row\n%s", row)
		}
	}
	if rows := regexp.MustCompile(`(?m)^\| .* found`).FindAllString(page, -1); len(rows) != len(tamperings) {
		t.Errorf("the page has %d rows, the test %d", len(rows), len(tamperings))
	}
}
