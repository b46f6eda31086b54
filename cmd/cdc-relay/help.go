package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// helpCommand takes the place of cobra's, which ends with 0 for a command that does not exist.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Long:  "help prints what a command does, its flags and its exit codes.",
		RunE: func(help *cobra.Command, args []string) error {
			cmd, err := described(help.Root(), args)
			if err != nil {
				return &usageError{err}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(help *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			cmd, err := described(help.Root(), args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// described is the command whose name the words are.
func described(root *cobra.Command, words []string) (*cobra.Command, error) {
	cmd, rest, err := root.Find(words)
	switch {
	case err != nil || len(rest) > 0 && cmd.HasAvailableSubCommands():
		return nil, knownCommand(cmd, words[len(words)-max(1, len(rest)):])
	case len(rest) > 0:
		return nil, fmt.Errorf("%s has no commands of its own; %q is none", cmd.CommandPath(), rest[0])
	}
	return cmd, nil
}
