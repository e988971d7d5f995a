package api

import (
	"context"
	"fmt"
	"net/http"
	"path"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/internal/lexical"
)

// recordFunc commits an event to the audit log.
type recordFunc func(ctx context.Context, body audit.Body) error

// do records an act before it is done, and once more with its error if it fails: event returns the
// body for an error. Without a record nothing is done.
func (record recordFunc) do(ctx context.Context, event func(failure string) audit.Body,
	act func(ctx context.Context) error,
) error {
	if err := record(ctx, event("")); err != nil {
		return err
	}
	err := act(ctx)
	if err == nil {
		return nil
	}
	e := dray.AsError(err)
	// also if the client has disconnected; the error of the act goes first
	_ = record(context.WithoutCancel(ctx), event(fmt.Sprintf("%s: %s", e.Code, e.Message)))
	return err
}

// maxRecordedText bounds the texts of a request in an event, in bytes.
const maxRecordedText = 300

// recordedText returns a text of a request that nothing has checked yet, for an event.
func recordedText(s string) string { return lexical.PlainLine(s, maxRecordedText) }

// onForeignCall records that a request changes the call of another principal (SE-06).
func (record recordFunc) onForeignCall(r *http.Request, id, owner string) error {
	return record(r.Context(), &audit.OperatorAct{
		Principal: principal(r), Owner: owner, Action: path.Base(r.URL.Path), Invocation: id,
	})
}
