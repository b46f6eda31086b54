package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
)

// The role that the hint sends to would make something else without the flags.
func TestSetup_TheHintToAnotherRoleRepeatsTheFlags(t *testing.T) {
	for given, want := range map[string]string{
		"":                                   "cdc-relay setup --set postgres.url=",
		"--create-table":                     "cdc-relay setup --create-table --set postgres.url=",
		"--create-table=ledger -c relay.yml": "cdc-relay setup --config=relay.yml --create-table=ledger --set postgres.url=",
		"--reshard-from 2 -c it's.yml":       `cdc-relay setup --config='it'\''s.yml' --reshard-from=2 --set postgres.url=`,
		"--set postgres.slot=a --set postgres.url=postgres://me:secret@h/d --set postgres.password_file=/secret":    "cdc-relay setup --set postgres.slot=a --set postgres.url=",
		"--set kafka.sasl.password=secret --set kafka.brokers=[a:1] --set http.listen=http://secret@h --set broken": "cdc-relay setup --set kafka.sasl.password=… --set 'kafka.brokers=[a:1]' --set http.listen=… --set broken --set postgres.url=",
	} {
		cmd := (&app{}).setupCommand()
		root := (&app{}).root()
		root.RemoveCommand(root.Commands()...)
		root.AddCommand(cmd)
		if err := cmd.ParseFlags(strings.Fields(given)); err != nil {
			t.Fatal(err)
		}
		err := asGiven(cmd, fault.Refuse(&fault.Error{Reason: fault.ReasonPermission, Hint: "as the owner: cdc-relay setup --set postgres.url=…"}))
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "=secret") {
			t.Errorf("%q: got %v, want %s", given, err, want)
		}
		other := &fault.Error{Reason: fault.ReasonSlotMissing, Hint: "run `cdc-relay setup`"}
		if said := other.Error(); asGiven(cmd, other).Error() != said {
			t.Errorf("%q: %v", given, other)
		}
	}
}

// The runbook is looked up by that word.
func TestReport_EndsWithTheReason(t *testing.T) {
	for want, err := range map[string]error{
		"cdc-relay: no slot; make one (reason slot_missing)\n": &relay.RefusedError{Reason: "slot_missing", Err: errors.New("no slot; make one")},
		"cdc-relay: a row (reason row_too_large)\n":            &relay.BlockedError{Reason: "row_too_large", Err: errors.New("a row")},
		"cdc-relay: no reason\n":                               &relay.RefusedError{Err: errors.New("no reason")},
	} {
		var stderr output
		(&app{process: process{stderr: &stderr}}).report(err)
		if got := stderr.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
