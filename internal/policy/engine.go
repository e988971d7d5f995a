package policy

import (
	"context"

	"github.com/dray-dev/dray"
)

// Effect is what a policy decides about a call.
type Effect string

// The effects, the weakest first. If policies of several effects match a call, the strongest
// decides.
const (
	Allow Effect = "allow"
	Ask   Effect = "ask"
	Deny  Effect = "deny"
)

// Decision is what the policies decide about a call, and why.
type Decision struct {
	Effect Effect
	// Policies are the ids of the policies that decided, FILE#NAME. Empty if none matched.
	Policies []string
	// Reasons are sentences that say why, at least one unless the effect is Allow.
	Reasons []string
}

// Options configure an engine.
type Options struct {
	// Files are the policy files in the order of the configuration. Without any, every call is
	// allowed, except calls of tools that require an approval.
	Files []string
}

// Engine decides about calls by one set of policies. It is safe for concurrent use.
type Engine struct{}

// New reads and checks the policy files.
func New(Options) (*Engine, error) { return &Engine{}, nil }

// Decide decides about a call, whose invocation, tool and route are set.
func (e *Engine) Decide(_ context.Context, call dray.Call) Decision {
	return atLeastApproval(call.Tool, Decision{Effect: Allow})
}

// DecideList returns Deny for a tool whose calls by a principal are denied whatever their input is:
// such a tool is not listed.
func (e *Engine) DecideList(string, *dray.Tool) Decision { return Decision{Effect: Allow} }

// atLeastApproval makes Ask of Allow for a tool that requires an approval (RT-05).
func atLeastApproval(tool *dray.Tool, d Decision) Decision {
	if tool.Capabilities.HumanApprovalRequired && d.Effect != Deny {
		d.Effect = Ask
		d.Reasons = append(d.Reasons, "tool "+tool.Name+" requires that a human approves each call")
	}
	return d
}
