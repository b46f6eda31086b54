package sample

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func FuzzSample(f *testing.F) {
	rel := &wal.Relation{Namespace: "public", Name: "outbox"}
	for _, typ := range []string{"text", "jsonb", "bool", "bytea", "_text", "int8"} {
		rel.Columns = append(rel.Columns, wal.Column{Name: typ, TypeName: typ})
	}
	f.Add([]byte(`{"text":"a","jsonb":{"a":1},"bool":true,"bytea":"\\x00ff","_text":["a",null,"\"\\"],"int8":1}`), false)
	f.Add([]byte(`{"bytea":"\\xzz"}`), false)
	f.Add([]byte(` {"id":1}`), true)
	f.Fuzz(func(t *testing.T, content []byte, message bool) {
		row, missing, err := ParseRow(rel, content, message)
		switch {
		case err != nil && err.Error() == "":
			t.Error("an error without words")
		case err == nil && (len(row.Values) != len(rel.Columns) || len(missing) > len(rel.Columns)):
			t.Errorf("%d values and %d missing of %d columns", len(row.Values), len(missing), len(rel.Columns))
		}
	})
}
