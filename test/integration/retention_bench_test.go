package integration

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/rs/zerolog"
)

// benchRows is one round's, of some 285 bytes each.
const benchRows = 200_000

// BenchmarkRetention deletes old rows as fast as it may, proof and all, beside a relay that is
// caught up; and the same rows in a loop of bare deletes over one connection.
func BenchmarkRetention(b *testing.B) {
	p := housekeeping(b, "", "delete", "detect_moved_slot: true")
	p.DB.Exec(b, "CREATE INDEX ON outbox (created_at)")
	p.Start(b).AwaitStreaming(b)
	conn := p.DB.Connect(b)
	if _, err := conn.Exec(b.Context(), "SET synchronous_commit = off"); err != nil {
		b.Fatal(err)
	}
	fill := func() {
		b.StopTimer()
		p.DB.Exec(b, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
			SELECT 'order', n::text, 'OrderPlaced', jsonb_build_object('fill', repeat('x', 190)), now() - interval '2h' - n * interval '1ms' FROM generate_series(1, $1) n`, benchRows)
		p.DB.Exec(b, "VACUUM ANALYZE outbox")
		p.AwaitCaughtUp(b)
		b.StartTimer()
	}
	per := func(b *testing.B, rows int, took time.Duration) {
		b.ReportMetric(float64(rows)/took.Seconds(), "rows/s")
	}
	b.Run("proven", func(b *testing.B) {
		rows, took := 0, time.Duration(0)
		for b.Loop() {
			fill()
			policies, cfg := p.Config.Retention()
			cfg.Limits.Wait = time.Minute
			service, err := retention.Open(b.Context(), cfg, zerolog.Nop())
			if err != nil {
				b.Fatal(err)
			}
			done, err := service.Once(b.Context(), &policies[0], func(upkeep.Done) {})
			service.Close()
			if err != nil || done.Rows != benchRows {
				b.Fatalf("%+v, %v", done, err)
			}
			rows, took = rows+done.Rows, took+done.Took
		}
		per(b, rows, took)
	})
	b.Run("bare", func(b *testing.B) {
		rows, took := 0, time.Duration(0)
		for b.Loop() {
			fill()
			for began := time.Now(); ; {
				tag, err := conn.Exec(b.Context(), `DELETE FROM outbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox WHERE created_at < now() - interval '1h' ORDER BY created_at LIMIT 1000))`)
				if err != nil {
					b.Fatal(err)
				}
				if tag.RowsAffected() == 0 {
					took += time.Since(began)
					break
				}
				rows += int(tag.RowsAffected())
			}
		}
		per(b, rows, took)
	})
	if n := harness.Query[int64](b, p.DB, "SELECT count(*) FROM outbox"); n != 0 {
		b.Errorf("%d rows are left", n)
	}
}
