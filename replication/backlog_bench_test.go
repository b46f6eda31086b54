package replication

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

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
// real server, with and without resting between small reads.
// CDC_RELAY_BENCH_ROWS sets its size.
func BenchmarkBacklog(b *testing.B) {
	rows := backlogRows()
	for _, each := range []int{1, 10, 1000} {
		cfg := backlog(b, harness.Postgres(b), rows, each)
		for _, rest := range []bool{false, true} {
			b.Run(fmt.Sprintf("rows_each=%d/rest=%t", each, rest), func(b *testing.B) { drains(b, cfg, rows, rest) })
		}
	}
}

// BenchmarkBacklog_Pacing tries other buffers and rests than the constants.
func BenchmarkBacklog_Pacing(b *testing.B) {
	rows := backlogRows()
	cfg := backlog(b, harness.Postgres(b), rows, 10)
	for _, buffer := range []int{64 << 10, 128 << 10, 256 << 10} {
		for _, rest := range []time.Duration{3 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond} {
			cfg.pacing = pacing{buffer: buffer, rest: rest}
			b.Run(fmt.Sprintf("buffer=%dKiB/rest=%s", buffer>>10, rest), func(b *testing.B) { drains(b, cfg, rows, true) })
		}
	}
}

// BenchmarkBacklog_Link drains over other ways than the loopback device alone. What a
// rest gains there may be little; it must not cost anything.
func BenchmarkBacklog_Link(b *testing.B) {
	rows := backlogRows()
	db := harness.Postgres(b)
	direct := backlog(b, db, rows, 10)
	for _, link := range []struct {
		name string
		set  func(*sandbox.Proxy)
	}{
		{"loopback", nil},
		{"unix", nil},
		{"proxy", func(*sandbox.Proxy) {}},
		{"proxy_10MB_a_second", func(p *sandbox.Proxy) { p.Slow(sandbox.ToClient, 10<<20) }},
		{"proxy_1ms", func(p *sandbox.Proxy) {
			p.Delay(sandbox.ToClient, time.Millisecond)
			p.Delay(sandbox.ToServer, time.Millisecond)
		}},
	} {
		cfg := direct
		if link.name == "unix" {
			if db.Server.SocketDir() == "" {
				continue
			}
			cfg.URL = elsewhere(b, cfg.URL, db.Server.SocketDir())
		}
		if link.set != nil {
			u, err := url.Parse(cfg.URL)
			if err != nil {
				b.Fatal(err)
			}
			proxy, err := sandbox.NewProxy(u.Host)
			if err != nil {
				b.Fatal(err)
			}
			defer proxy.Close()
			link.set(proxy)
			u.Host = proxy.Addr()
			cfg.URL = u.String()
		}
		for _, rest := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/rest=%t", link.name, rest), func(b *testing.B) { drains(b, cfg, rows, rest) })
		}
	}
}

// elsewhere is a URL by the server's Unix socket.
func elsewhere(b testing.TB, address, dir string) string {
	b.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.Fatal(err)
	}
	q := u.Query()
	q.Set("host", dir)
	q.Set("port", u.Port())
	u.Host, u.RawQuery = "", q.Encode()
	return u.String()
}

func drains(b *testing.B, cfg Config, rows int, rest bool) {
	var sum drained
	for range b.N {
		d := drain(b, cfg, rows, rest)
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

func drain(b testing.TB, cfg Config, rows int, rest bool) drained {
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
	d := drained{time.Since(began), cpuTime(b) - used, senderTime(b, cfg)}
	s.Abort()
	for range len(out) {
		<-out
	}
	<-ended
	if err := s.Close(b.Context(), s.Start()); err != nil {
		b.Fatal(err)
	}
	return d
}

// senderTime is the CPU time of the walsender so far; 0 where it does not run here.
func senderTime(b testing.TB, cfg Config) time.Duration {
	b.Helper()
	conn, err := connect(b.Context(), cfg, false)
	if err != nil {
		b.Fatal(err)
	}
	defer closeQuietly(conn)
	row, err := querier{ctx: b.Context(), conn: conn}.one("SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = " + singleQuoted(cfg.Slot))
	if err != nil {
		b.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + row.text(0) + "/stat")
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
