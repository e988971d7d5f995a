package command

import (
	"context"

	"github.com/spf13/cobra"
)

func newCompletion(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	cmd := &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "Print the completion script of a shell",
		Example:               "  source <(dray completion bash)\n  dray completion fish > ~/.config/fish/completions/dray.fish",
		ValidArgs:             shells,
		Args:                  exactArgs(1, "the name of a shell", "one of bash, zsh, fish"),
		DisableFlagsInUseLine: true,
	}
	cmd.RunE = a.run(func(_ context.Context, args []string) error {
		switch root := cmd.Root(); args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		default:
			return usagef("there are no completions for %q", args[0]).WithHint("one of bash, zsh, fish")
		}
	})
	return cmd
}
