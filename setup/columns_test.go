package setup

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
)

// The catalog has of each of our tables what is read from its SQL.
func TestColumnsIn_AreThoseThatTheServerMakes(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Connect(t)
	for _, preset := range migrations.Presets() {
		t.Run(preset, func(t *testing.T) {
			name := "made_by_" + strings.ReplaceAll(preset, "-", "_")
			sql, err := migrations.Table(preset, "public", name)
			if err != nil {
				t.Fatal(err)
			}
			db.Exec(t, sql)
			want, err := catalogued(t.Context(), conn, name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := madeBy(preset)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Columns, want) {
				t.Errorf("the SQL says\n%v\nthe catalog has\n%v", got.Columns, want)
			}
		})
	}
}

func catalogued(ctx context.Context, conn *pgx.Conn, table string) ([]wal.Column, error) {
	rows, err := conn.Query(ctx, `SELECT a.attname::text, a.atttypid, a.atttypmod, t.typname::text, false, t.typcategory = 'A'
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 ORDER BY a.attnum`, table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[wal.Column])
}

func TestColumnsIn_RefusesWhatItDoesNotKnow(t *testing.T) {
	for sql, want := range map[string]string{
		"SELECT 1;":                                         "makes no table",
		"CREATE TABLE x (\n    id money\n);":                "money",
		"CREATE TABLE x (\n    CHECK (id > 1)\n);":          "is no column",
		"CREATE TABLE x (\n    id varchar(99999999999)\n);": "out of range",
	} {
		if columns, err := columnsIn(sql); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, %v; want %q", sql, columns, err, want)
		}
	}
}
