package relay

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// A column was dropped, a row written, and the column added again: the row keeps the shape that it was
// written in.
func TestBlocked_SaysWhatToDoAboutARowThatLacksAColumn(t *testing.T) {
	for _, on := range []OnReject{StopOnReject, SkipOnReject} {
		synctest.Test(t, func(t *testing.T) {
			narrow := *outbox
			narrow.Columns = outbox.Columns[:4]
			lacking := func() *wal.Batch {
				b := batch(130, 140, 1, "order/a/2")
				b.Rows[0].Relation, b.Rows[0].Values = &narrow, b.Rows[0].Values[:4]
				return b
			}
			var log bytes.Buffer
			b := &bench{server: newServer(lacking), sink: new(sinktest.Recorder), result: make(chan error, 1), log: zerolog.SyncWriter(&log)}
			b.start(t, Config{OnReject: on})
			pass(5 * time.Second)
			const next = "correct outbox in the configuration so that it needs no other column, and restart"
			if st := b.relay.Status(); st.State != status.Blocked || st.Reason != fault.ReasonSchema || !strings.Contains(st.Message, next) {
				t.Errorf("%s: %s %s: %s", on, st.State, st.Reason, st.Message)
			}
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, `"level":"error"`) && strings.Contains(line, "blocked: schema") && !strings.Contains(line, next) {
					t.Errorf("%s: no next step in %s", on, line)
				}
			}
			b.stop(t)
		})
	}
}
