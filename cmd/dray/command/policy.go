package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/dray-dev/dray"
	"github.com/dray-dev/dray/internal/call"
	"github.com/dray-dev/dray/internal/policy"
	"github.com/dray-dev/dray/internal/strictjson"
)

func newPolicy(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Test and explain the policies of calls"}
	cmd.AddCommand(newPolicyTest(a), newPolicyExplain(a), newPolicyShow(a))
	return group(cmd)
}

func newPolicyShow(a *app) *cobra.Command {
	texts := map[string]func() string{"default": policy.DefaultText, "schema": policy.SchemaText}
	cmd := &cobra.Command{
		Use:       "show default|schema",
		Short:     "Print the default policies, or the schema of policies",
		Example:   "  dray policy show default > ~/.config/dray/policy.cedar",
		ValidArgs: []string{"default", "schema"},
		Args:      oneArg("default or schema", "for example: dray policy show schema"),
	}
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		text, ok := texts[args[0]]
		if !ok {
			return usagef("unknown text %q", args[0]).WithHint("use default or schema")
		}
		_, err := io.WriteString(a.out, text())
		return outputError(err)
	})
	return cmd
}

func newPolicyExplain(a *app) *cobra.Command {
	var flags callFlags
	input, principal := "{}", ownPrincipal()
	cmd := &cobra.Command{
		Use:   "explain TOOL",
		Short: "Show what the policies decide about a call and why, without running it",
		Long: `explain prints the effect of the configured policies on a call, the policies that
decided, their reasons, and the facts about the call that policies can ask. It reads
policy.files itself: it does not use or start a daemon, and does not know the tools of
projects. An approval that a human has given is not considered.`,
		Example: `  dray policy explain --input '{"command": "git push"}' shell
  dray policy explain --host --input '{"argv": ["make"]}' exec`,
		Args: oneArg("the name of a tool", "for example: dray policy explain shell"),
	}
	flags.addTarget(cmd)
	cmd.Flags().StringVar(&input, "input", input, "the tool's input, a `JSON` object")
	cmd.Flags().StringVar(&principal, "principal", principal,
		"who calls: uid:N, or token:NAME over TCP (default: you)")
	cmd.Flag("principal").DefValue = ""
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		if err := checkInput(jsontext.Value(input)); err != nil {
			return err
		}
		//nolint:contextcheck // it uses the context of cmd
		made, err := flags.call(cmd, args[0], []byte(input))
		if err != nil {
			return err
		}
		return a.runPolicyExplain(ctx, principal, &call.Request{
			Tool: made.Tool, Input: []byte(input), Workspace: made.Workspace,
			Container: made.Container, Environment: made.Environment, Cwd: made.Cwd, Env: made.Env,
			Context: made.Context, Paths: made.Paths,
		})
	})
	return cmd
}

// ownPrincipal returns the principal of this command's user on the socket.
func ownPrincipal() string { return fmt.Sprintf("uid:%d", os.Geteuid()) }

func (a *app) runPolicyExplain(ctx context.Context, principal string, req *call.Request) error {
	offline, err := a.openOfflinePolicies()
	if err != nil {
		return err
	}
	decision, facts, err := offline.decide(ctx, principal, req)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			policy.Decision
			Facts policy.Facts `json:"facts"`
		}{decision, facts})
	}
	s := section{}
	s.add("effect", string(decision.Effect))
	s.add("policies", strings.Join(decision.Policies, ", "))
	s.add("reasons", strings.Join(decision.Reasons, "; "))
	f := section{title: "facts"}
	for _, fact := range factsText(facts) {
		f.add(fact.name, fact.value)
	}
	return writeSections(a.out, []section{s, f})
}

// factsText returns the facts that are not empty, by the names that policies use.
func factsText(facts policy.Facts) []field {
	one := func(values []string) string {
		if len(values) == 0 {
			return ""
		}
		text, _ := json.Marshal(values) // texts always have a JSON form
		return string(text)
	}
	return []field{
		{"environment", facts.Environment},
		{"container", facts.Container},
		{"workspace", facts.Workspace},
		{"cwd", facts.Cwd},
		{"cwd_inside", fmt.Sprint(facts.CwdInside)},
		{"env", one(facts.Env)},
		{"dangerous_env", one(facts.DangerousEnv)},
		{"argv", one(facts.Argv)},
		{"command", facts.Command},
		{"programs", one(facts.Programs)},
		{"opaque", fmt.Sprint(facts.Opaque)},
		{"opaque_reasons", one(facts.OpaqueReasons)},
		{"reads", one(facts.Reads)},
		{"writes", one(facts.Writes)},
		{"reads_outside", one(facts.ReadsOutside)},
		{"writes_outside", one(facts.WritesOutside)},
	}
}

func (a *app) openOfflinePolicies() (*offlinePolicies, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	return newOfflinePolicies(cfg)
}

func newPolicyTest(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Check that the policies decide about calls as expected",
		Long: `test reads YAML files with cases, and checks each one against the configured
policies. A file is a list of:

  - name: no push              # a text for the output
    call:                      # a call as in POST /v1/invocations
      tool: shell
      input: {command: git push}
      workspace: .             # workspace and cwd: relative to the file
    principal: uid:1000        # who calls; default: you
    expect: deny               # allow, ask or deny
    policy: no-push            # optional: a policy that decides

It prints each case that fails and what decided instead, and exits with 1 if there is
one. It does not use or start a daemon, and runs no call.`,
		Example: "  dray policy test policy_test.yaml",
		Args:    atLeastOne("file", "dray policy test policy_test.yaml"),
	}
	a.jsonFlag(cmd)
	cmd.RunE = a.run(a.runPolicyTest)
	return cmd
}

// policyCase is a case of a file of policy test.
type policyCase struct {
	Name      string        `json:"name"`
	Call      call.Request  `json:"call"`
	Principal string        `json:"principal"`
	Expect    policy.Effect `json:"expect"`
	Policy    string        `json:"policy"`
}

// policyFailure is a case that failed.
type policyFailure struct {
	File string `json:"file"`
	Name string `json:"name"`
	// Problem says what was decided instead.
	Problem string `json:"problem"`
}

func (a *app) runPolicyTest(ctx context.Context, files []string) error {
	offline, err := a.openOfflinePolicies()
	if err != nil {
		return err
	}
	total, failures := 0, []policyFailure{}
	for _, file := range files {
		cases, err := readPolicyCases(file)
		if err != nil {
			return err
		}
		for i, c := range cases {
			total++
			if problem := offline.test(ctx, c); problem != "" {
				name := c.Name
				if name == "" {
					name = fmt.Sprintf("case %d", i+1)
				}
				failures = append(failures, policyFailure{file, name, problem})
			}
		}
	}
	if err := a.printPolicyTest(total, failures); err != nil {
		return err
	}
	if len(failures) > 0 {
		return exitError(exitFailed)
	}
	return nil
}

func (a *app) printPolicyTest(total int, failures []policyFailure) error {
	if a.json {
		return a.printJSON(struct {
			Cases    int             `json:"cases"`
			Failures []policyFailure `json:"failures"`
		}{total, failures})
	}
	var b strings.Builder
	for _, f := range failures {
		fmt.Fprintf(&b, "FAIL %s: %s: %s\n", escapeLine(f.File), escapeLine(f.Name),
			escapeLine(f.Problem))
	}
	fmt.Fprintf(&b, "%d cases, %d failed\n", total, len(failures))
	_, err := io.WriteString(a.out, b.String())
	return outputError(err)
}

// test returns how the decision about a case differs from the expected one, or "".
func (o *offlinePolicies) test(ctx context.Context, c policyCase) string {
	decision, _, err := o.decide(ctx, c.Principal, &c.Call)
	if err != nil {
		return fmt.Sprintf("not decided: %v (%s)", err, dray.CodeOf(err))
	}
	decided := slices.ContainsFunc(decision.Policies, func(id string) bool {
		return c.Policy == "" || id == c.Policy || strings.HasSuffix(id, "#"+c.Policy)
	})
	if decision.Effect == c.Expect && (decided || c.Policy == "") {
		return ""
	}
	want := string(c.Expect)
	if c.Policy != "" {
		want += " by " + c.Policy
	}
	text := fmt.Sprintf("expected %s, decided %s", want, decision.Effect)
	if len(decision.Policies) > 0 {
		text += " by " + strings.Join(decision.Policies, ", ")
	}
	if len(decision.Reasons) > 0 {
		text += ": " + strings.Join(decision.Reasons, "; ")
	}
	return text
}

// maxPolicyCases is the maximum size of a file of cases in bytes.
const maxPolicyCases = 1 << 20

// readPolicyCases reads the cases of a file.
func readPolicyCases(name string) ([]policyCase, error) {
	text, err := readAtMost(name, maxPolicyCases)
	var cases []policyCase
	effects := []policy.Effect{policy.Allow, policy.Ask, policy.Deny}
	if err == nil {
		var given []map[string]any
		if err = yaml.Unmarshal(text, &given); err == nil {
			text, err = json.Marshal(given)
		}
	}
	if err == nil {
		err = strictjson.Decode(text, &cases)
	}
	if err == nil && len(cases) == 0 {
		err = errors.New("it has no cases")
	}
	for i := range cases {
		c := &cases[i]
		if err == nil && !slices.Contains(effects, c.Expect) {
			err = fmt.Errorf("case %d: expect is %q, and must be allow, ask or deny", i+1, c.Expect)
		}
		if c.Principal == "" {
			c.Principal = ownPrincipal()
		}
		c.resolve(filepath.Dir(name))
	}
	if err != nil {
		return nil, invalidCases(name, err)
	}
	return cases, nil
}

// invalidCases returns the error for a file of cases.
func invalidCases(name string, err error) error {
	if known, ok := errors.AsType[*dray.Error](err); ok && len(known.Details) > 0 {
		first := known.Details[0] // the message speaks of the body of a request
		index, member, _ := strings.Cut(strings.TrimPrefix(first.Pointer, "/"), "/")
		if i, err := strconv.Atoi(index); err == nil {
			return usagef("%s: case %d: %s: %s", name, i+1, member, first.Message).
				WithHint("dray policy test --help shows a case")
		}
	}
	if errors.As(err, new(*fs.PathError)) {
		return usagef("%v", err).WithHint("check the spelling of the file")
	}
	return usagef("%s has no valid cases: %v", name, err).
		WithHint("dray policy test --help shows a case")
}

// resolve resolves the paths of a call against the directory of its file.
func (c *policyCase) resolve(dir string) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return // the intake refuses relative paths
	}
	if c.Call.Workspace != "" {
		c.Call.Workspace = absolute(dir, c.Call.Workspace)
	} else if c.Call.Cwd != "" && c.Call.Paths != dray.PathsOfContainer {
		c.Call.Cwd = absolute(dir, c.Call.Cwd)
	}
}

func readAtMost(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return text, err
}
