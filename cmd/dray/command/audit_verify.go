package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/audit/proof"
)

// verifyFlags are the flags of audit verify.
type verifyFlags struct {
	checkpoint, proof, receipt, key string
	repair                          bool
}

func newAuditVerify(a *app) *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the audit log, a receipt or a proof",
		Long: `verify reads the whole audit log and checks each event against its hash, the order
of events, the rows of calls and changed files against the events, the files in
captures/, the indexes, and the last checkpoints. It changes nothing, and works
beside a running daemon and without one. With --checkpoint it also proves that the
log has everything that it had when that checkpoint was signed.

With --receipt it checks a receipt instead, with the public key alone: it needs no
state directory if --key is given.

With --checkpoint and --proof it checks that the log extended the checkpoint when the
proof was made by dray audit checkpoint --since: likewise with the public key alone.

--repair computes again what follows from events: rows of calls and changed files,
hashes of the Merkle log, indexes. It never changes an event and invents nothing.
The daemon must not run. A copy of the database is made first.

It exits with 1 if anything was found.`,
		Example: "  dray audit verify --checkpoint monday.note\n" +
			"  dray audit verify --receipt call.receipt --key audit.pub\n" +
			"  dray audit verify --checkpoint monday.note --proof tuesday.proof --key audit.pub",
		Args: noArgs,
	}
	a.jsonFlag(cmd)
	cmd.Flags().StringVar(&f.checkpoint, "checkpoint", "",
		"a checkpoint that the log must extend, a `file`")
	cmd.Flags().StringVar(&f.proof, "proof", "",
		"check this proof that the log extends the checkpoint, a `file`; not the log")
	cmd.Flags().StringVar(&f.receipt, "receipt", "", "check this receipt, a `file`")
	cmd.Flags().StringVar(&f.key, "key", "",
		"the `file` with the public key of the checkpoint or receipt (default: that of the log)")
	cmd.Flags().BoolVar(&f.repair, "repair", false, "correct what follows from events")
	cmd.MarkFlagsMutuallyExclusive("receipt", "checkpoint")
	cmd.MarkFlagsMutuallyExclusive("receipt", "proof", "repair")
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		switch {
		case f.receipt != "":
			return a.runVerifyReceipt(f)
		case f.proof != "" && f.checkpoint == "":
			return usagef("--proof requires --checkpoint")
		case f.proof != "":
			return a.runVerifyConsistency(f)
		case f.key != "" && f.checkpoint == "":
			return usagef("--key requires --checkpoint or --receipt")
		default:
			return a.runVerify(ctx, f)
		}
	})
	return cmd
}

func (a *app) runVerify(ctx context.Context, f verifyFlags) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	p := newProgress(a.err, progressDelay)
	defer p.clear()
	opts := audit.VerifyOptions{
		Path: cfg.State.AuditDB(), CapturesDir: cfg.State.Captures(),
		Progress: func(done, total int64) { p.count("verify", "events", done, total) },
	}
	if f.checkpoint != "" {
		if opts.Checkpoint, err = readFlag("checkpoint", f.checkpoint); err != nil {
			return err
		}
	}
	if f.key != "" {
		key, err := readKeyFlag(f.key)
		if err != nil {
			return err
		}
		opts.Key = &key
	}
	if f.repair {
		done, err := audit.RepairLog(ctx, opts)
		p.clear()
		return a.printRepair(done, err)
	}
	report, err := audit.Verify(ctx, opts)
	p.clear()
	return a.printFindings(report, report, err)
}

func (a *app) printRepair(done audit.Repair, err error) error {
	if err == nil && !a.json {
		_, err = fmt.Fprintf(a.out, "copy from before: %s\nfound: %d, left: %d\n",
			escapeLine(done.Backup), len(done.Before.Findings)+done.Before.Omitted,
			len(done.After.Findings)+done.After.Omitted)
	}
	return a.printFindings(done, done.After, err)
}

// printFindings prints a report, or v with --json, and fails if there are findings.
func (a *app) printFindings(v any, report audit.Report, err error) error {
	switch {
	case err != nil:
		return err
	case a.json:
		err = a.printJSON(v)
	default:
		err = a.writeReport(report)
	}
	if err == nil && !report.OK {
		return exitError(exitFailed)
	}
	return err
}

func (a *app) writeReport(report audit.Report) error {
	for _, note := range report.Notes {
		fmt.Fprintf(a.err, "dray: %s\n", escapeLine(note))
	}
	if report.OK {
		_, err := fmt.Fprintf(a.out,
			"ok: %d events, %d without body, %d captures, %d checkpoints\nroot: %s\n", report.Events,
			report.Pruned, report.Captures, report.Checkpoints, report.Root)
		return outputError(err)
	}
	t := table{head: []string{"KIND", "SEQ", "CALL", "COLUMN", "EXPECTED", "GOT", "MESSAGE"}}
	for _, f := range report.Findings {
		t.add(f.Kind, strconv.FormatInt(f.Seq, 10), cmp.Or(f.Invocation, "-"), cmp.Or(f.Column, "-"),
			cmp.Or(f.Expected, "-"), cmp.Or(f.Got, "-"), f.Message)
	}
	if err := t.write(a.out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.err, "dray: %d findings\n", len(report.Findings)+report.Omitted)
	return outputError(err)
}

// receiptReport is the result of the check of a receipt.
type receiptReport struct {
	OK         bool                 `json:"ok"`
	Message    string               `json:"message,omitempty"`
	Invocation string               `json:"invocation,omitempty"`
	Origin     string               `json:"origin,omitempty"`
	Size       int64                `json:"size,omitempty"`
	Events     []proof.ReceiptEvent `json:"events,omitempty"`
}

func (a *app) runVerifyReceipt(f verifyFlags) error {
	key, err := a.receiptKey(f.key)
	if err != nil {
		return err
	}
	data, err := readFlag("receipt", f.receipt)
	if err != nil {
		return err
	}
	r, c, err := key.VerifyReceipt(data)
	report := receiptReport{OK: err == nil, Origin: c.Origin, Size: c.Size, Events: r.Events}
	if err != nil {
		report.Message = err.Error()
	} else {
		report.Invocation = r.Events[0].Invocation
	}
	if err := a.printReceipt(report); err != nil || report.OK {
		return err
	}
	return exitError(exitFailed)
}

func (a *app) printReceipt(r receiptReport) error {
	switch {
	case a.json:
		return a.printJSON(r)
	case !r.OK:
		_, err := fmt.Fprintf(a.out, "invalid: %s\n", escapeLine(r.Message))
		return outputError(err)
	}
	_, err := fmt.Fprintf(a.out, "ok: call %s, in the first %d events of %s\n",
		escapeLine(r.Invocation), r.Size, escapeLine(r.Origin))
	for _, e := range r.Events {
		if err == nil {
			_, err = fmt.Fprintf(a.out, "event %d  %s  %s\n", e.Seq, escapeLine(e.Kind),
				time.Unix(0, e.At).UTC().Format(time.RFC3339Nano))
		}
	}
	return outputError(err)
}

// receiptKey returns the public key in a file, or that of the log.
func (a *app) receiptKey(file string) (proof.Verifier, error) {
	if file != "" {
		return readKeyFlag(file)
	}
	cfg, err := a.load()
	if err != nil {
		return proof.Verifier{}, err
	}
	return audit.PublicKey(cfg.State.AuditDB())
}

// readKeyFlag returns the public key in the file that --key names.
func readKeyFlag(file string) (proof.Verifier, error) {
	key, err := audit.ReadPublicKey(file)
	if err != nil {
		return proof.Verifier{}, usagef("cannot read the file of --key: %w", err)
	}
	return key, nil
}

// readFlag returns the content of the file that a flag names.
func readFlag(flag, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("cannot read the file of --%s: %w", flag, err)
	}
	return data, nil
}
