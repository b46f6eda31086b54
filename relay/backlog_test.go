package relay

import (
	"bytes"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// The log and the status have how much of a backlog is left, and when it is read.
func TestBacklog_IsToldEachHalfMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		var received atomic.Uint64
		received.Store(100)
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 800 * mib, Slot: catalog.SlotInfo{Confirmed: 100, Restart: 50}})
		server := newServer()
		server.wrap = func(f *fakeSource) Source { return behindSource{f, &received} }
		var log bytes.Buffer
		b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p, log: zerolog.SyncWriter(&log)}
		b.start(t, Config{ProbeInterval: time.Second})
		read := func(seconds int) {
			for range seconds {
				pass(time.Second)
				received.Add(10 * mib)
			}
		}
		read(75)
		if st := b.relay.Status(); st.CatchUp == nil || st.CatchUp.Seconds == nil || !strings.HasPrefix(st.Headline, "Catching up: ") {
			t.Errorf("in the backlog the status has %+v, %q", st.CatchUp, st.Headline)
		}
		received.Store(uint64(wal.LSN(800 * mib)))
		pass(2 * time.Second)
		if st := b.relay.Status(); st.CatchUp != nil || st.Headline != "Streaming, 0.0 s behind." {
			t.Errorf("behind the backlog the status has %+v, %q", st.CatchUp, st.Headline)
		}
		pass(time.Hour)
		b.stop(t)
		var told []string
		for _, found := range regexp.MustCompile(`"message":"(ca[^"]*)"`).FindAllStringSubmatch(log.String(), -1) {
			told = append(told, found[1])
		}
		// The looks and the reading are at the same moments: a step more or less is in the figures.
		want := regexp.MustCompile(`^catching up: 7[0-9]{2}\.0 MiB of WAL left
catching up: 4[0-9]{2}\.0 MiB of WAL left, less than a minute
catching up: 1[0-9]{2}\.0 MiB of WAL left, less than a minute
caught up, after 1m(8|9|10)s$`)
		if !want.MatchString(strings.Join(told, "\n")) {
			t.Errorf("the log has\n%s", strings.Join(told, "\n"))
		}
	})
}
