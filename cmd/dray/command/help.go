package command

import (
	"errors"

	"github.com/spf13/cobra"
)

// addHelp adds cobra's command help, which takes a name that it does not know for none at all.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Run, cmd.RunE = nil, runHelp
		}
	}
}

func runHelp(cmd *cobra.Command, args []string) error {
	target, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) == 0 {
		return errors.Join(err, target.Help())
	}
	if !target.HasSubCommands() {
		return usagef("%s has no commands, and %q is none", target.CommandPath(), rest[0]).WithHint("see %s --help", target.CommandPath())
	}
	return usageErrorFrom(target, target.Args(target, rest))
}
