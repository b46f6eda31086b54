package integration

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
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

// backfillLimit is for a backfill at full speed on a busy machine, in MiB: garbage waits to be collected.
const backfillLimit = peakLimit * 3 / 2

// The rows of a backfill pass through in bounded memory, whatever the table. The bytes of the table
// are more than twice the limit.
func TestBackfill_MemoryStaysBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		harness.NotHere(t, "the peak of a process's memory is read as Linux gives it")
	}
	rows := scale(t, "CDC_RELAY_TEST_BACKFILL_ROWS", 130_000)
	const fill = 1600
	if rows*fill < 2*backfillLimit<<20 {
		t.Fatalf("%d rows are too few to prove anything", rows)
	}
	for _, guarantee := range []string{"detect_moved_slot: true", "guarantee: exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			brokers := harness.Kfake(t, sandbox.KafkaOptions{})
			p := relaytest.New(t, harness.Postgres(t), brokers, []string{"{table: public.outbox, preset: outbox}"}, "relay: {checkpoint_topic: positions, "+guarantee+"}")
			p.DB.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, created_at timestamptz DEFAULT now())`)
			p.DB.Exec(t, `INSERT INTO outbox SELECT n, 'order', (n % 100)::text, 'x', jsonb_build_object('n', n, 'fill', repeat('x', $2)) FROM generate_series(1, $1::int) n`, rows, fill)
			p.DB.Exec(t, "ANALYZE outbox") // or chance decides whether parallel workers read
			brokers.CreateTopic(t, "order-events", 3)
			admin := brokers.Admin(t)
			process := p.Exec(t, "backfill", "--all", "--yes", "--set", "kafka.compression=snappy")
			relaytest.Eventually(t, "rows are sent", func() (bool, string) {
				ends, err := admin.ListEndOffsets(t.Context(), "order-events")
				sent := int64(0)
				ends.Each(func(o kadm.ListedOffset) { sent += o.Offset })
				return err == nil && sent > 0, process.Output()
			})
			release := brokers.Fake.HoldProduce()
			defer release()
			began := time.Now()
			still := 0 // looks at which nothing more was read, as what is in flight bounds it, or all was
			relaytest.Eventually(t, "the brokers have it wait", func() (bool, string) {
				if harness.Query[bool](t, p.DB, `SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'cdc-relay backfill' AND datname = current_database()
					AND backend_type = 'client backend' AND query LIKE '%"payload"%outbox%ORDER BY%' AND coalesce(wait_event, '') NOT IN ('ClientWrite', 'ClientRead')`) {
					still++
				} else {
					still = 0
				}
				return still > 25 || process.Ended(), process.Output()
			})
			release()
			peak := process.PeakUntilEnd(t) >> 20
			if code := process.Wait(t); code != 0 {
				t.Fatalf("it ended with %d: %s", code, process.Output())
			}
			if want := fmt.Sprintf("%d rows from before the slot sent", rows); !contains(process.Output(), want) {
				t.Errorf("it does not say %q: %s", want, process.Output())
			}
			t.Logf("%d rows of %d bytes in %.1fs, peak memory %d MiB", rows, fill, time.Since(began).Seconds(), peak)
			if peak >= backfillLimit {
				t.Errorf("peak memory = %d MiB, want less than %d", peak, backfillLimit)
			}
		})
	}
}

// Killed with SIGKILL, an at-least-once backfill sends again what was in flight and what it sent in the
// last second. A second goes by that a busy machine takes to write the progress.
func TestBackfill_AKillRepeatsLittle(t *testing.T) {
	t.Parallel()
	const rows, rate, before = 40_000, 2000, 16_000
	p := relaytest.New(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault), []string{"{table: public.outbox, preset: outbox}"},
		"relay: {checkpoint_topic: positions, detect_moved_slot: true, max_in_flight_bytes: 256KiB}")
	p.DB.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, created_at timestamptz DEFAULT now())`)
	p.DB.Exec(t, `INSERT INTO outbox SELECT n, 'order', (n % 5)::text, 'x', to_jsonb(n) FROM generate_series(1, $1::int) n`, rows)
	p.Brokers.CreateTopic(t, "order-events", 1)
	admin := p.Brokers.Admin(t)
	sent := func() int {
		ends, err := admin.ListEndOffsets(t.Context(), "order-events")
		if err != nil {
			t.Fatal(err)
		}
		end, _ := ends.Lookup("order-events", 0)
		return int(end.Offset)
	}
	process := p.Exec(t, "backfill", "--all", "--yes", "--order", "id", "--max-rate", strconv.Itoa(rate))
	relaytest.Eventually(t, "many rows are sent", func() (bool, string) { return sent() >= before, process.Output() })
	process.Kill()
	killed := sent()
	relaytest.Eventually(t, "its lock is free", func() (bool, string) {
		return harness.Query[bool](t, p.DB, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'cdc-relay backfill' AND datname = current_database()"), ""
	})
	if code := p.Exec(t, "backfill", "--all", "--yes", "--order", "id").Wait(t); code != 0 {
		t.Fatalf("the second one ended with %d", code)
	}
	duplicates := sent() - rows
	const window = 256 << 10 / 100 // rows have more than 100 bytes
	t.Logf("%d of %d rows were sent when it was killed, %d were sent again", killed, rows, duplicates)
	if bound := window + 2*rate; duplicates > bound || killed-duplicates < before-bound {
		t.Errorf("%d rows were sent again, want at most %d in flight and those of a second, %d", duplicates, window, rate)
	}
}
