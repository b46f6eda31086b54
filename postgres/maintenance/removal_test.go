package maintenance

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The server ends the statement of whoever has waited for a second when there is a deadlock. That
// is the writer, where it waited for the partition long before the removal comes for the root.
func TestRemoval_EndsNoWriterThatWaitsForItsPartition(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"15", "18"} {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t, version)
			db.Exec(t, `CREATE TABLE parts (n int, at timestamptz) PARTITION BY RANGE (at); CREATE TABLE parts_old PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
				CREATE TABLE parts_new PARTITION OF parts FOR VALUES FROM ('2020-01-02') TO ('2120-01-03')`)
			table := wal.Table{Schema: "public", Name: "parts"}
			surveyor, err := OpenSurvey(t.Context(), postgres.Config{URL: db.URL})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(surveyor.Close)
			oid := harness.Query[uint32](t, db, "SELECT 'parts'::regclass::oid")
			found, err := surveyor.Partitions(t.Context(), oid, "at", "now()", "interval '1h'")
			if err != nil || len(found.All) != 2 || !found.All[0].Past {
				t.Fatalf("%v, %v", found, err)
			}
			root, err := OpenRoot(t.Context(), postgres.Config{URL: db.URL}, table, "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(root.Close)
			removal := &Removal{Root: root, Partition: found.All[0], Now: "now()", Age: "interval '1h'", Confirm: func(context.Context) error { return nil }}
			if err := removal.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}

			writer, err := pgx.Connect(t.Context(), db.URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = writer.Close(t.Context()) })
			if _, err := writer.Exec(t.Context(), "BEGIN; SET LOCAL deadlock_timeout = '1s'; INSERT INTO parts VALUES (1, now())"); err != nil {
				t.Fatal(err)
			}
			written := make(chan error, 1)
			go func() {
				_, err := writer.Exec(t.Context(), "INSERT INTO parts VALUES (2, '2020-01-01')")
				written <- err
			}()
			for !harness.Query[bool](t, db, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'parts_old'::regclass AND NOT granted AND clock_timestamp() - waitstart > '800ms')") {
				select {
				case err := <-written:
					t.Fatalf("the writer did not wait: %v", err)
				default:
				}
			}
			err = removal.Remove(t.Context())
			removal.Release()
			if postgres.Reason(err) != fault.ReasonPartitionBusy {
				t.Errorf("the removal: %v", err)
			}
			if err := <-written; err != nil {
				t.Errorf("the writer: %v", err)
			}
		})
	}
}
