package upkeep

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// A letter names its row where the header id is a column's text, as SQL prints it too.
func TestIdentify_TakesOnlyWhatTheHeaderHolds(t *testing.T) {
	rel := &wal.Relation{Columns: []wal.Column{{Name: "id", TypeName: "uuid"}, {Name: "raw", TypeName: "bytea"}, {Name: "code", TypeName: "bpchar"}, {Name: "n", TypeName: "int8"}, {Name: "doc", TypeName: "jsonb"}}}
	for column, want := range map[string]string{"id": `"id"`, "n": `"n"`, "raw": "", "code": "", "doc": "", "": "", "no_such": ""} {
		got := identify(record.IDColumn{Name: column, Type: 20}, rel)
		if got.SQL() != want || got.Known() != (want != "") || want != "" && got.id.Type != 20 {
			t.Errorf("%q: %+v, want %s", column, got, want)
		}
	}
}
