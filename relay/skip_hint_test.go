package relay

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// Who follows the message must not give up more than the row's transaction: when it
// offers to move the slot behind that, what lies before has to be committed.
func TestBlocked_OffersToMoveTheSlotOnlyOverTheRowsTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, l := newServer(fixed(110, 120, 1, "order/a/1")), &ledger{sim: calmSim()}
		server.skipConfirmed = true
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, OnBlocked: ExitWhenBlocked}, server, prompt{&transactional{l: l}}, nil)
		pass(time.Second)
		server.more <- several(fixed(130, 140, 1, "order/a/2"), fixed(150, 160, 1, "order/a/3", "order/bad/x", "order/a/4"))
		err := <-w.result
		said := fmt.Sprint(err)
		if !strings.Contains(said, "relay.on_reject: dead_letter") {
			t.Errorf("no way out in %v", err)
		}
		if strings.Contains(said, "pg_replication_slot_advance") && !slices.Equal(l.rows(), []string{"a/1", "a/2"}) {
			t.Errorf("committed %q, and it says %v", l.rows(), err)
		}
	})
}

// So does at-least-once: with brokers away, rows before the one that blocks are not
// delivered yet.
func TestBlocked_OffersToMoveTheSlotOnlyOverWhatIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "/a/bad")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{})
		pass(10 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || !strings.Contains(st.Message, "relay.on_reject: dead_letter") || strings.Contains(st.Message, "pg_replication_slot_advance") {
			t.Errorf("with a row before it in flight: %s: %s", st.State, st.Message)
		}
		b.sink.Release()
		pass(10 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || !strings.Contains(st.Message, "pg_replication_slot_advance") {
			t.Errorf("with everything before it delivered: %s: %s", st.State, st.Message)
		}
		b.stop(t)
	})
}

// The log has the whole way out as soon as the status has it, and once.
func TestBlocked_LogsTheWayOutWhenItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "/a/bad")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		var log bytes.Buffer
		b.log = zerolog.SyncWriter(&log)
		b.start(t, Config{})
		pass(10 * time.Second)
		b.sink.Release()
		pass(20 * time.Second)
		if n := strings.Count(log.String(), status.MoveSlot); n != 1 {
			t.Errorf("said %d times:\n%s", n, &log)
		}
		if n := strings.Count(log.String(), `"level":"error","state":"blocked"`); n != 1 { // an alert counts them
			t.Errorf("%d errors for one block:\n%s", n, &log)
		}
		b.stop(t)
	})
}
