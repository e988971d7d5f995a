package policy

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	cedar "github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

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
	Effect Effect `json:"effect"`
	// Policies are the ids of the policies that decided, FILE#NAME. Empty if none matched.
	Policies []string `json:"policies"`
	// Reasons are sentences that say why, at least one unless the effect is Allow.
	Reasons []string `json:"reasons"`
}

// Options configure an engine.
type Options struct {
	// Files are absolute paths of policy files, in the order of the configuration. [Default] stands
	// for the embedded policies. Without files every call is allowed, except calls of tools that
	// require an approval.
	Files []string
	// Mounts returns the mounts of an existing container, by its workspace or its name. If it is nil,
	// paths of containers cannot be resolved.
	Mounts MountsFunc
}

// MountsFunc returns the mounts of a container. It fails if the container does not exist.
type MountsFunc func(ctx context.Context, workspace, container string) ([]dray.Mount, error)

// rule is a policy with its effect and its text for humans.
type rule struct {
	id     string
	policy *cedar.Policy
	effect Effect
	reason string
}

// All yields the policy. It makes a rule a [cedar.PolicyIterator] of one policy: Cedar knows no
// ask, so each rule is evaluated by itself.
func (r rule) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		yield(cedar.PolicyID(r.id), r.policy)
	}
}

// Engine decides about calls by one set of policies. It is safe for concurrent use.
type Engine struct {
	rules  []rule
	digest string
	mounts MountsFunc
}

// Digest changes with the text of the policies.
func (e *Engine) Digest() string { return e.digest }

var (
	actionList = types.NewEntityUID("Action", "list")
	actionCall = types.NewEntityUID("Action", "call")
)

// Decide decides about a call, whose invocation, tool and route are set.
func (e *Engine) Decide(ctx context.Context, call dray.Call) Decision {
	if len(e.rules) == 0 {
		return atLeastApproval(call.Tool, Decision{Effect: Allow})
	}
	return e.DecideFacts(call.Invocation.Principal, call.Tool, FactsOf(ctx, call, e.mounts))
}

// Explain returns the decision of Decide. For a call with a nil input, which is not known yet, it
// returns the decision that holds for every input.
func (e *Engine) Explain(ctx context.Context, call dray.Call) Decision {
	if call.Invocation.Input == nil {
		return atLeastApproval(call.Tool, e.DecideList(call.Invocation.Principal, call.Tool))
	}
	return e.Decide(ctx, call)
}

// DecideFacts decides about a call with the given facts.
func (e *Engine) DecideFacts(principal string, tool *dray.Tool, facts Facts) Decision {
	if len(e.rules) == 0 {
		return atLeastApproval(tool, Decision{Effect: Allow})
	}
	return atLeastApproval(tool, e.decide(principal, actionCall, tool, facts.record()))
}

// decide returns the strongest effect of the policies that match. It denies if a policy cannot be
// evaluated, and if none matches.
func (e *Engine) decide(principal string, action types.EntityUID, tool *dray.Tool,
	facts types.Record,
) Decision {
	request := cedar.Request{
		Principal: principalUID(principal), Action: action, Resource: toolUID(tool), Context: facts,
	}
	entities := entitiesOf(principal, tool)
	matched := map[Effect]*Decision{}
	for _, r := range e.rules {
		effect, reason := r.effect, r.reason
		_, found := cedar.Authorize(r, entities, request)
		switch {
		case len(found.Errors) > 0:
			effect, reason = Deny, "policy "+r.id+" cannot be evaluated: "+found.Errors[0].Message
		case len(found.Reasons) == 0:
			continue
		}
		d := matched[effect]
		if d == nil {
			d = &Decision{Effect: effect}
			matched[effect] = d
		}
		d.Policies = append(d.Policies, r.id)
		if reason != "" {
			d.Reasons = append(d.Reasons, reason)
		}
	}
	for _, effect := range []Effect{Deny, Ask, Allow} {
		if d := matched[effect]; d != nil {
			return *d
		}
	}
	return Decision{Effect: Deny, Reasons: []string{"no policy permits it"}}
}

// DecideList returns Deny for a tool that must not be listed: every call of it by the principal is
// denied, whatever the input is, or a policy forbids to list it.
func (e *Engine) DecideList(principal string, tool *dray.Tool) Decision {
	if len(e.rules) == 0 {
		return Decision{Effect: Allow}
	}
	listing := e.decide(principal, actionList, tool, types.NewRecord(nil))
	if len(listing.Policies) > 0 && listing.Effect == Deny {
		return listing
	}
	env := eval.Env{
		Entities: entitiesOf(principal, tool), Principal: principalUID(principal), Action: actionCall,
		Resource: toolUID(tool), Context: eval.Variable("context"),
	}
	permitted := false
	for _, r := range e.rules {
		partial, kept := eval.PartialPolicy(env, (*ast.Policy)(r.policy.AST()))
		switch {
		case !kept:
		case r.effect == Deny && len(partial.Conditions) == 0:
			return Decision{Effect: Deny, Policies: []string{r.id}, Reasons: []string{r.reason}}
		case r.effect != Deny:
			permitted = true
		}
	}
	if !permitted {
		return Decision{Effect: Deny, Reasons: []string{"no policy permits any call of it"}}
	}
	return Decision{Effect: Allow}
}

// atLeastApproval returns d with Ask in place of Allow if the tool requires an approval (RT-05).
func atLeastApproval(tool *dray.Tool, d Decision) Decision {
	if tool.Capabilities.HumanApprovalRequired && d.Effect != Deny {
		if d.Effect == Allow {
			d = Decision{Effect: Ask} // what allows it is no reason to ask
		}
		d.Reasons = append(d.Reasons, "tool "+tool.Name+" requires that a human approves each call")
	}
	return d
}

func principalUID(principal string) types.EntityUID {
	return types.NewEntityUID("Principal", types.String(principal))
}

func toolUID(tool *dray.Tool) types.EntityUID {
	return types.NewEntityUID("Tool", types.String(tool.Name))
}

// entitiesOf returns the entities of the principal and of the tool.
func entitiesOf(principal string, tool *dray.Tool) types.EntityMap {
	kind, name, _ := strings.Cut(principal, ":")
	c := tool.Capabilities
	all := types.EntityMap{}
	for _, entity := range []types.Entity{
		{UID: principalUID(principal), Attributes: types.NewRecord(types.RecordMap{
			"kind": types.String(kind), "name": types.String(name),
		})},
		{UID: toolUID(tool), Attributes: types.NewRecord(types.RecordMap{
			"name": types.String(tool.Name), "read_only": types.Boolean(c.ReadOnly),
			"network": types.Boolean(c.Network), "unsafe": types.Boolean(c.Unsafe),
			"approval_required": types.Boolean(c.HumanApprovalRequired),
			"starts_process":    types.Boolean(tool.StartsProcess),
			"project":           types.Boolean(tool.Workspace != ""), "writes": textSet(c.Writes),
		})},
	} {
		all[entity.UID] = entity
	}
	return all
}

func textSet(texts []string) types.Set {
	values := make([]types.Value, 0, len(texts))
	for _, s := range texts {
		values = append(values, types.String(s))
	}
	return types.NewSet(values...)
}

// sortedKeys returns the members of a set, sorted. It never returns nil.
func sortedKeys(set map[string]bool) []string {
	return append([]string{}, slices.Sorted(maps.Keys(set))...)
}
