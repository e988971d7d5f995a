package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dray-dev/dray/config"
)

func newConfigSchema(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print a JSON Schema of the configuration file, for editors",
		Long: `schema prints a JSON Schema (draft 2020-12) of the configuration file. Editors that
know one complete keys and mark mistakes while you type. What holds between several
keys is for dray config check to say.`,
		Example: `  dray config schema > ~/.config/dray/schema.json
  # and as the first line of config.yaml: # yaml-language-server: $schema=schema.json`,
		Args: noArgs,
	}
	cmd.RunE = a.run(func(context.Context, []string) error {
		_, err := a.out.Write(config.Schema())
		return outputError(err)
	})
	return cmd
}
