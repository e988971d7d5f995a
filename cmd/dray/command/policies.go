package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/devcontainer"
	"github.com/dray-dev/dray/internal/policy"
	"github.com/dray-dev/dray/internal/policy/approval"
	"github.com/dray-dev/dray/internal/tool"
)

// newPolicies returns the engine of the configured policies. It fails with a
// [*config.InvalidError] that has the mistake of each file.
func newPolicies(cfg *config.Config, mounts policy.MountsFunc) (*policy.Engine, error) {
	engine, err := policy.New(policy.Options{Files: cfg.Policy.Files, Mounts: mounts})
	if err == nil {
		return engine, nil
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	invalid := &config.InvalidError{}
	for _, err := range all {
		d := config.Diagnostic{
			Origin: cfg.Origin("policy.files"), Key: "policy.files", Problem: err.Error(),
			Suggestion: "correct policy.files",
		}
		if file, ok := errors.AsType[*policy.FileError](err); ok {
			d.Key = fmt.Sprintf("policy.files[%d]", file.Index)
			d.Value, d.Problem, d.Suggestion = strconv.Quote(file.File), file.Problem, file.Hint
			if file.Line > 0 {
				d.Value = fmt.Sprintf("%s:%d:", strings.Trim(d.Value, `"`), file.Line)
			}
		}
		invalid.Diagnostics = append(invalid.Diagnostics, d)
	}
	return nil, invalid
}

// checkPolicies returns the diagnostics of the policy files.
func checkPolicies(cfg *config.Config) []config.Diagnostic {
	_, err := newPolicies(cfg, nil)
	if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
		return invalid.Diagnostics
	}
	return nil
}

// policyRefusal returns a function that returns the error with which policies end a call, or nil. A
// call with a nil input is one whose input is not known yet.
func policyRefusal(policies *policy.Engine) func(context.Context, dray.Call) error {
	return func(ctx context.Context, c dray.Call) error {
		return approval.Refusal(c, policies.Explain(ctx, c))
	}
}

// policyDenies returns a function that reports whether a tool must not be listed for a principal.
func policyDenies(policies *policy.Engine) func(principal string, t *dray.Tool) bool {
	return func(principal string, t *dray.Tool) bool {
		return policies.DecideList(principal, t).Effect == policy.Deny
	}
}

// offlinePolicies decides about calls by the policies of a configuration, without a daemon.
type offlinePolicies struct {
	policies *policy.Engine
	intake   *call.Intake
}

func newOfflinePolicies(cfg *config.Config) (*offlinePolicies, error) {
	policies, err := newPolicies(cfg, nil)
	if err != nil {
		return nil, err
	}
	tools, err := newToolRegistry(cfg, tool.Options{})
	if err != nil {
		return nil, err
	}
	rules, err := newRouter(cfg, devcontainer.Nearest, nil)
	if err != nil {
		return nil, err
	}
	return &offlinePolicies{policies, &call.Intake{
		Tools: tools, Router: rules, Environments: anyEnvironment{},
		Access: call.Access{UID: os.Geteuid()}, MaxTimeout: cfg.Limits.MaxTimeout,
	}}, nil
}

// anyEnvironment accepts every route: nothing runs.
type anyEnvironment struct{}

func (anyEnvironment) Check(context.Context, dray.Route, dray.Invocation, bool) error { return nil }

// decide returns what the policies decide about a call, and its facts.
func (o *offlinePolicies) decide(ctx context.Context, principal string, req *call.Request,
) (policy.Decision, policy.Facts, error) {
	p, err := o.intake.Prepare(ctx, principal, req)
	if err == nil {
		err = p.RouteErr
	}
	if err != nil {
		return policy.Decision{}, policy.Facts{}, err
	}
	facts := policy.FactsOf(ctx, dray.Call{Invocation: p.Invocation, Tool: p.Tool, Route: p.Route},
		nil)
	return o.policies.DecideFacts(principal, p.Tool, facts), facts, nil
}
