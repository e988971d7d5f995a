package router

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/lexical"
)

// Router decides by fixed rules. It is safe for concurrent use.
type Router struct {
	rules   Rules
	nearest func(dir, workspaceRoot string) (folder string, ok bool)
}

// New makes a router and refuses rules that name nothing known. Nearest finds the closest folder
// with a devcontainer from dir up to workspaceRoot, both included.
func New(rules Rules, nearest func(dir, workspaceRoot string) (folder string, ok bool),
) (*Router, error) {
	if err := rules.check(); err != nil {
		return nil, err
	}
	return &Router{rules: rules, nearest: nearest}, nil
}

// hostValue is the one value of an override or fallback that leads to the host.
const hostValue = string(dray.KindHost)

// Rules are the configured part of routing. Each value is "host", a name from Containers, or a
// workspace's absolute folder; blank says nothing.
type Rules struct {
	Override string
	Fallback string
	// Plans holds what is configured for a plan, by the plan id that a call's context carries.
	Plans map[string]PlanRules
	// Containers holds the configured names, each with its workspace folder, which may be empty.
	Containers map[string]string
}

// PlanRules are the rules of one plan.
type PlanRules struct {
	Override string
	Fallback string
}

// check finds values that lead nowhere, so that a mistyped rule stops the start and does not fail
// call after call.
func (r Rules) check() error {
	for name := range r.Containers {
		if !lexical.IsName(name) || name == hostValue {
			return fmt.Errorf("containers.%s: %q cannot name a container", name, name)
		}
	}
	if _, ok := r.Plans[""]; ok {
		return fmt.Errorf("routing.plans: a plan needs a name, or it would hold for every call without one")
	}
	for _, v := range r.values() {
		if blank(v.value) {
			continue
		}
		if _, err := r.resolve(v); err != nil {
			return fmt.Errorf("check routing: %w", err)
		}
	}
	return nil
}

// values lists what is configured, in a steady order.
func (r Rules) values() []source {
	all := []source{{"routing.override", r.Override}, {"routing.fallback", r.Fallback}}
	for _, id := range slices.Sorted(maps.Keys(r.Plans)) {
		p := r.Plans[id]
		all = append(all, source{planKey(id, "override"), p.Override},
			source{planKey(id, "fallback"), p.Fallback})
	}
	return all
}

func planKey(id, field string) string { return "routing.plans." + id + "." + field }

// source is a value of a rule and where it stands: a configuration key, or a field of the call.
type source struct{ where, value string }

// resolve gives the target that a value names. A malformed value is invalid_request, an unknown
// name container_not_found: neither is ever read as the host (RT-02).
func (r Rules) resolve(s source) (target, error) {
	switch {
	case s.value == hostValue:
		return target{kind: dray.KindHost}, nil
	case strings.HasPrefix(s.value, "/"):
		return workspaceTarget(s)
	case !lexical.IsName(s.value):
		return target{}, malformed(s)
	}
	folder, ok := r.Containers[s.value]
	if !ok {
		return target{}, dray.Errorf(dray.CodeContainerNotFound,
			"%s names container %q, which is not configured", s.where, s.value).
			WithHint("%s", r.known())
	}
	return target{kind: dray.KindContainer, container: s.value, workspace: folder}, nil
}

func workspaceTarget(s source) (target, error) {
	if strings.ContainsRune(s.value, 0) || filepath.Clean(s.value) != s.value {
		return target{}, malformed(s)
	}
	return target{kind: dray.KindContainer, workspace: s.value}, nil
}

func malformed(s source) error {
	e := dray.Errorf(dray.CodeInvalidRequest,
		"%s is %q, which names neither a container nor a workspace", s.where, s.value).
		WithHint("write host, the name of a configured container, or a workspace's clean absolute folder")
	if field, ok := strings.CutPrefix(s.where, "call."); ok {
		e.Details = []dray.Detail{{
			Pointer: "/" + strings.ReplaceAll(field, ".", "/"),
			Message: "is malformed",
		}}
	}
	return e
}

func (r Rules) known() string {
	if len(r.Containers) == 0 {
		return "no container is configured: add it under containers, or name host"
	}
	return "configured are " + strings.Join(slices.Sorted(maps.Keys(r.Containers)), ", ")
}

// target is a place that a rule names.
type target struct {
	kind                 dray.EnvironmentKind
	container, workspace string
}

// String gives the target as a phrase.
func (t target) String() string {
	switch {
	case t.kind == dray.KindHost:
		return "the host"
	case t.container != "":
		return fmt.Sprintf("container %q", t.container)
	default:
		return fmt.Sprintf("the container of %s", t.workspace)
	}
}

// blank says whether a value counts as absent (EX-01). A value that is not blank is never trimmed.
func blank(s string) bool { return strings.TrimSpace(s) == "" }
