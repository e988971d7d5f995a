package router

import (
	"context"
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
	nearest nearestFunc
}

// nearestFunc returns the closest directory with a devcontainer from dir up to root, both included.
type nearestFunc = func(ctx context.Context, dir, root string) (workspace string, ok bool)

// New returns a router. It fails if a rule names a container that is not configured.
func New(rules Rules, nearest nearestFunc) (*Router, error) {
	return &Router{rules: rules, nearest: nearest}, rules.check()
}

// hostValue is the value of an override or fallback that selects the host.
const hostValue = string(dray.KindHost)

// Rules are the configured part of routing. Each value is "host", a name from Containers, or the
// absolute directory of a workspace. A blank value is absent.
type Rules struct {
	Override string
	Fallback string
	// Plans are the rules of plans by the plan id in the context of a call.
	Plans map[string]PlanRules
	// Containers maps the configured names to their workspaces, which may be empty.
	Containers map[string]string
	// IsRegistered reports whether a container was given a name while the daemon runs. It may be nil.
	IsRegistered func(name string) bool
}

// PlanRules are the rules of one plan.
type PlanRules struct {
	Override string
	Fallback string
}

// check returns an error for a value that names nothing, so that a misspelled rule prevents the
// start instead of failing every call.
func (r Rules) check() error {
	for name := range r.Containers {
		if !lexical.IsName(name) || name == hostValue {
			return fmt.Errorf("containers.%s: %q cannot be the name of a container", name, name)
		}
	}
	if _, ok := r.Plans[""]; ok {
		return fmt.Errorf("routing.plans: a plan needs a name: without one it would apply to every call")
	}
	all := []source{{"routing.override", r.Override}, {"routing.fallback", r.Fallback}}
	for _, id := range slices.Sorted(maps.Keys(r.Plans)) {
		p := r.Plans[id]
		all = append(all, source{planKey(id, "override"), p.Override},
			source{planKey(id, "fallback"), p.Fallback})
	}
	for _, s := range all { // in a fixed order
		if _, err := r.resolve(s); err != nil && !blank(s.value) {
			return fmt.Errorf("check routing: %w", err)
		}
	}
	return nil
}

func planKey(id, field string) string { return "routing.plans." + id + "." + field }

// source is a value of a rule, and the configuration key or the field of the call that has it.
type source struct{ where, value string }

// resolve returns the target that a value names. It fails with invalid_request for a malformed
// value and with container_not_found for an unknown name: neither ever means the host (RT-02).
func (r Rules) resolve(s source) (target, error) {
	if s.value == hostValue {
		return target{kind: dray.KindHost}, nil
	}
	if filepath.IsAbs(s.value) && filepath.Clean(s.value) == s.value &&
		!strings.ContainsRune(s.value, 0) {
		return target{kind: dray.KindContainer, workspace: s.value}, nil
	}
	if !lexical.IsName(s.value) {
		return target{}, malformed(s)
	}
	workspace, ok := r.Containers[s.value]
	if !ok && (r.IsRegistered == nil || !r.IsRegistered(s.value)) {
		return target{}, dray.Errorf(dray.CodeContainerNotFound,
			"%s names container %q, which is not configured", s.where, s.value).
			WithHint("%s", r.known())
	}
	return target{kind: dray.KindContainer, container: s.value, workspace: workspace}, nil
}

func malformed(s source) error {
	e := dray.Errorf(dray.CodeInvalidRequest, "%s: %q is not a container or a workspace", s.where,
		s.value).
		WithHint("use host, a configured container, or the clean absolute path of a workspace")
	if field, ok := strings.CutPrefix(s.where, "call."); ok {
		pointer := dray.JSONPointer("", strings.Split(field, ".")...)
		e.Details = []dray.Detail{{Pointer: pointer, Message: "is malformed"}}
	}
	return e
}

func (r Rules) known() string {
	if len(r.Containers) == 0 {
		return "no container is configured: add it under containers, or use host"
	}
	return "configured containers: " + strings.Join(slices.Sorted(maps.Keys(r.Containers)), ", ")
}

// target is the environment that a rule names.
type target struct {
	kind                 dray.EnvironmentKind
	container, workspace string
}

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

// blank reports whether a value counts as absent (EX-01). Other values are never trimmed.
func blank(s string) bool { return strings.TrimSpace(s) == "" }
