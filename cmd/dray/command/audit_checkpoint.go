package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/client"
)

func newAuditCheckpoint(a *app) *cobra.Command {
	var out, since string
	var key, newKey bool
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Sign a checkpoint of the audit log",
		Long: `checkpoint prints a signed note with the number of events and their root hash. Keep
it on another machine: dray audit verify --checkpoint then finds every later change
of these events, also by somebody who has the whole state directory.

--since also proves that the log extends an earlier checkpoint. dray audit verify
--checkpoint OLD --proof FILE checks that on any machine with the public key alone. A
witness of transparency logs takes the same file (C2SP tlog-witness).

--key prints the public key, which verifies checkpoints and receipts elsewhere.
--new-key makes a new key, after the old one was lost or to go on with a log that does
not extend its last checkpoint. The daemon must not run. What was signed before
verifies with the previous public key only, which is kept with the old checkpoints.`,
		Example: "  dray audit checkpoint --out monday.note\n" +
			"  dray audit checkpoint --since monday.note --out tuesday.proof\n" +
			"  dray audit checkpoint --key >audit.pub",
		Args: noArgs,
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this `file`")
	cmd.Flags().StringVar(&since, "since", "",
		"also prove that the log extends this checkpoint, a `file` or its number of events")
	cmd.Flags().BoolVar(&key, "key", false, "print the public key")
	cmd.Flags().BoolVar(&newKey, "new-key", false, "replace the key")
	a.jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("key", "new-key", "since")
	cmd.MarkFlagsMutuallyExclusive("json", "out")
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error {
		switch {
		case key:
			return a.runAuditKey(ctx, out)
		case newKey:
			return a.runAuditNewKey(ctx, out)
		}
		return a.runAuditCheckpoint(ctx, since, out)
	})
	return cmd
}

func (a *app) runAuditCheckpoint(ctx context.Context, since, out string) error {
	var old int64
	if since != "" {
		var err error
		if old, err = a.sizeOfCheckpoint(since); err != nil {
			return err
		}
	}
	return a.withClient(func(c *client.Client) (err error) {
		var signed []byte
		if since == "" {
			signed, err = c.Checkpoint(ctx)
		} else {
			signed, err = c.Consistency(ctx, old)
		}
		if err != nil {
			return err
		}
		if since == "" {
			return a.writeText(out, "checkpoint", signed)
		}
		return a.writeText(out, "proof", signed)
	})
}

// sizeOfCheckpoint returns a number of events, or that of the checkpoint in a file.
func (a *app) sizeOfCheckpoint(since string) (int64, error) {
	if n, err := strconv.ParseUint(since, 10, 62); err == nil {
		return int64(n), nil
	}
	key, err := a.receiptKey("")
	if err != nil {
		return 0, err
	}
	signed, err := readFlag("since", since)
	if err != nil {
		return 0, err
	}
	c, err := key.Open(signed)
	if err != nil {
		return 0, usagef("%s: %w", since, err)
	}
	return c.Size, nil
}

func (a *app) runAuditKey(_ context.Context, out string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	public, err := audit.PublicKey(cfg.State.AuditDB())
	if err != nil {
		return err
	}
	return a.writeText(out, "key", []byte(public.String()+"\n"))
}

func (a *app) runAuditNewKey(ctx context.Context, out string) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	public, previous, err := audit.ReplaceKey(ctx, cfg.State.AuditDB())
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "dray: the previous key and its checkpoints are in %s\n", escapeLine(previous))
	return a.writeText(out, "key", []byte(public.String()+"\n"))
}

// writeText writes a text like writeOut. With --json it is the member of an object.
func (a *app) writeText(file, member string, text []byte) error {
	if a.json {
		return a.printJSON(map[string]string{member: string(text)})
	}
	return a.writeOut(file, text)
}

// writeOut writes data to a new or existing file, or to stdout if there is no name.
func (a *app) writeOut(file string, data []byte) error {
	if file == "" && isTerminal(a.out) {
		return copyEscaped(a.out, bytes.NewReader(data))
	}
	if file == "" {
		_, err := a.out.Write(data)
		return outputError(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
