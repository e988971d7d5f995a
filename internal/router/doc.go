// Package router decides where a call runs, and records why.
//
// A decision is pure: it depends on the call, the configured rules, the requirement of the tool and
// on which directories have a devcontainer, never on what is running. A dry run therefore returns
// the route that execution takes, and a stopped container is an error of execution, not a reason to
// try another rule.
//
// The rules are evaluated in this order, and the first that matches decides:
//
//	call.container         the call names a container
//	call.environment       the call requests host or container; auto does not match
//	plan.override          routing.plans.NAME.override, then plan.override of the call
//	project.override       routing.override
//	tool.environment       the tool requires the host, or one specific container
//	devcontainer.nearest   a devcontainer in the working directory or above it, up to the workspace
//	plan.fallback          routing.plans.NAME.fallback, then plan.fallback of the call
//	project.fallback       routing.fallback
//	host                   no other rule matches
//
// The configuration of a plan precedes what the call says about its plan: a caller can set what the
// operator left open, and cannot override what the operator set.
//
// The decision is then checked against the requirement of the tool. If they contradict each other
// the call fails with route_conflict, and the error names both rules. A tool that prefers a
// container accepts the host.
package router
