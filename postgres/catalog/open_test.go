package catalog_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
)

func TestAwaitOpen_NamesWhatMayHaveWrittenRows(t *testing.T) {
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"max_prepared_transactions": "2"}})
			cfg := postgrestest.OutboxDatabase(t, db)
			q, _, err := postgres.OpenServer(t.Context(), cfg, false)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { postgres.CloseQuietly(q.Conn) })
			session := func(at string) (c *pgx.Conn, exec func(sql string)) {
				c, err := pgx.Connect(t.Context(), at)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close(context.Background()) })
				return c, func(sql string) {
					t.Helper()
					if _, err := c.Exec(t.Context(), sql); err != nil {
						t.Fatal(err)
					}
				}
			}
			free := func() {
				t.Helper()
				if err := catalog.AwaitOpen(q, time.Minute); err != nil {
					t.Error(err)
				}
			}
			held := func(by string) {
				t.Helper()
				postgrestest.WantError(t, catalog.AwaitOpen(q, 0), fault.KindRefused, fault.ReasonTimeout, "gave up after 0s: it waits for every transaction that was open before it: ", by, "run the command again")
			}

			db.Exec(t, "CREATE DATABASE other")
			address, err := url.Parse(db.URL)
			if err != nil {
				t.Fatal(err)
			}
			address.Path = "/other"
			_, elsewhere := session(address.String())
			elsewhere("BEGIN; SELECT pg_current_xact_id()") // writes no row here
			writer, write := session(db.URL)
			free()
			write("BEGIN; SELECT pg_current_xact_id()")
			held(fmt.Sprintf("pid %d (", writer.PgConn().PID()))
			write("PREPARE TRANSACTION 'kept'")
			held("prepared transaction kept")
			write("ROLLBACK PREPARED 'kept'")
			free()
		})
	}
}
