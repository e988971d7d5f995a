package command

import "github.com/spf13/cobra"

func newConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and show the configuration"}
	cmd.AddCommand(newConfigCheck(a), newConfigShow(a), newConfigSchema(a))
	return group(cmd)
}
