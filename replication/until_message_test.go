package replication

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// A message outside any transaction that ends at Until lies before it, as a transaction does whose
// commit record ends there: pg_current_wal_lsn() right after pg_logical_emit_message(false, …) is
// that position. It was left out; and where nobody took the batch before it for long, a keep-alive
// that was read meanwhile had the position behind it confirmed, so that no later session got it.
func TestUntil_TheEndOfAMessageLiesBeforeIt(t *testing.T) {
	for _, slow := range []time.Duration{0, time.Minute} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				f := &fakeServer{t: t, conn: theirs, begun: time.Now(), out: make(chan *wal.Batch), ended: make(chan error, 1), copyDone: make(chan struct{}), hungUp: make(chan struct{})}
				f.confirmed.Store(uint64(testStart))
				cfg := postgres.Config{Slot: "slot", Publication: "pub", Tables: testTables, Messages: []string{"mine"}}
				f.stream = newStream(cfg, Options{Until: 0x280}, zerolog.Nop(), ours, &catalog.Catalog{
					Server: postgres.Server{ServerVersion: 150000, SenderTimeout: 15 * time.Second}, Confirmed: testStart,
				})
				go f.listen()
				over := make(chan struct{})
				go func() {
					defer close(over)
					f.ended <- f.stream.Run(t.Context(), f.out, func() wal.LSN { return wal.LSN(f.confirmed.Load()) })
				}()
				go func() {
					f.whole(append(txn(0x200, 7, "1"), pgoutputtest.Message{'M'}.U8(0).LSN(0x280).Str("mine").U32(1).U8('1')))
					f.keepAlive(0x300, false)
				}()
				pass(slow)
				rows, through := 0, wal.LSN(0)
				for b := f.take(); b != nil; b = f.take() {
					rows, through = rows+len(b.Rows), max(through, b.Through)
					b.Release()
				}
				if rows != 2 {
					t.Errorf("taken after %s: %d rows of 2, and %s may be confirmed: the message is from before 0/280", slow, rows, through)
				}
				f.stream.Abort()
				<-over
				_ = theirs.Close()
				_ = f.stream.Close(context.Background(), 0)
			})
		})
	}
}
