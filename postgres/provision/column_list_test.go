package provision_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// mapped lists columns as a mapping would that reads these.
func mapped(columns ...string) func(*wal.Relation) ([]string, error) {
	return func(rel *wal.Relation) ([]string, error) {
		var read []string
		for _, c := range rel.Columns {
			if slices.Contains(columns, c.Name) {
				read = append(read, c.Name)
			}
		}
		return read, nil
	}
}

func TestSetup_PublishesTheMappedColumnsAlone(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := postgrestest.Config(t, db)
		create := func(wal.Table) (string, error) {
			return `CREATE TABLE outbox (id uuid PRIMARY KEY, "Key ""1""" text, payload jsonb, wide text, since text)`, nil
		}
		options := provision.SetupOptions{CreateTable: create, Columns: mapped("id", `Key "1"`, "payload")}
		report, err := provision.Setup(t.Context(), cfg, options)
		if strings.HasPrefix(db.Version, "14.") {
			postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonServerVersion, "15", "--column-list")
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(report.Steps); got != "table do, publication do, slot do" {
			t.Errorf("steps: %s", got)
		}
		published := func() string {
			return harness.Query[string](t, db, `SELECT array_to_string(attnames, ' ') FROM pg_publication_tables WHERE pubname = 'cdc_relay'`)
		}
		if got := published(); got != `id Key "1" payload` {
			t.Fatalf("published: %s", got)
		}

		s, err := replication.Open(t.Context(), cfg, replication.Options{}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.Tables()[0].Columns); n != 3 {
			t.Errorf("the stream has %d columns", n)
		}
		if why := s.Tables()[0].Hidden["wide"]; !strings.Contains(why, `ALTER PUBLICATION "cdc_relay" SET TABLE "public"."outbox" ("id", "Key ""1""", "payload", "wide")`) {
			t.Errorf("hidden: %q", why)
		}
		if err := s.Close(t.Context(), s.StartLSN()); err != nil {
			t.Fatal(err)
		}

		options.Columns = mapped("id", "payload", "wide")
		_, err = provision.Setup(t.Context(), cfg, options)
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableUnpublished, "lacks wide", `SET TABLE "public"."outbox" ("id", "payload", "wide")`)
		db.Exec(t, statement(t, err))
		if got := published(); got != "id payload wide" {
			t.Errorf("after the statement of the error: %s", got)
		}
		if report, err = provision.Setup(t.Context(), cfg, options); err != nil || len(report.Warnings) > 0 && strings.Contains(report.Warnings[0], "columns") {
			t.Errorf("with the right list: %v, %v", report.Warnings, err)
		}
	})
}

// statement is what an error says to run.
func statement(t *testing.T, err error) string {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	sql, ok := strings.CutPrefix(e.Hint, "run: ")
	if !ok {
		t.Fatalf("no statement: %s", e.Hint)
	}
	return sql
}

// Other tables of the publication, and row filters, are left as they are.
func TestSetup_SaysHowOneTableGetsItsColumns(t *testing.T) {
	db := harness.Postgres(t, "18")
	cfg := postgrestest.Config(t, db)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, payload jsonb, wide text); CREATE TABLE other (id int);
		CREATE PUBLICATION cdc_relay FOR TABLE outbox (id) WHERE (id > 5), other WITH (publish = 'insert')`)
	options := provision.SetupOptions{Columns: mapped("id", "payload")}
	_, err := provision.Setup(t.Context(), cfg, options)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableUnpublished, "lacks payload")
	db.Exec(t, statement(t, err))
	got := harness.Query[string](t, db, `SELECT string_agg(concat_ws(' ', tablename, attnames::text, rowfilter), '; ' ORDER BY tablename) FROM pg_publication_tables WHERE pubname = 'cdc_relay'`)
	if got != "other {id}; outbox {id,payload} (id > 5)" {
		t.Errorf("after the statement: %s", got)
	}

	db.Exec(t, `ALTER PUBLICATION cdc_relay SET TABLE outbox`)
	report, err := provision.Setup(t.Context(), cfg, options)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Warnings, func(w string) bool {
		return strings.Contains(w, `publishes 3 columns of public.outbox, and the mapping reads 2; to publish those alone: ALTER PUBLICATION "cdc_relay" SET TABLE "public"."outbox" ("id", "payload")`)
	}) {
		t.Errorf("warnings: %v", report.Warnings)
	}
}

// Updates and deletes need the replica identity, whose columns no mapping names.
func TestSetup_RefusesAColumnListForUpdates(t *testing.T) {
	db := harness.Postgres(t, "18")
	cfg := postgrestest.Config(t, db)
	cfg.Wants = []wal.Wants{{Update: true}}
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, payload jsonb)`)
	_, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{Columns: mapped("payload")})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonConfiguration, "update", "--column-list")
}
