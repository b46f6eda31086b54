package replication

import (
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/replication/socket"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// backlogRows is the size of a backlog: CDC_RELAY_BENCH_ROWS, else what shows a
// difference, and next to nothing where each benchmark runs just once (-benchtime 1x).
func backlogRows() int {
	if n, err := strconv.Atoi(os.Getenv("CDC_RELAY_BENCH_ROWS")); err == nil {
		return n
	}
	if f := flag.Lookup("test.benchtime"); f != nil && f.Value.String() == "1x" {
		return 2_000
	}
	return 200_000
}

// BenchmarkBacklog drains a backlog of rows with about 300 bytes of jsonb from a
// real server, with and without pausing between small reads, and with pauses in which
// SO_RCVLOWAT stays 1. CDC_RELAY_BENCH_ROWS sets its size.
func BenchmarkBacklog(b *testing.B) {
	rows := backlogRows()
	for _, each := range []int{1, 10, 1000} {
		cfg, opt := backlog(b, harness.Postgres(b), rows, each), Options{}
		b.Run(fmt.Sprintf("rows_each=%d/pause=false", each), func(b *testing.B) { drains(b, cfg, opt, rows, false) })
		b.Run(fmt.Sprintf("rows_each=%d/pause=true", each), func(b *testing.B) { drains(b, cfg, opt, rows, true) })
		opt.pacing.NoLowWater = true
		b.Run(fmt.Sprintf("rows_each=%d/pause=noisy", each), func(b *testing.B) { drains(b, cfg, opt, rows, true) })
	}
}

// BenchmarkBacklog_Pacing tries other buffers and pauses than the constants.
func BenchmarkBacklog_Pacing(b *testing.B) {
	rows := backlogRows()
	cfg, opt := backlog(b, harness.Postgres(b), rows, 10), Options{}
	for _, buffer := range []int{64 << 10, 128 << 10, 256 << 10} {
		for _, pause := range []time.Duration{3 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond} {
			opt.pacing = socket.Pacing{Buffer: buffer, Pause: pause}
			b.Run(fmt.Sprintf("buffer=%dKiB/pause=%s", buffer>>10, pause), func(b *testing.B) { drains(b, cfg, opt, rows, true) })
		}
	}
}

// BenchmarkBacklog_Wide drains rows of up to 200 KB.
func BenchmarkBacklog_Wide(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 50_000, 200_000} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			rows := max(2, backlogRows()*60/size) * 10
			cfg, opt := backlogOf(b, harness.Postgres(b), rows, 10, size), Options{}
			b.Run("pause=false", func(b *testing.B) { drains(b, cfg, opt, rows, false) })
			b.Run("pause=true", func(b *testing.B) { drains(b, cfg, opt, rows, true) })
			opt.pacing.Pause = 20 * time.Millisecond
			b.Run("pause=20ms", func(b *testing.B) { drains(b, cfg, opt, rows, true) })
		})
	}
}

// BenchmarkBacklog_Binary drains the same rows in the text and in the binary format: of
// our own shape, the same with its payload as bytea, small and large, and with no column
// but numbers, times and identifiers.
func BenchmarkBacklog_Binary(b *testing.B) {
	const columns = "id bigserial PRIMARY KEY, aggregate_type text DEFAULT 'orders', aggregate_id text DEFAULT '1', created_at timestamptz DEFAULT now()"
	for _, shape := range []struct {
		name, columns, payload string
		size                   int
	}{
		{"jsonb", columns + ", payload jsonb", "jsonb_build_object('n', n, 'pad', pad)", 300},
		{"bytea", columns + ", payload bytea", "decode(pad, 'hex')", 300},
		{"bytea_large", columns + ", payload bytea", "decode(pad, 'hex')", 20_000},
		{"fixed", "id uuid DEFAULT gen_random_uuid(), a bigint DEFAULT 1234567890123, b uuid DEFAULT gen_random_uuid(), c timestamptz DEFAULT now(), payload double precision", "random()", 300},
	} {
		b.Run(shape.name, func(b *testing.B) {
			db := harness.Postgres(b)
			db.Exec(b, "CREATE TABLE outbox ("+shape.columns+")")
			cfg, opt := publish(b, db, wal.Table{Schema: "public", Name: "outbox"}), Options{}
			rows := max(2, backlogRows()*30/shape.size) * 10
			fill(b, db, "payload", shape.payload, rows, 10, shape.size)
			for _, binary := range []bool{false, true} {
				opt.Binary = func([]*wal.Relation, wal.LSN, wal.LSN) bool { return binary }
				b.Run(fmt.Sprintf("binary=%t", binary), func(b *testing.B) { drains(b, cfg, opt, rows, true) })
			}
		})
	}
}

// BenchmarkBacklog_Link drains over other ways than the loopback device alone. What a
// pause gains there may be little; it must not cost anything.
func BenchmarkBacklog_Link(b *testing.B) {
	rows := backlogRows()
	cert, key := postgrestest.Certificate(b, "127.0.0.1")
	db := harness.OwnPostgres(b, sandbox.PostgresOptions{CertFile: cert, KeyFile: key, Settings: map[string]string{"listen_addresses": "*"}})
	// For connections that come over a link.
	db.Exec(b, "COPY (SELECT 'host all all 198.18.0.0/16 trust') TO PROGRAM 'cat >> pg_hba.conf'")
	db.Exec(b, "SELECT pg_reload_conf()")
	cfg := backlog(b, db, rows, 10)
	for _, way := range []struct {
		name    string
		address func(testing.TB) (host string, query url.Values)
	}{
		{"loopback", func(testing.TB) (string, url.Values) { return "127.0.0.1", nil }},
		{"tls", func(testing.TB) (string, url.Values) {
			return "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {cert}}
		}},
		{"unix", func(testing.TB) (string, url.Values) { return "", url.Values{"host": {db.Server.SocketDir()}} }},
		{"link", over(sandbox.LinkOptions{})},
		{"link_round_trip=500us", over(sandbox.LinkOptions{Delay: 250 * time.Microsecond})},
		{"link_round_trip=2ms", over(sandbox.LinkOptions{Delay: time.Millisecond})},
		{"link_round_trip=20ms", over(sandbox.LinkOptions{Delay: 10 * time.Millisecond})},
		{"link_round_trip=2ms_100Mbit", over(sandbox.LinkOptions{Delay: time.Millisecond, Rate: 100_000_000 / 8})},
	} {
		b.Run(way.name, func(b *testing.B) {
			cfg := cfg
			cfg.URL = readdressed(b, cfg.URL, way.address)
			for _, pause := range []bool{false, true} {
				b.Run(fmt.Sprintf("pause=%t", pause), func(b *testing.B) { drains(b, cfg, Options{}, rows, pause) })
			}
		})
	}
}

// over is the address of the server behind a link.
func over(options sandbox.LinkOptions) func(testing.TB) (string, url.Values) {
	return func(b testing.TB) (string, url.Values) {
		return harness.Link(b, options).There(), nil
	}
}

// readdressed is a URL of the same server by another way.
func readdressed(b testing.TB, address string, by func(testing.TB) (string, url.Values)) string {
	b.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.Fatal(err)
	}
	host, more := by(b)
	q := u.Query()
	q.Set("sslmode", "disable")
	for name, values := range more {
		q[name] = values
	}
	if host == "" {
		q.Set("port", u.Port())
		u.Host = ""
	} else {
		u.Host = net.JoinHostPort(host, u.Port())
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func drains(b *testing.B, cfg postgres.Config, opt Options, rows int, pause bool) {
	var sum drained
	for range b.N {
		d := drain(b, cfg, opt, rows, pause)
		sum.took, sum.cpu, sum.sender = sum.took+d.took, sum.cpu+d.cpu, sum.sender+d.sender
	}
	total := float64(rows * b.N)
	b.ReportMetric(total/sum.took.Seconds(), "rows/s")
	b.ReportMetric(float64(sum.cpu.Nanoseconds())/total/1e3, "cpu-µs/row")
	b.ReportMetric(float64(sum.sender.Nanoseconds())/total/1e3, "walsender-µs/row")
	b.ReportMetric(0, "ns/op")
}

// drained is what reading a backlog took: time, our CPU time and the walsender's.
type drained struct{ took, cpu, sender time.Duration }

// backlog is one of rows with about 300 bytes of jsonb.
func backlog(b testing.TB, db *harness.Database, rows, each int) postgres.Config {
	b.Helper()
	return backlogOf(b, db, rows, each, 300)
}

// backlogOf has payloads that do not shrink when they are stored.
func backlogOf(b testing.TB, db *harness.Database, rows, each, size int) postgres.Config {
	b.Helper()
	cfg := orders(b, db)
	fill(b, db, "aggregate_id, payload", "(i * 1000 + n)::text, jsonb_build_object('n', n, 'pad', pad)", rows, each, size)
	return cfg
}

// fill writes rows, so many a transaction, of what values makes of i, the transaction,
// n, the row in it, and pad, which makes up most of size.
func fill(b testing.TB, db *harness.Database, columns, values string, rows, each, size int) {
	b.Helper()
	db.Exec(b, fmt.Sprintf(`DO $$ DECLARE pad text := (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, %d)); BEGIN
		FOR i IN 1..%d LOOP
			INSERT INTO outbox (%s) SELECT %s FROM generate_series(1, %d) n;
			COMMIT;
		END LOOP;
	END $$`, max(1, (size-30)/32), rows/each, columns, values, each))
}

func drain(b testing.TB, cfg postgres.Config, opt Options, rows int, pause bool) drained {
	b.Helper()
	opt.pacing.Off = !pause
	s, err := Open(b.Context(), cfg, opt, zerolog.Nop())
	if err != nil {
		b.Fatal(err)
	}
	out, ended := make(chan *wal.Batch, 1), make(chan error, 1)
	began, used := time.Now(), cpuTime(b)
	go func() { ended <- s.Run(b.Context(), out, func() wal.LSN { return s.StartLSN() }) }()
	for seen := 0; seen < rows; {
		select {
		case batch := <-out:
			seen += len(batch.Rows)
			batch.Release()
		case err := <-ended:
			b.Fatal(err)
		}
	}
	d := drained{time.Since(began), cpuTime(b) - used, senderTime(b, cfg)}
	s.Abort()
	for range len(out) {
		<-out
	}
	<-ended
	if err := s.Close(b.Context(), s.StartLSN()); err != nil {
		b.Fatal(err)
	}
	return d
}

// senderTime is the CPU time of the walsender so far; 0 where it does not run here.
func senderTime(b testing.TB, cfg postgres.Config) time.Duration {
	b.Helper()
	conn, err := postgres.Connect(b.Context(), cfg, false)
	if err != nil {
		b.Fatal(err)
	}
	defer postgres.CloseQuietly(conn)
	row, err := postgres.Querier{Ctx: b.Context(), Conn: conn}.One("SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = " + postgres.QuoteLiteral(cfg.Slot))
	if err != nil {
		b.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + row.Text(0) + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func cpuTime(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
