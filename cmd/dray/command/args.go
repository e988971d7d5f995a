package command

import "github.com/spf13/cobra"

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, and %q is one", cmd.CommandPath(), args[0])
	}
	return nil
}

// exactArgs wants n arguments and says what they are.
func exactArgs(n int, what, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %s", cmd.CommandPath(), what).WithHint("%s", hint)
		}
		return nil
	}
}

// atMostOne allows one argument.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%s takes %s, and %q is one too many", cmd.CommandPath(), what, args[1])
		}
		return nil
	}
}
