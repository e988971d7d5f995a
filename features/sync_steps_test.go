package features

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cucumber/godog"
)

func (w *world) syncSteps(sc *godog.ScenarioContext) {
	sc.Given(`^an empty sandbox root$`, w.emptyRoot)
	sc.Given(`^a symlink (\S+) to (\S+)$`, w.makeLink)
	sc.Given(`^a directory (\S+) with mode (\d+)$`, w.makeFolder)
	sc.Given(`^a file (\S+) containing (".*")$`, w.makeFile)
	sc.When(`^I sync (\{.*\})$`, w.sync)
	sc.When(`^I request the call by its id$`, func(ctx context.Context) error { return w.await(ctx, "/v1/invocations/"+w.answer.id()) })
	sc.Then(`^these files are synced$`, w.filesCame)
	sc.Then(`^these paths are refused$`, w.pathsRefused)
	sc.Then(`^the sync fails$`, w.notSynced)
	sc.Then(`^the sandbox root contains "(.*)"$`, w.rootHolds)
	sc.Then(`^the file (\S+) contains (".*") with mode (\d+)$`, w.fileHoldsWithMode)
	sc.Then(`^the directory (\S+) has mode (\d+)$`, func(path, mode string) error { return hasMode(w.named(path), mode) })
	sc.Then(`^the audit log lists the changed files of plan (\S+)$`, w.changesAre)
}

// emptyRoot removes the content of the root, which the daemon has open, and names the digests in
// outputs.
func (w *world) emptyRoot() error {
	for _, word := range []string{"old", "new", "more"} {
		w.names["sha256 of "+word] = fmt.Sprintf("%x", sha256.Sum256([]byte(word+"\n")))[:12]
	}
	entries, err := os.ReadDir(w.names["home"])
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(w.names["home"], e.Name())))
	}
	return err
}

func (w *world) makeLink(link, to string) error {
	link = w.named(link)
	return errors.Join(os.RemoveAll(link), os.Symlink(w.named(to), link))
}

func (w *world) makeFolder(path, mode string) error {
	var bits fs.FileMode
	if _, err := fmt.Sscanf(mode, "%o", &bits); err != nil {
		return err
	}
	path = w.named(path)
	return errors.Join(os.MkdirAll(path, 0o700), os.Chmod(path, bits))
}

func (w *world) makeFile(path, text string) error {
	content, err := w.quoted(text)
	if err != nil {
		return err
	}
	return writeFile(w.named(path), content)
}

// sync sends the request for the workspace of the scenario.
func (w *world) sync(ctx context.Context, text string) error {
	request, err := decode([]byte(w.named(text)))
	if err != nil {
		return err
	}
	body := map[string]any{"workspace": w.names["workspace"]}
	if more, ok := request.(map[string]any); ok {
		maps.Copy(body, more)
	}
	w.answer, err = w.daemon.ask(ctx, http.MethodPost, "/v1/sync", body)
	return err
}

// filesCame compares the manifest, ordered by the paths below the root.
func (w *world) filesCame(table *godog.Table) error {
	files, _ := w.answer.at("/files").([]any)
	got := make([]string, 0, len(files))
	for _, f := range files {
		fields, _ := f.(map[string]any)
		path, _ := strings.CutPrefix(fmt.Sprint(fields["path"]), w.names["home"]+"/")
		got = append(got, fmt.Sprint(path, " ", fields["action"], " ", fields["mode"], " ",
			fields["size"]))
		if sum := fmt.Sprint(fields["sha256"]); len(sum) != 64 {
			return fmt.Errorf("the digest of %s is %q", path, sum)
		}
	}
	return sameRows(got, table, 1, w.answer)
}

func (w *world) pathsRefused(table *godog.Table) error {
	refused, _ := w.answer.at("/refused").([]any)
	got := make([]string, 0, len(refused))
	for _, r := range refused {
		fields, _ := r.(map[string]any)
		if fields["message"] == "" {
			return fmt.Errorf("no reason: %v", r)
		}
		got = append(got, fmt.Sprint(fields["path"], " ", fields["code"]))
	}
	return sameRows(got, table, 0, w.answer)
}

// sameRows compares lines with the rows of a table from the given one on, in any order.
func sameRows(got []string, table *godog.Table, from int, a answer) error {
	var want []string
	for _, row := range table.Rows[from:] {
		var cells []string
		for _, cell := range row.Cells {
			cells = append(cells, cell.Value)
		}
		want = append(want, strings.Join(cells, " "))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("got\n%s\nwant\n%s\nin %s", strings.Join(got, "\n"),
			strings.Join(want, "\n"), a.raw)
	}
	return nil
}

func (w *world) notSynced() error {
	if w.answer.status < http.StatusBadRequest || w.answer.status >= http.StatusInternalServerError ||
		w.answer.at("/files") != nil {
		return fmt.Errorf("the response is %d: %s", w.answer.status, w.answer.raw)
	}
	return nil
}

// rootHolds compares all names below the root, in order, including staging directories.
func (w *world) rootHolds(names string) error {
	if id := w.answer.id(); id != "" {
		w.names["id"] = id
	}
	var got []string
	err := filepath.WalkDir(w.names["home"], func(path string, _ fs.DirEntry, err error) error {
		if rel, ok := strings.CutPrefix(path, w.names["home"]+"/"); ok {
			got = append(got, rel)
		}
		return err
	})
	if err != nil {
		return err
	}
	return differ(strings.Join(got, " "), w.named(names))
}

func (w *world) fileHoldsWithMode(path, text, mode string) error {
	want, err := w.quoted(text)
	if err != nil {
		return err
	}
	w.names["id"] = w.answer.id()
	content, err := os.ReadFile(w.named(path))
	if err != nil {
		return err
	}
	return errors.Join(differ(string(content), want), hasMode(w.named(path), mode))
}

func hasMode(path, mode string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if bits := info.Mode() &^ fs.ModeDir; info.Mode().IsRegular() || info.IsDir() {
		return differ(fmt.Sprintf("%04o", uint32(bits)), mode)
	}
	return fmt.Errorf("it is %v", info.Mode())
}

// changesAre compares the changed files in the audit log, newest first.
func (w *world) changesAre(ctx context.Context, plan string, table *godog.Table) error {
	list, err := w.daemon.ask(ctx, http.MethodGet, "/v1/audit/files?plan_id="+plan, nil)
	if err != nil {
		return err
	}
	items, _ := list.at("/items").([]any)
	var got, want []string
	for _, item := range items {
		fields, _ := item.(map[string]any)
		got = append(got, fmt.Sprint(fields["action"], " ", fields["path"]))
		if before, ok := fields["sha256_before"]; ok == (fields["action"] == "created") ||
			len(fmt.Sprint(fields["sha256_after"])) != 64 {
			return fmt.Errorf("the digests of %v are %v, %v", fields["path"], before, fields["sha256_after"])
		}
	}
	for _, row := range table.Rows {
		want = append(want, w.named(row.Cells[0].Value+" "+row.Cells[1].Value))
	}
	return differ(strings.Join(got, "\n"), strings.Join(want, "\n"))
}
