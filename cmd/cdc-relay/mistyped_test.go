package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every flag of every command, with its last letter doubled.
func TestUsage_MistypedFlagsOfEveryCommandAreRecognised(t *testing.T) {
	tried := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		try := func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			tried++
			args := append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+f.Name[len(f.Name)-1:])
			got := invoke(t, closedPorts, args...)
			if got.code != exitUsage || !strings.Contains(got.stderr, "did you mean --"+f.Name+"?") {
				t.Errorf("%v: exit %d, %s", args, got.code, got.stderr)
			}
		}
		cmd.LocalFlags().VisitAll(try)
		cmd.InheritedFlags().VisitAll(try)
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				walk(c)
			}
		}
	}
	walk((&app{}).root())
	if tried < 100 {
		t.Errorf("%d flags tried", tried)
	}
}

func TestUsage_UnknownFlagsThatAreSomethingElse(t *testing.T) {
	for args, want := range map[string]string{
		"setup --presett":                 "unknown flag: --presett: did you mean --set outbox.preset=… or --set kafka.preset=…? (see cdc-relay setup --help)",
		"setup -dry-run":                  "unknown shorthand flag: 'd' in -dry-run: did you mean --dry-run?",
		"run --slot=x":                    "unknown flag: --slot: did you mean --set postgres.slot=…?",
		"run --dead-letter-topic x":       "did you mean --set relay.dead_letter_topic=…?",
		"check --discard":                 "unknown flag: --discard: cdc-relay deadletter redrive has it (see",
		"deadletter list --payload":       "unknown flag: --payload: cdc-relay deadletter show has it (see",
		"status --frobnicate":             "unknown flag: --frobnicate (see",
		"--version":                       "unknown flag: --version: did you mean cdc-relay version? (see cdc-relay --help)",
		"status -x":                       "unknown shorthand flag: 'x' in -x (see",
		"deadletter redrive --resaon=x":   "did you mean --reason?",
		"deadletter redrive --hosts":      "did you mean --set http.hosts=… or --set http.console.hosts=…?",
		"deadletter redrive --whole-keys": "did you mean --whole-key?",
	} {
		invoke(t, closedPorts, strings.Fields(args)...).want(t, exitUsage, "", want)
	}
}

// The values of flags, also of a command whose arguments are of a list.
func TestUsage_ValuesThatNoFlagTakes(t *testing.T) {
	for _, args := range []string{"completion --help=x", "completion bash --help=x", "import --help=x"} {
		invoke(t, closedPorts, strings.Fields(args)...).want(t, exitUsage, "", `invalid argument "x" for "-h, --help" flag`)
	}
	invoke(t, closedPorts, "completion", "x").want(t, exitUsage, "", `invalid argument "x"; allowed: bash, zsh`)
}
