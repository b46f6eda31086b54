package replication

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// distantPostgres is a server of the test's own behind a link.
func distantPostgres(t *testing.T, version string) (*sandbox.Link, *harness.Database) {
	t.Helper()
	link := harness.Link(t, sandbox.LinkOptions{})
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"listen_addresses": "*"}})
	db.Exec(t, "COPY (SELECT 'host all all 198.18.0.0/16 trust') TO PROGRAM 'cat >> pg_hba.conf'")
	db.Exec(t, "SELECT pg_reload_conf()")
	cfg := behind(t, link, postgres.Config{URL: db.URL})
	for deadline := time.Now().Add(time.Minute); ; { // the server reads its files when it gets to it
		conn, err := postgres.Connect(t.Context(), cfg, false)
		if err == nil {
			postgres.CloseQuietly(conn)
			return link, db
		}
		if postgres.KindOf(err) != fault.KindRefused || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// behind is cfg by way of a link.
func behind(t *testing.T, link *sandbox.Link, cfg postgres.Config) postgres.Config {
	t.Helper()
	cfg.URL = readdressed(t, cfg.URL, func(testing.TB) (string, url.Values) { return link.There(), nil })
	return cfg
}

// The network between the relay and PostgreSQL goes without a word while Kafka takes
// rows slowly, so that nobody reads. The stream has to end before the server gives the
// slot to somebody else.
func TestPostgresLostNetworkEndsTheStreamBeforeTheSlotIsFree(t *testing.T) {
	for _, version := range harness.Versions() {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel() // to the other versions: it mostly waits
			lostNetworkEndsTheStream(t, version)
		})
	}
}

func lostNetworkEndsTheStream(t *testing.T, version string) {
	link, db := distantPostgres(t, version)
	cfg := backlog(t, db, 60_000, 10)
	cfg.WalSenderTimeout = 4 * time.Second
	for tries := 1; ; tries++ {
		kept := stalls(t)
		failure := lostNetwork(t, link, db, cfg)
		if failure == "" {
			return
		}
		// The stream has to be first by a twelfth of the timeout. A process that does not run for nearly as long
		// is late by itself.
		if longest := kept(); longest < cfg.WalSenderTimeout/16 || tries == 10 {
			t.Fatalf("%s; this process did not run for %s at most", failure, longest.Round(time.Millisecond))
		}
	}
}

// stalls watches for how long at a time this process does not run, until kept is called.
func stalls(t *testing.T) (kept func() time.Duration) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	found := make(chan time.Duration, 1)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		var longest time.Duration
		for last := time.Now(); ctx.Err() == nil; {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
		}
		found <- longest
	}()
	return func() time.Duration {
		stop()
		return <-found
	}
}

// lostNetwork says what was wrong when the network of a stream went.
func lostNetwork(t *testing.T, link *sandbox.Link, db *harness.Database, cfg postgres.Config) (failure string) {
	t.Helper()
	s := opened(t, behind(t, link, cfg), Options{})
	defer s.Abort()
	defer link.Drop(false)
	out, ended := make(chan *wal.Batch), make(chan error, 1)
	go func() { ended <- s.Run(t.Context(), out, func() wal.LSN { return s.StartLSN() }) }()
	for range 3 {
		(<-out).Release()
	}
	// Nobody takes the next one, for longer than the server waits: that alone ends nothing.
	select {
	case err := <-ended:
		return fmt.Sprintf("a connection that is not read ended: %v", err)
	case <-time.After(cfg.WalSenderTimeout + time.Second):
	}
	cut := time.Now()
	link.Drop(true)
	active := func() bool {
		return harness.Query[bool](t, db, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", cfg.Slot)
	}
	select {
	case err := <-ended:
		t.Logf("the stream ended %s after the network went: %v", time.Since(cut).Round(time.Millisecond), err)
		if !active() {
			return fmt.Sprintf("the slot is free already, %s after the network went: %v", time.Since(cut).Round(time.Millisecond), err)
		}
		return ""
	case <-time.After(4 * cfg.WalSenderTimeout):
		return fmt.Sprintf("the stream goes on %s after the network went; the slot is taken: %t", time.Since(cut).Round(time.Millisecond), active())
	}
}

// A server that does not read for longer than it has patience with us, because it
// computes or its machine is busy, is no lost one: what it is sent meanwhile has room in
// its receive buffer.
func TestPostgresServerThatDoesNotReadKeepsItsConnection(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	cfg := backlog(t, db, 60_000, 10)
	cfg.WalSenderTimeout = 5 * time.Second // a busy machine keeps either from the other for a second or two
	s, err := Open(t.Context(), cfg, Options{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	out, ended := make(chan *wal.Batch), make(chan error, 1)
	go func() { ended <- s.Run(t.Context(), out, func() wal.LSN { return s.StartLSN() }) }()
	defer s.Abort()
	(<-out).Release()
	defer db.Server.Continue()
	if err := db.Server.Pause(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("a connection to a server that does not read ended: %v", err)
	case <-time.After(2 * cfg.WalSenderTimeout):
	}
	db.Server.Continue()
	for rows := 0; rows < 50_000; {
		select {
		case b := <-out:
			rows += len(b.Rows)
			b.Release()
		case err := <-ended:
			t.Fatalf("the stream ended after %d rows: %v", rows, err)
		}
	}
}
