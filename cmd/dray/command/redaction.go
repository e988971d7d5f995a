package command

import (
	"fmt"
	"os"

	"github.com/dray-dev/dray/audit"
	"github.com/dray-dev/dray/config"
	"github.com/dray-dev/dray/internal/redact"
)

// checkRedaction returns what is wrong with the keys of audit.redact.
func checkRedaction(cfg *config.Config) []config.Diagnostic {
	_, found := redactionRules(cfg, nil)
	return found
}

// openRedaction returns the rules of a configuration with the key of its state directory, which is
// created if there is none.
func openRedaction(cfg *config.Config) (*redact.Rules, error) {
	key, err := audit.LoadHMACKey(cfg.State.RedactionKey())
	if err != nil {
		return nil, err
	}
	rules, found := redactionRules(cfg, key)
	if len(found) > 0 {
		return nil, &config.InvalidError{Diagnostics: found}
	}
	return rules, nil
}

func redactionRules(cfg *config.Config, key []byte) (*redact.Rules, []config.Diagnostic) {
	keys := cfg.Audit.Redact
	rules, invalid := redact.New(redact.Options{
		Key: key, Patterns: keys.Patterns, Names: keys.Env, Variables: knownVariables(cfg),
	})
	var found []config.Diagnostic
	for _, e := range invalid {
		name, values := "audit.redact.patterns", keys.Patterns
		if e.Name {
			name, values = "audit.redact.env", keys.Env
		}
		found = append(found, config.Diagnostic{
			Origin: cfg.Origin(name), Key: fmt.Sprintf("%s[%d]", name, e.Index),
			Value: fmt.Sprintf("%.80q", values[e.Index]), Problem: e.Problem, Suggestion: e.Fix,
		})
	}
	return rules, found
}

// knownVariables returns the variables of the daemon, of the configuration and of its tools.
func knownVariables(cfg *config.Config) []string {
	all := os.Environ()
	add := func(variables map[string]string) {
		for name, value := range variables {
			all = append(all, name+"="+value)
		}
	}
	add(cfg.Devcontainer.LocalEnv)
	for _, t := range cfg.Tools {
		add(t.Env)
	}
	return all
}
