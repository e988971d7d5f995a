package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newRoute(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "route", Short: "Explain where calls run"}
	cmd.AddCommand(newRouteExplain(a))
	return group(cmd)
}

func newRouteExplain(a *app) *cobra.Command {
	var flags callFlags
	var input string
	cmd := &cobra.Command{
		Use:     "explain [TOOL]",
		Short:   "Show where a call would run and why, without running it",
		Example: "  dray route explain\n  dray route explain --host shell",
		Args:    atMostOne("the name of one tool"),
	}
	flags.addTarget(cmd)
	cmd.Flags().StringVar(&input, "input", "", "the tool's input, a `JSON` object")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		tool := "exec"
		if len(args) == 1 {
			tool = args[0]
		}
		var value jsontext.Value // without an input, the tool's input is not validated
		if input != "" {
			value = jsontext.Value(input)
			if err := checkInput(value); err != nil {
				return err
			}
		}
		//nolint:contextcheck // it uses the context of cmd
		call, err := flags.call(cmd, tool, value)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runRouteExplain(ctx, c, call) })
	})
	return cmd
}

func (a *app) runRouteExplain(ctx context.Context, c *client.Client, call client.Call) error {
	reply, err := c.Route(ctx, call)
	err = printReply(a, reply, err, func(r client.Route) error {
		return writeSections(a.out, explained(r))
	})
	if err != nil || reply.Value.Error == nil {
		return err
	}
	a.printError(reply.Value.Error)
	return exitError(exitOfCode(reply.Value.Error.Code))
}

// explained returns the decision, then every rule that was evaluated, in order.
func explained(r client.Route) []section {
	decision := routeSection(r.Route)
	decision.title = ""
	evaluated := section{title: "evaluated, in order"}
	for _, c := range r.Candidates {
		value := c.Reason
		if c.Environment != "" {
			value = c.Environment + ": " + value
		}
		evaluated.add(c.Rule, value)
	}
	return []section{decision, evaluated}
}
