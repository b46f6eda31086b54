package main

import (
	"strings"
	"testing"
)

// A variable that is not a setting changes what a command does, and the command says so, also where it
// fails for another reason.
func TestCommands_WarnOfMisnamedVariables(t *testing.T) {
	t.Parallel()
	env := append([]string{"CDC_RELAY_RELAY_DEAD_LETTER_TOPC=other"}, closedPorts...)
	for _, args := range []string{"deadletter list --source 7/5/slot", "sql", "status --timeout 100ms"} {
		got := invoke(t, env, strings.Fields(args)...)
		if !strings.Contains(got.stderr, "did you mean CDC_RELAY_RELAY_DEAD_LETTER_TOPIC?") {
			t.Errorf("%s: %q", args, got.stderr)
		}
	}
}
