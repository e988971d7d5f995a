package features

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cucumber/godog"
)

func (w *world) answerSteps(sc *godog.ScenarioContext) {
	sc.Then(`^the call (succeeds)$`, w.ended)
	sc.Then(`^the call (succeeds|fails) with reason (\S+)$`, w.endedBecause)
	sc.Then(`^the request fails with status (\d+) and code (\S+)$`, w.refused)
	sc.Then(`^the response has status (\d+)$`, w.answered)
	sc.Then(`^the error code is (\S+)$`, w.errorIs)
	sc.Then(`^the error has a hint$`, w.hasHint)
	sc.Then(`^the error message contains "(.*)"$`, w.errorSays)
	sc.Then(`^no process was started$`, w.nothingStarted)
	sc.Then(`^(std(?:out|err)) is$`, w.outputIsText)
	sc.Then(`^(std(?:out|err)) is (".*")$`, w.outputIs)
	sc.Then(`^(std(?:out|err)) contains (".*")$`, w.outputContains)
	sc.Then(`^(std(?:out|err)) does not contain (".*")$`, w.outputLacks)
	sc.Then(`^the first location in (std(?:out|err)) is this line of a host file, "(.*)"$`, w.firstPlaceIs)
	sc.Then(`^the rewritten (std(?:out|err)) from byte (\d+) is (".*")$`, w.rewrittenIs)
	sc.Then(`^stdout contains exactly the variables "(.*)"$`, w.variablesAre)
	sc.Then(`^the captured stdout from byte (\d+) is (".*")$`, w.keptIs)
	sc.Then(`^the captured stdout from byte (\d+) is base64 "(.*)"$`, w.keptBytesAre)
	sc.Then(`^(/\S*) is absent$`, w.absent)
	sc.Then(`^(/\S*) is (above|below) ([\d.]+)$`, w.compared)
	sc.Then(`^(/\S*) is ((?:[\[{"\d-].*|null|true|false))$`, w.valueIs)
	sc.Then(`^(/\S*) matches "(.*)"$`, w.valueMatches)
	sc.Then(`^(/\S*) contains (\{.*)$`, w.listHolds)
	sc.Then(`^each call returns its own number$`, w.ownNumbers)
}

func (w *world) ended(verb string) error {
	status := map[string]string{"succeeds": "succeeded", "fails": "failed"}[verb]
	if w.answer.status != http.StatusOK || w.answer.at("/status") != status {
		return fmt.Errorf("the call does not %s: %s", verb, w.answer.raw)
	}
	return nil
}

func (w *world) endedBecause(verb, reason string) error {
	if err := w.ended(verb); err != nil {
		return err
	}
	if w.answer.at("/reason") != reason {
		return fmt.Errorf("the reason is %v: %s", w.answer.at("/reason"), w.answer.raw)
	}
	if (reason == "exited") != (w.answer.at("/exit_code") != nil) {
		return fmt.Errorf("the exit code is %v with the reason %s", w.answer.at("/exit_code"), reason)
	}
	return nil
}

func (w *world) refused(status int, code string) error {
	if w.answer.status != status || w.answer.at("/code") != code || w.answer.at("/detail") == "" ||
		w.answer.at("/status") != json.Number(strconv.Itoa(status)) {
		return fmt.Errorf("the response is %d: %s", w.answer.status, w.answer.raw)
	}
	if kind := w.answer.header.Get("Content-Type"); kind != "application/problem+json" {
		return fmt.Errorf("the content type is %q", kind)
	}
	return nil
}

func (w *world) answered(status int) error {
	if w.answer.status != status {
		return fmt.Errorf("the response is %d: %s", w.answer.status, w.answer.raw)
	}
	return nil
}

// theError returns the error of a record, else the response as a problem.
func (w *world) theError() map[string]any {
	if e, ok := w.answer.at("/error").(map[string]any); ok {
		return e
	}
	e, _ := w.answer.value.(map[string]any)
	return e
}

func (w *world) errorIs(code string) error {
	if w.theError()["code"] != code {
		return fmt.Errorf("the error is %v", w.theError())
	}
	return nil
}

func (w *world) hasHint() error {
	if hint, _ := w.theError()["hint"].(string); hint == "" {
		return fmt.Errorf("the error has no hint: %v", w.theError())
	}
	return nil
}

func (w *world) errorSays(text string) error {
	if message := fmt.Sprint(w.theError()["message"],
		w.theError()["detail"]); !strings.Contains(message, w.named(text)) {
		return fmt.Errorf("the message is %q", message)
	}
	return nil
}

// nothingStarted checks that the tool did not run: on the host, where scenarios let it write the
// file ran, and no output or report of an end in its record.
func (w *world) nothingStarted() error {
	if _, err := os.Lstat(filepath.Join(w.root, "ran")); !os.IsNotExist(err) {
		return errors.Join(errors.New("the tool has written the file ran"), err)
	}
	if w.answer.status != http.StatusOK {
		return nil
	}
	for _, stream := range []string{"stdout", "stderr"} {
		if n := w.answer.at("/" + stream + "/total_bytes"); n != nil && n != json.Number("0") {
			return fmt.Errorf("the tool has written to %s: %s", stream, w.answer.raw)
		}
	}
	if w.answer.at("/metadata/kill") != nil {
		return fmt.Errorf("a process was started: %s", w.answer.raw)
	}
	return nil
}

func (w *world) output(stream string) string {
	text, _ := w.answer.at("/" + stream + "/text").(string)
	return text
}

func (w *world) outputIsText(stream string, doc *godog.DocString) error {
	return differ(w.output(stream), w.named(doc.Content))
}

// quoted reads a JSON string of a feature file.
func (w *world) quoted(text string) (string, error) {
	var s string
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return "", fmt.Errorf("%s in the feature file is not a JSON string: %w", text, err)
	}
	return w.named(s), nil
}

func differ(got, want string) error {
	if got != want {
		return fmt.Errorf("it is %q, not %q", got, want)
	}
	return nil
}

func (w *world) outputIs(stream, text string) error {
	want, err := w.quoted(text)
	if err != nil {
		return err
	}
	return differ(w.output(stream), want)
}

func (w *world) outputContains(stream, text string) error {
	want, err := w.quoted(text)
	if err == nil && !strings.Contains(w.output(stream), want) {
		err = fmt.Errorf("%q is not in %q", want, w.output(stream))
	}
	return err
}

func (w *world) outputLacks(stream, text string) error {
	want, err := w.quoted(text)
	if err == nil && strings.Contains(w.output(stream), want) {
		err = fmt.Errorf("%q is in %q", want, w.output(stream))
	}
	return err
}

// fileAndLine matches a file and line as tools print them.
var fileAndLine = regexp.MustCompile(`(/[^\s"':\x1b]+)(?:", line | line |: line |(?:\x1b\[[\d;]*[mK])*:(?:\x1b\[[\d;]*[mK])*)(\d+)`)

// firstPlaceIs opens the first file that a tool printed, on the host, and compares the line.
func (w *world) firstPlaceIs(stream, want string) error {
	found := fileAndLine.FindStringSubmatch(w.output(stream))
	if found == nil {
		return fmt.Errorf("no file and line in %q", w.output(stream))
	}
	content, err := os.ReadFile(found[1])
	if err != nil {
		return err
	}
	lines := strings.Split(string(content), "\n")
	n, err := strconv.Atoi(found[2])
	if err != nil || n < 1 || n > len(lines) {
		return fmt.Errorf("line %s is not in %q", found[2], content)
	}
	return differ(lines[n-1], want)
}

func (w *world) rewrittenIs(ctx context.Context, stream string, from int, text string) error {
	want, err := w.quoted(text)
	if err != nil {
		return err
	}
	a, err := w.daemon.ask(ctx, http.MethodGet,
		"/v1/invocations/"+w.answer.id()+"/output/"+stream+"?rewritten=true", nil)
	if err == nil && (a.status != http.StatusOK || len(a.raw) < from) {
		err = fmt.Errorf("answered with %d and %s", a.status, a.raw)
	}
	if err != nil {
		return err
	}
	return differ(string(a.raw[from:]), want)
}

func (w *world) variablesAre(names string) error {
	var got []string
	for line := range strings.Lines(w.output("stdout")) {
		name, _, _ := strings.Cut(line, "=")
		got = append(got, name)
	}
	slices.Sort(got)
	return differ(strings.Join(got, " "), names)
}

func (w *world) kept(ctx context.Context, from int) ([]byte, error) {
	a, err := w.daemon.ask(ctx, http.MethodGet, "/v1/invocations/"+w.answer.id()+"/output/stdout", nil)
	if err == nil && (a.status != http.StatusOK || len(a.raw) < from) {
		err = fmt.Errorf("answered with %d and %d bytes", a.status, len(a.raw))
	}
	if err != nil {
		return nil, err
	}
	return a.raw[from:], nil
}

func (w *world) keptIs(ctx context.Context, from int, text string) error {
	want, err := w.quoted(text)
	if err != nil {
		return err
	}
	got, err := w.kept(ctx, from)
	if err != nil {
		return err
	}
	return differ(string(got), want)
}

func (w *world) keptBytesAre(ctx context.Context, from int, text string) error {
	got, err := w.kept(ctx, from)
	if err != nil {
		return err
	}
	return differ(base64.StdEncoding.EncodeToString(got), text)
}

func (w *world) absent(pointer string) error {
	if v, found := w.answer.find(pointer); found {
		return fmt.Errorf("it is %v", v)
	}
	return nil
}

func (w *world) compared(pointer, how, bound string) error {
	number, ok := w.answer.at(pointer).(json.Number)
	if !ok {
		return fmt.Errorf("it is %v", w.answer.at(pointer))
	}
	got, _ := number.Float64()
	limit, err := strconv.ParseFloat(bound, 64)
	if err == nil && (how == "above") != (got > limit) {
		err = fmt.Errorf("it is %v", got)
	}
	return err
}

func (w *world) valueIs(pointer, text string) error {
	want, err := decode([]byte(w.named(text)))
	if err != nil {
		return err
	}
	got, found := w.answer.find(w.named(pointer))
	if !found || !same(got, want) {
		return fmt.Errorf("it is %#v (found: %v), not %#v; the response is %s", got, found, want,
			w.answer.raw)
	}
	return nil
}

func (w *world) valueMatches(pointer, pattern string) error {
	text := fmt.Sprint(w.answer.at(pointer))
	matched, err := regexp.MatchString(w.named(pattern), text)
	if err == nil && !matched {
		err = fmt.Errorf("it is %q", text)
	}
	return err
}

func (w *world) listHolds(pointer, text string) error {
	want, err := decode([]byte(w.named(text)))
	if err != nil {
		return err
	}
	list, _ := w.answer.at(pointer).([]any)
	if !slices.ContainsFunc(list, func(v any) bool { return same(v, want) }) {
		return fmt.Errorf("it is %v", list)
	}
	return nil
}

func (w *world) ownNumbers() error {
	for i, a := range w.many {
		text := strconv.Itoa(i) + "\n"
		if a.at("/exit_code") != json.Number(strconv.Itoa(i)) || a.at("/stdout/text") != text ||
			a.at("/stderr/text") != text {
			return fmt.Errorf("response %d: %s", i, a.raw)
		}
	}
	return nil
}
