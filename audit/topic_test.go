package audit

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The same event id may be in two tables: the dead letter of one says nothing of the other's row.
func TestLetters_AreOfTheirTable(t *testing.T) {
	settings := relay.Config{}
	settings.Replication.Tables = []wal.Table{{Schema: "public", Name: "a"}, {Schema: "public", Name: "b"}}
	settings.Replication.Messages = []string{"events"}
	w := &work{settings: settings}
	for name, want := range map[string][2]bool{
		"public.a": {true, false}, "public.b": {false, true},
		"public.before_it_was_renamed": {true, true}, "message.events": {false, false},
	} {
		if got := [2]bool{w.mine(0, name), w.mine(1, name)}; got != want {
			t.Errorf("letters of %s: of the first table %t, of the second %t", name, got[0], got[1])
		}
	}
}
