package features

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cucumber/godog"
)

func (w *world) daemonSteps(sc *godog.ScenarioContext) {
	sc.Given(`^a workspace (\S+) with the devcontainer configuration$`, w.makeWorkspace)
	sc.When(`^the devcontainer configuration of the workspace changes to$`, w.changeDevcontainer)
	sc.Given(`^the environment variable (\S+) is "(.*)"$`, w.setVariable)
	sc.Given(`^a daemon with the configuration$`, w.startOwn)
	sc.When(`^I start a daemon with the configuration$`, w.tryStart)
	sc.When(`^I start a second daemon on the same state directory$`, w.startSecond)
	sc.Then(`^the daemon exits with (\d+)$`, w.endsWith)
	sc.Then(`^stderr of the command contains "(.*)"$`, w.says)
	sc.When(`^I stop the daemon$`, func() { w.daemon.stop() })
	sc.When(`^the daemon has logged "(.*)"$`, w.hasLogged)
	sc.Then(`^the log contains "(.*)" with (\S+) "(.*)"$`, w.logHas)
	sc.Then(`^every line of the log is JSON with level, time and event$`, w.logIsJSON)
	sc.Then(`^the log does not contain "(.*)"$`, w.logLacks)
	sc.When(`^I send (GET|POST|DELETE) (\S+)$`, w.askPath)
	sc.When(`^I trust the workspace$`, w.trustWorkspace)
	sc.When(`^I send (GET|POST) (\S+) with (.*)$`, w.askPathWith)
	sc.Then(`^the end event has reason (\S+)$`, w.eventsEnd)
	sc.Then(`^the workspace has (no|one) container$`, w.countContainers)
	sc.When(`^I run dray (.*)$`, w.runDray)
	sc.Then(`^the exit code is (\d+)$`, w.endsWith)
	sc.Then(`^stdout of the command contains "(.*)"$`, w.prints)
	sc.Then(`^the file (\S+) does not exist$`, w.noFile)
}

func (w *world) makeWorkspace(name string, doc *godog.DocString) error {
	folder := filepath.Join(w.root, name)
	w.names["workspace"], w.names["id"] = folder, url.PathEscape(folder)
	w.body["workspace"] = folder
	w.later(func(context.Context) error {
		removeContainers(w.t, folder)
		return nil
	})
	return w.changeDevcontainer(doc)
}

func (w *world) changeDevcontainer(doc *godog.DocString) error {
	return writeFile(filepath.Join(w.names["workspace"], ".devcontainer.json"),
		withImages(w.named(doc.Content)))
}

func (w *world) setVariable(name, value string) error {
	before, was := os.LookupEnv(name)
	w.later(func(context.Context) error {
		if was {
			return os.Setenv(name, before)
		}
		return os.Unsetenv(name)
	})
	return os.Setenv(name, w.named(value))
}

func (w *world) startOwn(doc *godog.DocString) error {
	return w.startIn(filepath.Join(newDir(w.t), "state"), doc)
}

// startIn starts a daemon on a state directory.
func (w *world) startIn(state string, doc *godog.DocString) error {
	if err := w.tryStartIn(state, doc); err != nil {
		return err
	}
	if _, ok := w.daemon.log.await("ready"); !ok {
		return fmt.Errorf("the daemon does not start: %s", w.daemon.log.text())
	}
	return nil
}

func (w *world) tryStart(doc *godog.DocString) error {
	return w.tryStartIn(filepath.Join(newDir(w.t), "state"), doc)
}

func (w *world) tryStartIn(state string, doc *godog.DocString) error {
	w.names["state"], w.names["config"] = state, filepath.Join(filepath.Dir(state), "config.yaml")
	if err := writeFile(w.names["config"], w.named(doc.Content)+"\n"); err != nil {
		return err
	}
	w.launch()
	return nil
}

func (w *world) launch() {
	d := launch(w.names["state"], w.names["config"])
	w.daemon = d
	w.later(func(context.Context) error {
		d.end(w.t)
		return nil
	})
}

func (w *world) startSecond() { w.launch() }

func (w *world) endsWith(code int) error {
	got := w.command.code
	if w.command.stdout == nil {
		got = w.daemon.wait(w.t)
	}
	if got != code {
		return fmt.Errorf("the exit code is %d: %s%s", got, w.daemon.log.text(), w.command.stderr)
	}
	return nil
}

func (w *world) said() string {
	if w.command.stdout != nil {
		return string(w.command.stderr)
	}
	return w.daemon.log.text()
}

func (w *world) says(text string) error {
	if !strings.Contains(w.said(), w.named(text)) {
		return fmt.Errorf("stderr is %q", w.said())
	}
	return nil
}

func (w *world) hasLogged(event string) error {
	if _, ok := w.daemon.log.await(event); !ok {
		return fmt.Errorf("it has not: %s", w.daemon.log.text())
	}
	return nil
}

func (w *world) logHas(event, field, text string) error {
	line, ok := w.daemon.log.await(event)
	if !ok || !strings.Contains(fmt.Sprint(line[field]), w.named(text)) {
		return fmt.Errorf("the line is %v", line)
	}
	return nil
}

func (w *world) logIsJSON() error {
	lines := w.daemon.log.lines()
	if len(lines) == 0 {
		return errors.New("there are no lines")
	}
	for i, line := range lines {
		if line["level"] == nil || line["time"] == nil || line["event"] == nil {
			return fmt.Errorf("line %d is %v", i+1, line)
		}
	}
	return nil
}

func (w *world) logLacks(text string) error {
	if strings.Contains(w.daemon.log.text(), w.named(text)) {
		return fmt.Errorf("it does: %s", w.daemon.log.text())
	}
	return nil
}

func (w *world) askPath(ctx context.Context, method, path string) (err error) {
	w.answer, err = w.daemon.ask(ctx, method, w.named(path), nil)
	return err
}

func (w *world) askPathWith(ctx context.Context, method, path, body string) (err error) {
	w.answer, err = w.daemon.ask(ctx, method, w.named(path), w.named(body))
	return err
}

// trustWorkspace trusts the workspace as it is.
func (w *world) trustWorkspace(ctx context.Context) error {
	const path = "/v1/workspaces/{id}/trust"
	if err := w.askPath(ctx, http.MethodGet, path); err != nil {
		return err
	}
	if w.answer.status != http.StatusOK {
		return nil // a step says what is expected
	}
	return w.askPathWith(ctx, http.MethodPost, path, fmt.Sprintf(`{"hash": %q}`, w.answer.at("/hash")))
}

// eventsEnd reads the followed events to their end.
func (w *world) eventsEnd(reason string) error {
	for w.running.lines.Scan() {
		end, err := decode(w.running.lines.Bytes())
		if err != nil {
			return err
		}
		w.answer = answer{status: http.StatusOK, raw: w.running.lines.Bytes(), value: end}
	}
	return differ(fmt.Sprint(w.answer.at("/invocation/reason")), reason)
}

func (w *world) countContainers(ctx context.Context, count string) error {
	ids, err := containersOf(ctx, w.names["workspace"])
	if err == nil && (count == "one") != (len(ids) == 1) {
		err = fmt.Errorf("it has %d", len(ids))
	}
	return err
}

// runDray runs a command line, whose words are separated by spaces.
func (w *world) runDray(ctx context.Context, line string) {
	w.command = w.daemon.dray(ctx, strings.NewReader(""), strings.Fields(w.named(line))...)
	if w.command.stdout == nil {
		w.command.stdout = []byte{}
	}
}

func (w *world) prints(text string) error {
	if !strings.Contains(string(w.command.stdout), w.named(text)) {
		return fmt.Errorf("stdout is %q, stderr %q", w.command.stdout, w.command.stderr)
	}
	return nil
}

func (w *world) noFile(path string) error {
	if exists(w.named(path)) {
		return errors.New("it does")
	}
	return nil
}
