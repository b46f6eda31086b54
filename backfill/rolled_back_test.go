package backfill

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
)

// While the server waits for open transactions it counts those that are rolled back, savepoints too, and gives up at
// some hundreds ("initial slot snapshot too large"). It is asked again.
func TestBackfill_BeginsBesideTransactionsThatAreRolledBack(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"max_connections": "20"}})
	s := play(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 20)
	first, second, third := s.opens(t), s.opens(t), s.opens(t)
	first.begin(t)
	var text string
	ended := make(chan error, 1)
	go func() {
		var err error
		text, err = s.attempt(t.Context(), all, nil)
		ended <- err
	}()
	first.isAwaited(t)
	second.begin(t)
	first.commit(t)
	second.isAwaited(t)
	third.begin(t)
	s.on(t,
		`DO $$ BEGIN FOR i IN 1..600 LOOP BEGIN INSERT INTO outbox VALUES (21, 'a', 'b', 'e', '9'); RAISE EXCEPTION 'x'; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$`,
		"INSERT INTO outbox VALUES (21, 'a', '1', 'e', '21')")
	second.commit(t)
	third.isAwaited(t) // the next try
	third.commit(t)
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s.stream(t)
	complete(t, s.committed(t), 21, true)
}

// opened is a transaction with an id.
type opened struct {
	s    *scene
	conn *pgx.Conn
	xid  string
}

func (s *scene) opens(t *testing.T) *opened {
	t.Helper()
	return &opened{s: s, conn: s.db.Connect(t)}
}

func (o *opened) begin(t *testing.T) {
	t.Helper()
	if _, err := o.conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if err := o.conn.QueryRow(t.Context(), "SELECT pg_catalog.pg_current_xact_id()::xid::text").Scan(&o.xid); err != nil {
		t.Fatal(err)
	}
}

// isAwaited waits until the server waits for it.
func (o *opened) isAwaited(t *testing.T) {
	t.Helper()
	wait(t.Context(), func() bool {
		return harness.Query[bool](t, o.s.db, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid' AND transactionid::text = $1)", o.xid)
	})
}

func (o *opened) commit(t *testing.T) {
	t.Helper()
	if _, err := o.conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
}
