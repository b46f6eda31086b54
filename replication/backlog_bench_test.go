package replication

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// BenchmarkBacklog drains a backlog of rows with about 300 bytes of jsonb from a
// real server, with and without resting between small reads.
// CDC_RELAY_BENCH_ROWS sets its size.
func BenchmarkBacklog(b *testing.B) {
	rows := 200_000
	if n, err := strconv.Atoi(os.Getenv("CDC_RELAY_BENCH_ROWS")); err == nil {
		rows = n
	}
	for _, each := range []int{1, 10, 1000} {
		cfg := backlog(b, harness.Postgres(b), rows, each)
		for _, rest := range []bool{false, true} {
			b.Run(fmt.Sprintf("rows_each=%d/rest=%t", each, rest), func(b *testing.B) {
				var took, cpu time.Duration
				for range b.N {
					t, c := drain(b, cfg, rows, rest)
					took, cpu = took+t, cpu+c
				}
				total := float64(rows * b.N)
				b.ReportMetric(total/took.Seconds(), "rows/s")
				b.ReportMetric(float64(cpu.Nanoseconds())/total/1e3, "cpu-µs/row")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func backlog(b testing.TB, db *harness.Database, rows, each int) Config {
	b.Helper()
	cfg := orders(b, db)
	db.Exec(b, fmt.Sprintf(`DO $$ BEGIN
		FOR i IN 1..%d LOOP
			INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT 'orders', (i * %d + n)::text, 'OrderPlaced', jsonb_build_object('n', n, 'pad', repeat('x', 270)) FROM generate_series(1, %d) n;
			COMMIT;
		END LOOP;
	END $$`, rows/each, each, each))
	return cfg
}

func drain(b testing.TB, cfg Config, rows int, rest bool) (took, cpu time.Duration) {
	b.Helper()
	s, err := Open(b.Context(), cfg, zerolog.Nop())
	if err != nil {
		b.Fatal(err)
	}
	s.pace.off = !rest
	out, ended := make(chan *Batch, 1), make(chan error, 1)
	began, used := time.Now(), cpuTime(b)
	go func() { ended <- s.Run(b.Context(), out, func() pglogrepl.LSN { return s.Start() }) }()
	for seen := 0; seen < rows; {
		select {
		case batch := <-out:
			seen += len(batch.Rows)
			batch.Release()
		case err := <-ended:
			b.Fatal(err)
		}
	}
	took, cpu = time.Since(began), cpuTime(b)-used
	s.Abort()
	for range len(out) {
		<-out
	}
	<-ended
	if err := s.Close(b.Context(), s.Start()); err != nil {
		b.Fatal(err)
	}
	return took, cpu
}

func cpuTime(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
