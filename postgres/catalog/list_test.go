package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestList_NamesTablesColumnsAndPartitions(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		db.Exec(t, `CREATE SCHEMA "My Shop"`)
		db.Exec(t, `CREATE TABLE "My Shop"."Out Box" ("Id" int, gone int, payload text)`)
		db.Exec(t, `ALTER TABLE "My Shop"."Out Box" DROP COLUMN gone`)
		db.Exec(t, `CREATE TABLE parted (id int) PARTITION BY RANGE (id)`)
		db.Exec(t, `CREATE TABLE middle PARTITION OF parted FOR VALUES FROM (1) TO (9) PARTITION BY RANGE (id)`)
		db.Exec(t, `CREATE TABLE leaf PARTITION OF middle FOR VALUES FROM (1) TO (5)`)
		db.Exec(t, `CREATE TABLE bare (); CREATE VIEW seen AS SELECT 1 AS one`)
		list, err := catalog.ListTables(t.Context(), postgrestest.Config(t, db))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range list {
			got = append(got, fmt.Sprintf("%s %v %v %s", l.Table, l.Columns, l.Partitioned, strings.Trim(l.Root.Schema+"."+l.Root.Name, ".")))
		}
		want := []string{
			`"My Shop"."Out Box" [Id payload] false `, `public.bare [] false `, `public.leaf [id] false public.parted`,
			`public.middle [id] true public.parted`, `public.parted [id] true `,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	})
}
