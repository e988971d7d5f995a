package command

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/audit"
)

func newAuditBackup(a *app) *cobra.Command {
	var withKeys bool
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the audit log to a new directory",
		Long: `backup copies the audit log of the state directory, as it is at one moment, with the
captured output, inputs and files, the checkpoints and the public key. The daemon may
run: it is not blocked. The copy is checked, and gets its name when it is complete
and on disk; until then it is DIR with ".partial-" in its name, which can be removed
if a backup was interrupted. backup.json lists the files with their SHA-256.

Private keys are only copied with --with-keys. Store them apart from the log: both
together can sign a forged log. A daemon opens a restored log only with its key.`,
		Example: "  dray audit backup /backup/dray-2026-01-31",
		Args:    oneArg("the directory to create", "name one that does not exist"),
	}
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&withKeys, "with-keys", false, "also copy the private keys")
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		return a.runAuditBackup(ctx, args[0], withKeys)
	})
	return cmd
}

// backupReport is what --json prints.
type backupReport struct {
	Dir    string `json:"dir"`
	Events int64  `json:"events"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Keys   bool   `json:"keys"`
}

func (a *app) runAuditBackup(ctx context.Context, dir string, withKeys bool) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("find the directory: %w", err)
	}
	p := newProgress(a.err, progressDelay)
	defer p.clear()
	made, err := audit.Backup(ctx, audit.BackupOptions{
		Path: cfg.State.AuditDB(), CapturesDir: cfg.State.Captures(), Dir: dir, WithKeys: withKeys,
		Progress: func(what string, done, total int64) {
			p.count("backup", what, done, total)
		},
	})
	if err != nil {
		return err
	}
	p.clear()
	report := backupReport{dir, made.Events, len(made.Files), made.Bytes, made.Keys}
	if a.json {
		return a.printJSON(report)
	}
	keys := "without the private keys"
	if report.Keys {
		keys = "with the private keys"
	}
	_, err = fmt.Fprintln(a.out, escapeLine(fmt.Sprintf("%s: %d events, %d files, %d bytes, %s",
		report.Dir, report.Events, report.Files, report.Bytes, keys)))
	return outputError(err)
}
