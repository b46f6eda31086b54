package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
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
	args := slices.Clone(cmd.Flags().Args())
	for i := range args {
		args[i] = wording.WithoutLogin(args[i])
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, unknown)
	}
	if _, value := errors.AsType[*pflag.InvalidValueError](err); value {
		return err
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
		return fmt.Errorf("unknown argument %q after %s", args[len(wanted)], strings.Join(args[:len(wanted)], " "))
	case strings.HasPrefix(text, "invalid argument") && len(cmd.ValidArgs) > 0:
		return fmt.Errorf("invalid argument %q; allowed: %s", args[0], strings.Join(cmd.ValidArgs, ", "))
	}
	return err
}

// unknownFlag says what may have been meant: a flag of the command, one that another
// command has, or a key of the configuration.
func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	name := err.GetSpecifiedName()
	if letters := err.GetSpecifiedShortnames(); letters != "" {
		name = letters // -yes is -y, -e and -s to pflag
	}
	name, _, _ = strings.Cut(name, "=")
	if len(name) < 2 {
		return err
	}
	for _, c := range cmd.Root().Commands() {
		if c.Name() == name {
			return fmt.Errorf("%w: did you mean %s?", err, c.CommandPath())
		}
	}
	if near, ok := wording.Nearest(name, flagNames(cmd)); ok {
		return fmt.Errorf("%w: did you mean --%s?", err, near)
	}
	if others := commandsWith(cmd.Root(), name); len(others) > 0 {
		return fmt.Errorf("%w: %s", err, strings.Join(others, ", ")+map[bool]string{true: " has it", false: " have it"}[len(others) == 1])
	}
	if keys := nearestKeys(name); len(keys) > 0 {
		return fmt.Errorf("%w: did you mean --set %s=…?", err, strings.Join(keys, "=… or --set "))
	}
	return err
}

// flagNames are those that the command's help shows.
func flagNames(cmd *cobra.Command) (names []string) {
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return names
}

// nearestKeys are the keys of the configuration whose last part is near, unless they are
// many.
func nearestKeys(name string) []string {
	var names []string
	for _, path := range config.Keys() {
		names = append(names, path[strings.LastIndex(path, ".")+1:])
	}
	near, _ := wording.Nearest(strings.ReplaceAll(name, "-", "_"), names)
	if paths := config.Named(near); len(paths) <= 2 {
		return paths
	}
	return nil
}

// commandsWith are the commands that have a flag of that name.
func commandsWith(cmd *cobra.Command, name string) (paths []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.LocalFlags().Lookup(name) != nil {
			paths = append(paths, c.CommandPath())
		}
		paths = append(paths, commandsWith(c, name)...)
	}
	return paths
}
