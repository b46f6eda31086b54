package integration

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// One transaction of many rows passes through in bounded memory, and so does a
// backlog of many transactions.
func TestMemory_StaysBoundedWithABacklog(t *testing.T) {
	if runtime.GOOS != "linux" {
		harness.NotHere(t, "the peak of a process's memory is read as Linux gives it")
	}
	rows := scale(t, "CDC_RELAY_TEST_BACKLOG_ROWS", 50_000)
	const perTransaction, fill = 100, 1600 // together more bytes than the limit
	for name, insert := range map[string]string{
		"one_transaction": `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT '%[1]s', gen_random_uuid(), 'Happened', jsonb_build_object('n', i, 'fill', repeat('x', %[4]d)) FROM generate_series(1, %[2]d) AS i`,
		"many_transactions": `DO $$ BEGIN FOR t IN 1..%[2]d/%[3]d LOOP
			INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT '%[1]s', gen_random_uuid(), 'Happened', jsonb_build_object('n', i, 'fill', repeat('x', %[4]d)) FROM generate_series(1, %[3]d) AS i;
			COMMIT; END LOOP; END $$`,
	} {
		t.Run(name, func(t *testing.T) {
			harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
				p, w := outbox(t, db, harness.Kfake(t, sandbox.KafkaOptions{Discard: true}))
				db.Exec(t, fmt.Sprintf(insert, w.Topic()[:len(w.Topic())-len("-events")], rows, perTransaction, fill))
				running := p.Exec(t, "run", "--set", "kafka.compression=snappy")
				began := time.Now()
				p.AwaitCaughtUp(t)
				took := time.Since(began)
				peak := running.PeakMemory(t) >> 20
				running.Terminate(t)
				if code := running.Wait(t); code != 0 {
					t.Errorf("exit code = %d", code)
				}
				t.Logf("%d rows in %.1fs, %.0f rows/s, peak memory %d MiB", rows, took.Seconds(), float64(rows)/took.Seconds(), peak)
				if peak >= peakLimit {
					t.Errorf("peak memory = %d MiB, want less than %d", peak, peakLimit)
				}
			})
		})
	}
}
