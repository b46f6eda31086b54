package replication

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The server left rows out and said so. No position behind them is handed out, however long nobody
// takes the rows before them: with exactly_once the checkpoint would be behind the gap.
func TestSkipped_NothingBehindLeftOutRowsIsHandedOut(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
		go func() {
			var piece []byte // one read: the notice is handled before the batch is offered
			for _, m := range txn(0x200, 7, "1") {
				piece = append(piece, pgoutputtest.Frame('d', pgoutputtest.InWAL(0x200, pgoutputtest.Micros, m))...)
			}
			f.send(append(piece, pgoutputtest.Frame('N', []byte("SWARNING\x00VWARNING\x00C55000\x00Mskipped loading publication\x00\x00"))...))
			for range 100 {
				f.keepAlive(0x900, false)
			}
		}()
		pass(time.Minute)
		through := wal.LSN(0)
		for b := f.take(); b != nil; b = f.take() {
			through = max(through, b.Through)
			b.Release()
		}
		if through != 0x230 {
			t.Errorf("handed out %s", through)
		}
	})
}
