package upkeep

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
)

// A letter names its row where the header id is a column's text, as SQL prints it too.
func TestIdentify_TakesOnlyWhatTheHeaderHolds(t *testing.T) {
	rel := &wal.Relation{Columns: []wal.Column{{Name: "id", TypeName: "uuid"}, {Name: "raw", TypeName: "bytea"}, {Name: "code", TypeName: "bpchar"}, {Name: "n", TypeName: "int8"}, {Name: "doc", TypeName: "jsonb"}}}
	for name, tt := range map[string]struct {
		mapping router.Mapping
		roles   map[string]string
		want    string
	}{
		"uuid":            {router.Mapping{}, map[string]string{"id": "id"}, `"id"`},
		"number":          {router.Mapping{}, map[string]string{"id": "n"}, `"n"`},
		"bytes":           {router.Mapping{}, map[string]string{"id": "raw"}, ""},
		"padded":          {router.Mapping{}, map[string]string{"id": "code"}, ""},
		"member":          {router.Mapping{}, map[string]string{"id": "doc#/id"}, ""},
		"none":            {router.Mapping{}, map[string]string{}, ""},
		"or another":      {router.Mapping{}, map[string]string{"id": "id", "id where that is empty": "n"}, ""},
		"replaced":        {router.Mapping{Headers: []router.HeaderMapping{{Name: "id", Source: "n"}}}, map[string]string{"id": "id"}, ""},
		"another header":  {router.Mapping{Headers: []router.HeaderMapping{{Name: "tenant", Source: "n"}}}, map[string]string{"id": "id"}, `"id"`},
		"of a connector":  {router.Mapping{Connector: struct{ router.ConnectorConfig }{}}, map[string]string{"id": "id"}, ""},
		"of another name": {router.Mapping{}, map[string]string{"id": "no_such"}, ""},
	} {
		if got := identify(&tt.mapping, &router.Explanation{Roles: tt.roles}, rel).SQL(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
