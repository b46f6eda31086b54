package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What cobra and pflag say of a command line, in our words, with what may have been meant.

// knownCommand refuses arguments of a command that has only sub-commands.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q: %s", args[0], wording.DidYouMean(args[0], names))
}

// mistyped says it as we do.
func mistyped(cmd *cobra.Command, err error) error {
	args := cmd.Flags().Args()
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, unknown)
	}
	_, names, _ := strings.Cut(cmd.Use, " ")
	wanted := strings.Fields(names)
	switch text := err.Error(); {
	case strings.HasPrefix(text, "unknown command") && cmd.HasAvailableSubCommands():
		return knownCommand(cmd, args)
	case strings.HasPrefix(text, "unknown command") && len(args) > 0:
		return fmt.Errorf("unknown argument %q: %s takes none; the names of flags begin with --", args[0], cmd.CommandPath())
	case strings.HasPrefix(text, "accepts ") && len(args) < len(wanted):
		return fmt.Errorf("%s is missing: %s %s", strings.Join(wanted[len(args):], " "), cmd.CommandPath(), names)
	case strings.HasPrefix(text, "accepts ") && len(args) > len(wanted):
		return fmt.Errorf("unknown argument %q behind %s", args[len(wanted)], strings.Join(args[:len(wanted)], " "))
	case strings.HasPrefix(text, "invalid argument") && len(cmd.ValidArgs) > 0:
		return fmt.Errorf("invalid argument %q; allowed: %s", args[0], strings.Join(cmd.ValidArgs, ", "))
	}
	return err
}

// unknownFlag says which flag may have been meant.
func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	var names []string
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	if near, ok := wording.Nearest(err.GetSpecifiedName(), names); ok && len(err.GetSpecifiedName()) > 1 {
		return fmt.Errorf("%w: did you mean --%s?", err, near)
	}
	return err
}
