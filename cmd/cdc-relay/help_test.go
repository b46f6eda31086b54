package main

import (
	"strings"
	"testing"
)

func TestHelp_OfAnUnknownCommandIsWrongUsage(t *testing.T) {
	for args, want := range map[string]string{
		"nope":               `cdc-relay: unknown command "nope": `,
		"chekc":              "did you mean check?",
		"deadletter redrvie": "did you mean redrive?",
		"check now":          `cdc-relay check has no commands of its own; "now" is none`,
		"nope and more":      `unknown command "nope"`,
	} {
		got := invoke(t, closedPorts, append([]string{"help"}, strings.Fields(args)...)...)
		got.want(t, exitUsage, "", want)
		if got.stdout != "" {
			t.Errorf("help %s printed %q", args, got.stdout)
		}
	}
}

func TestHelp_IsThatOfTheCommand(t *testing.T) {
	for _, args := range []string{"", "check", "deadletter", "deadletter redrive", "help"} {
		words := strings.Fields(args)
		want := invoke(t, closedPorts, append(words, "--help")...)
		got := invoke(t, closedPorts, append([]string{"help"}, words...)...)
		got.want(t, exitOK, "Usage:", "")
		if got.stdout != want.stdout {
			t.Errorf("help %s:\n%s\nwith --help:\n%s", args, got.stdout, want.stdout)
		}
	}
	invoke(t, closedPorts, "__complete", "help", "deadletter", "re").want(t, exitOK, "redrive", "")
}
