package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
)

// doctorTimeout bounds each check that waits for another program.
const doctorTimeout = 10 * time.Second

func newDoctor(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything that dray needs on this machine",
		Long: `doctor checks what a daemon with these flags and environment variables needs: the
configuration, the state directory, the disk, the audit log, the container engine and
its versions, the devcontainer CLI, the agents, cgroups, the directories for host
tools, and the running daemon. It prints a line for each check, and a fix for each
warning and error. It does not start a daemon. It exits with 1 if there is an error.`,
		Example: "  dray doctor\n  dray doctor --json",
		Args:    noArgs,
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error { return a.runDoctor(ctx) })
	return cmd
}

// The results of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkError   = "error"
)

// finding is the result of one check.
type finding struct {
	Check   string `json:"check"`
	Status  string `json:"status"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// doctor collects findings. All checks run, also after an error.
type doctor struct {
	app      *app
	cfg      *config.Config
	findings []finding
}

func (a *app) runDoctor(ctx context.Context) error {
	d := &doctor{app: a}
	cfg, err := a.load()
	if err != nil {
		d.invalid(err)
	} else {
		d.cfg = cfg
		d.checkAll(ctx)
	}
	d.checkAgents()
	if err := d.print(); err != nil {
		return err
	}
	for _, f := range d.findings {
		if f.Status == checkError {
			return exitError(exitFailed)
		}
	}
	return nil
}

func (d *doctor) ok(check, format string, args ...any) {
	d.findings = append(d.findings, finding{check, checkOK, fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(check, fix, format string, args ...any) {
	d.findings = append(d.findings, finding{check, checkWarning, fmt.Sprintf(format, args...), fix})
}

// fail adds an error. Its hint is the fix, or else fix.
func (d *doctor) fail(check string, err error, fix string) {
	message := err.Error()
	if known, ok := errors.AsType[*dray.Error](err); ok {
		fix = cmp.Or(known.Hint, fix)
	}
	d.findings = append(d.findings, finding{check, checkError, message, fix})
}

// invalid adds each problem of an invalid configuration.
func (d *doctor) invalid(err error) {
	invalid, ok := errors.AsType[*config.InvalidError](err)
	if !ok {
		d.fail("configuration", err, "see dray config check")
		return
	}
	for _, p := range invalid.Diagnostics {
		d.findings = append(d.findings,
			finding{"configuration", checkError, p.Summary(), p.Suggestion})
	}
}

// messageColumn is where messages begin.
const messageColumn = 27

// printWrapped prints a line. On a terminal it continues in a column below.
func (a *app) printWrapped(line string, column int) error {
	lines := []string{line}
	if isTerminal(a.out) {
		lines = wrapLine(line, max(columns(a.out), minWrapWidth), column)
	}
	_, err := io.WriteString(a.out, strings.Join(lines, "\n")+"\n")
	return outputError(err)
}

// print writes the findings as lines, or as one JSON value.
func (d *doctor) print() error {
	if d.app.json {
		return d.app.printJSON(struct {
			OK       bool      `json:"ok"`
			Findings []finding `json:"findings"`
		}{d.count(checkError) == 0, d.findings})
	}
	for _, f := range d.findings {
		lines := []string{fmt.Sprintf("%-7s  %-16s  %s", f.Status, f.Check, escapeLine(f.Message))}
		if f.Fix != "" {
			lines = append(lines, strings.Repeat(" ", messageColumn)+"fix: "+escapeLine(f.Fix))
		}
		for _, line := range lines {
			if err := d.app.printWrapped(line, messageColumn); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(d.app.out, "\nerrors: %d, warnings: %d\n", d.count(checkError),
		d.count(checkWarning))
	return outputError(err)
}

func (d *doctor) count(status string) (n int) {
	for _, f := range d.findings {
		if f.Status == status {
			n++
		}
	}
	return n
}

// checkAll runs the checks of a configuration that could be read.
func (d *doctor) checkAll(ctx context.Context) {
	d.checkConfig()
	for _, check := range []func(context.Context){
		d.checkDisks, d.checkAudit, d.checkDaemon, d.checkEngine, d.checkPath, d.checkCLI,
	} {
		bounded, cancel := context.WithTimeout(ctx, doctorTimeout)
		check(bounded)
		cancel()
	}
	d.checkPython()
	d.checkPyodide(ctx)
	d.checkCgroups()
	d.checkRoots()
	d.checkPolicies()
	d.checkServers()
}

func (d *doctor) checkConfig() {
	if err := checkStart(d.cfg); err != nil {
		d.invalid(err)
	} else {
		d.ok("configuration", "%s", cmp.Or(d.cfg.File,
			"defaults and variables only: there is no "+d.cfg.FileToEdit()))
	}
	if d.cfg.CheckState() != nil {
		return // reported with the configuration
	}
	_, err := os.Stat(string(d.cfg.State))
	if errors.Is(err, os.ErrNotExist) {
		d.ok("state directory", "%s does not exist yet: the first daemon creates it", d.cfg.State)
		return
	}
	d.ok("state directory", "%s", d.cfg.State)
}
