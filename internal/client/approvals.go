package client

import (
	"context"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Approval is what a human decides about one call.
type Approval struct {
	ID         string         `json:"id"`
	State      string         `json:"state"`
	Principal  string         `json:"principal"`
	Invocation string         `json:"invocation"`
	CreatedAt  time.Time      `json:"created_at"`
	ExpiresAt  time.Time      `json:"expires_at"`
	Request    jsontext.Value `json:"request"` // the call
	DecidedBy  string         `json:"decided_by,omitzero"`
	DecidedAt  time.Time      `json:"decided_at,omitzero"`
	Reason     string         `json:"reason,omitzero"`
	UsedBy     string         `json:"used_by,omitzero"`
}

// Approvals returns the approvals with a state; the empty one is pending, "all" is every state.
func (c *Client) Approvals(ctx context.Context, state string) (Reply[Page[Approval]], error) {
	query := url.Values{}
	if state != "" {
		query.Set("state", state)
	}
	return get[Page[Approval]](ctx, c, "/v1/approvals", query)
}

// Approval returns an approval.
func (c *Client) Approval(ctx context.Context, id string) (Reply[Approval], error) {
	return get[Approval](ctx, c, "/v1/approvals/"+url.PathEscape(id), nil)
}

// Decision is the body of a decision: approve or deny.
type Decision struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason,omitzero"`
}

// Decide decides about an approval.
func (c *Client) Decide(ctx context.Context, id string, d Decision) (Reply[Approval], error) {
	return post[Approval](ctx, c, "/v1/approvals/"+url.PathEscape(id)+"/decision", d)
}
