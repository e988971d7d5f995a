// Package router decides where a call runs, and says why.
//
// A decision is pure: it depends on the call, on the configured rules, on what the tool asks for
// and on which folders hold a devcontainer, never on what runs at the moment. So a dry run gives
// the answer that execution would give, and a container that is down is an error further inside,
// never a reason to look at another rule.
//
// The rules are looked at in this order, and the first that says anything decides:
//
//	call.container         the call names a container
//	call.environment       the call says host or container; auto says nothing
//	plan.override          routing.plans.NAME.override, then the call's own plan.override
//	project.override       routing.override
//	tool.environment       a tool of host, or one of a specific container
//	devcontainer.nearest   a devcontainer in the working folder or above it, up to the workspace
//	plan.fallback          routing.plans.NAME.fallback, then the call's own plan.fallback
//	project.fallback       routing.fallback
//	host                   nothing else spoke
//
// What is configured for a plan goes before what the call says about its plan: a caller may fill in
// what the operator left open, and can never undo what the operator said. That the call's own
// container or environment goes before every override is the contract's order; what a tool requires
// holds even against them.
//
// After a rule has decided, what the tool requires is held against it. A tool of host that a call
// or an override sends into a container, one that requires a container and would run on the host,
// one of a specific container that is sent into another: each is route_conflict, and the error
// names both rules. A tool that prefers a container accepts the host where the rules lead there.
package router
