package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// notEnded fails the test when Run has returned.
func (f *fakeServer) notEnded() {
	f.t.Helper()
	synctest.Wait()
	select {
	case err := <-f.ended:
		f.t.Fatalf("the stream ended: %v", err)
	default:
	}
}

// whole sends a transaction in one piece, so that it is one batch.
func (f *fakeServer) whole(messages []pgoutputtest.Message) {
	f.t.Helper()
	var piece []byte
	for _, m := range messages {
		piece = append(piece, pgoutputtest.Frame('d', pgoutputtest.InWAL(0x200, pgoutputtest.Micros, m))...)
	}
	f.send(piece)
}

// A blocked relay has the server say its position for as long as others write.
func TestKeepAlivesAreReadWhileNobodyTakesTheBatch(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		read := make(chan struct{})
		go func() {
			defer close(read)
			f.whole(txn(0x200, 7, "1"))
			for n := range wal.LSN(1000) {
				f.keepAlive(0x1000+n, false) // a pipe takes no byte that is not read
			}
		}()
		pass(5 * time.Minute)
		select {
		case <-read:
		default:
			t.Error("keep-alives are not read")
		}
		f.notEnded()
		for b := f.take(); b != nil; b = f.take() {
			f.confirm(max(wal.LSN(f.confirmed.Load()), b.Through))
			b.Release()
		}
		if at := wal.LSN(f.confirmed.Load()); at != 0x1000+999 {
			t.Errorf("handed out up to %s", at)
		}
		f.notEnded()
	})
}

// Rows that have no room are dropped, the connection lives, and no position behind the first of
// them is handed out.
func TestRowsAreDroppedWhenNobodyTakesThemForLong(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		read := make(chan struct{})
		go func() {
			defer close(read)
			f.whole(txn(0x200, 7, "1"))
			f.stream.unacknowledged = func() int { return 1000 }
			for n := range wal.LSN(100) {
				f.wal(txn(0x1000+0x100*n, 8, strings.Repeat("x", 20_000))...)
			}
			f.wal(txn(0xa000, 9, strings.Repeat("x", 3*frameBuffer))...) // larger than the buffer
			f.keepAlive(0xf000, true)
		}()
		pass(5 * time.Minute)
		select {
		case <-read:
		default:
			t.Error("not everything is read")
		}
		f.notEnded()
		rows := 0
		for b := f.take(); b != nil; b = f.take() {
			rows += len(b.Rows)
			f.confirm(max(wal.LSN(f.confirmed.Load()), b.Through))
			b.Release()
		}
		if at := wal.LSN(f.confirmed.Load()); rows != 1 || at != 0x230 {
			t.Errorf("handed out %d rows, up to %s", rows, at)
		}
		if err := <-f.ended; !errors.Is(err, wal.ErrReadPast) {
			t.Errorf("ended with %v", err)
		}
		f.closeOK(0x230)
	})
}

// What comes after the stream ended belongs to the next session.
func TestRowsAreDroppedWhileTheLastOnesAreDelivered(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		f.stream.unacknowledged = func() int { return 1000 }
		f.readToTheStop()
		read := make(chan struct{})
		go func() {
			defer close(read)
			for n := range wal.LSN(100) {
				f.wal(txn(0x1000+0x100*n, 8, strings.Repeat("x", 20_000))...)
			}
		}()
		pass(5 * time.Minute)
		select {
		case <-read:
		default:
			t.Error("not everything is read")
		}
		f.confirm(0x230)
		f.closeOK(0x230)
	})
}

// The kernel ends a connection whose receive buffer is full: see readOn.
func TestPostgresConnectionThatIsNotReadLivesWhileOthersWrite(t *testing.T) {
	for name, c := range map[string]struct {
		write    string
		patience time.Duration // of the server; the kernel's is two thirds of it
	}{
		"rows of the stream":  {"INSERT INTO outbox (aggregate_id, payload) VALUES ('1', to_jsonb(repeat('x', 250)))", 3 * time.Second}, // with more the connection seldom ends where nobody reads on
		"transactions beside": {"INSERT INTO beside VALUES (1)", 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t)
			cfg := orders(t, db)
			cfg.WalSenderTimeout = c.patience
			db.Exec(t, "CREATE TABLE beside (n int)")
			for tries := 1; ; tries++ {
				kept := stalls(t)
				failure := leaveUnread(t, db, cfg, c.write)
				if failure == "" {
					return
				}
				// A process that does not run for nearly as long as the server waits loses its connection by itself.
				if longest := kept(); longest < c.patience/3 || tries == 10 {
					t.Fatalf("%s; this process did not run for %s at most", failure, longest.Round(time.Millisecond))
				}
			}
		})
	}
}

// leaveUnread says what was wrong with a stream that nobody read while others wrote.
func leaveUnread(t *testing.T, db *harness.Database, cfg postgres.Config, write string) (failure string) {
	t.Helper()
	r := read(t, cfg)
	defer r.stream.Abort()
	db.Exec(t, "INSERT INTO outbox (aggregate_id, payload) VALUES ('1', '{}')")
	r.texts(1, "aggregate_id")
	// Each commit is sent by itself: the server's last acknowledgement then comes behind a
	// message that has no room, and not with one that fills it.
	for began := time.Now(); time.Since(began) < 18*time.Second; {
		db.Exec(t, "DO $$ BEGIN FOR i IN 1..10 LOOP "+write+"; COMMIT; PERFORM pg_sleep(0.0005); END LOOP; END $$")
		select {
		case err := <-r.ended:
			return fmt.Sprintf("the stream ended after %s: %v", time.Since(began).Round(time.Millisecond), err)
		default:
		}
	}
	var last wal.LSN // the rows, unless some had to be dropped, and the position behind all commits
	end := harness.Query[string](t, db, "SELECT pg_current_wal_insert_lsn()::text")
	for want, _ := wal.ParseLSN(end); last < want; {
		b, err := r.next()
		if b == nil {
			if write == "INSERT INTO beside VALUES (1)" || !errors.Is(err, wal.ErrReadPast) {
				return fmt.Sprintf("the stream ended: %v", err)
			}
			return ""
		}
		last = max(last, b.Through)
		r.settle(b)
	}
	return ""
}
