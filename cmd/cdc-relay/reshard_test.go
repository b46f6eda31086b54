package main

import "testing"

func TestReshard_RefusesWhatWouldRepeatOrForget(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--set", "relay.guarantee=exactly_once"}, "exactly_once"},
		{[]string{"--set", "relay.on_reject=dead_letter", "--set", "relay.park_key=true"}, "re-drive all of them"},
		{[]string{"--dry-run"}, "combined with --column-list"},
		{[]string{"--create-table"}, "combined with --column-list"},
	} {
		args := append([]string{"setup", "--reshard-from", "1", "--set", "postgres.shards=3"}, tt.args...)
		invoke(t, closedPorts, args...).want(t, exitUsage, "", tt.says)
	}
	invoke(t, closedPorts, "sql", "--set", "postgres.shards=3").want(t, exitUsage, "", "setup --dry-run")
}
