package main

import (
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/spf13/cobra"
)

// complete offers the values that a flag allows.
func complete(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic("completion of --" + flag + ": " + err.Error()) //nolint:forbidigo // there is no such flag; every test would see it
	}
}

// completeKeys offers the keys of the configuration, to be followed by a value.
func completeKeys(cmd *cobra.Command, flag string) {
	keys := config.Keys()
	for i := range keys {
		keys[i] += "="
	}
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)); err != nil {
		panic("completion of --" + flag + ": " + err.Error()) //nolint:forbidigo // as above
	}
}

// withoutBackticks drops what marks the name of a value in the descriptions of flags: help
// pages understand it, shells show it.
type withoutBackticks struct{ out io.Writer }

func (w withoutBackticks) Write(p []byte) (int, error) {
	_, err := io.WriteString(w.out, strings.ReplaceAll(string(p), "`", ""))
	return len(p), err
}

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a shell completion script: bash, zsh, fish or powershell",
		Example: `  source <(cdc-relay completion bash)
  cdc-relay completion zsh > "${fpath[1]}/_cdc-relay"`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return root.GenPowerShellCompletionWithDesc(a.stdout)
		},
	}
}
