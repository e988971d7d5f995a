package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/internal/client"
)

func newRoute(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "route", Short: "See where calls run"}
	cmd.AddCommand(newRouteExplain(a))
	return group(cmd)
}

func newRouteExplain(a *app) *cobra.Command {
	var to callFlags
	var input string
	cmd := &cobra.Command{
		Use:     "explain [TOOL]",
		Short:   "Say where a call would run, and why; nothing runs",
		Example: "  dray route explain\n  dray route explain --host shell",
		Args:    atMostOne("the name of one tool"),
	}
	to.flags(cmd)
	cmd.Flags().StringVar(&input, "input", "", "the tool's input, a `JSON` object")
	a.jsonFlag(cmd)
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		tool := "exec"
		if len(args) == 1 {
			tool = args[0]
		}
		var value jsontext.Value // left out, the route is that of any input
		if input != "" {
			value = jsontext.Value(input)
			if err := checkInput(value); err != nil {
				return err
			}
		}
		call, err := to.call(cmd, tool, value)
		if err != nil {
			return err
		}
		return a.withClient(func(c *client.Client) error { return a.runRouteExplain(ctx, c, call) })
	})
	return cmd
}

func (a *app) runRouteExplain(ctx context.Context, c *client.Client, call client.Call) error {
	reply, err := c.Route(ctx, call)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printRaw(reply.JSON)
	} else {
		err = writeSections(a.out, explained(reply.Value))
	}
	if err != nil || reply.Value.Error == nil {
		return err
	}
	a.printError(reply.Value.Error)
	return exitError(exitOfCode(reply.Value.Error.Code))
}

// explained lays a decision out: what was decided, and every rule that was looked at, in order.
func explained(r client.Route) []section {
	decided := routeSection(r.Route)
	decided.title = ""
	looked := section{title: "looked at, in order"}
	for _, c := range r.Candidates {
		value := c.Reason
		if c.Environment != "" {
			value = c.Environment + ": " + value
		}
		looked.add(c.Rule, value)
	}
	return []section{decided, looked}
}
