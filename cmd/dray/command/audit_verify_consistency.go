package command

import (
	"fmt"
)

// consistencyReport is the result of the check of a consistency proof.
type consistencyReport struct {
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
	Origin  string `json:"origin,omitempty"`
	OldSize int64  `json:"old_size,omitempty"`
	Size    int64  `json:"size,omitempty"`
}

func (a *app) runVerifyConsistency(f verifyFlags) error {
	key, err := a.receiptKey(f.key)
	if err != nil {
		return err
	}
	old, err := readFlag("checkpoint", f.checkpoint)
	if err != nil {
		return err
	}
	data, err := readFlag("proof", f.proof)
	if err != nil {
		return err
	}
	before, after, err := key.VerifyConsistency(data, old)
	report := consistencyReport{OK: true, Origin: after.Origin, OldSize: before.Size, Size: after.Size}
	if err != nil {
		report = consistencyReport{Message: err.Error()}
	}
	if err := a.printConsistency(report); err != nil || report.OK {
		return err
	}
	return exitError(exitFailed)
}

func (a *app) printConsistency(r consistencyReport) (err error) {
	switch {
	case a.json:
		return a.printJSON(r)
	case !r.OK:
		_, err = fmt.Fprintf(a.out, "invalid: %s\n", escapeLine(r.Message))
	default:
		_, err = fmt.Fprintf(a.out, "ok: the first %d events are in the first %d of %s, unchanged\n",
			r.OldSize, r.Size, escapeLine(r.Origin))
	}
	return outputError(err)
}
