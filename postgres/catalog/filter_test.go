package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The texts are what servers of 15 and 18 print.
func TestFilter_KnowsItselfInTheServersWords(t *testing.T) {
	f := Filter{hash: "hashtext", column: "key", count: 4, index: 1}
	varying := f
	varying.cast = "::text"
	quoted := f
	quoted.column = `Quo"ted (x)`
	for _, tt := range []struct {
		filter Filter
		shown  string
		is     bool
	}{
		{f, `(((COALESCE(hashtext(key), 0) & 2147483647) % 4) = 1)`, true},
		{f, `(((COALESCE(pg_catalog.hashtext("key"), 0) & 2147483647) % 4) = 1)`, true},
		{varying, `(((COALESCE(hashtext((key)::text), 0) & 2147483647) % 4) = 1)`, true},
		{quoted, `(((COALESCE(hashtext("Quo""ted (x)"), 0) & 2147483647) % 4) = 1)`, true},
		{f, `(((COALESCE(hashtext((key)::text), 0) & 2147483647) % 4) = 1)`, false},
		{f, `(((COALESCE(hashtext(key), 0) & 2147483647) % 4) = 2)`, false},
		{f, `(((COALESCE(hashtext(key), 0) & 2147483647) % 8) = 1)`, false},
		{f, `(((COALESCE(hashtext(id), 0) & 2147483647) % 4) = 1)`, false},
		{f, `(((COALESCE(public.hashtext(key), 0) & 2147483647) % 4) = 1)`, false},
		{f, `((((COALESCE(hashtext(key), 0) & 2147483647) % 4) = 1) AND (id > 0))`, false},
		{f, `(COALESCE(hashtext(key), 0) & ((2147483647 % 4) = 1))`, false},
		{f, `(((COALESCE(hashtext("key), 0) & 2147483647) % 4) = 1)`, false},
		{f, ``, false},
	} {
		if tt.filter.is(tt.shown) != tt.is {
			t.Errorf("%s: want %v for %+v", tt.shown, tt.is, tt.filter)
		}
	}
}

func FuzzFilterTokens(f *testing.F) {
	f.Add(`(((COALESCE(hashtext((key)::text), 0) & 2147483647) % 4) = 1)`)
	f.Add(`"a""b".c`)
	f.Fuzz(func(t *testing.T, text string) {
		tokens, ok := filterTokens(text)
		if ok && len(tokens) > len(text) {
			t.Errorf("%d tokens of %d bytes", len(tokens), len(text))
		}
	})
}

func TestFilterOf_RefusesWhatNoFilterCanSee(t *testing.T) {
	rel := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{
		{Name: "id", Type: 20, TypeName: "int8"}, {Name: "body", Type: 3802, TypeName: "jsonb"}, {Name: "mail", Type: 20001, TypeName: "citext"}, {Name: "raw", Type: 17, TypeName: "bytea"},
	}}
	broken := errors.New("the mapping does not fit")
	for key, want := range map[string]string{
		"id":            "",
		"body":          "jsonb) has no hash function that",
		"mail":          "not the server's own",
		"raw":           "before PostgreSQL 18",
		"body#/orderId": "which is not a column",
		"":              "which is not a column",
		"!":             broken.Error(),
	} {
		cfg := postgres.Config{Tables: []wal.Table{{Schema: "public", Name: "other"}, {Schema: "public", Name: "outbox"}}, Shard: postgres.Shard{Count: 2, Key: func(rel *wal.Relation) (string, error) {
			if rel.Table != 1 {
				t.Errorf("asked for table %d", rel.Table)
			}
			if key == "!" {
				return "", broken
			}
			return key, nil
		}}}
		f, err := FilterOf(cfg, 150000, rel)
		switch {
		case want == "" && (err != nil || f.SQL() != `(COALESCE(pg_catalog.hashint8("id"), 0) & 2147483647) % 2 = 0`):
			t.Errorf("%q: %+v, %v", key, f, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", key, err, want)
		}
	}
}
