package relay

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// stats are those of the session's tracker; zero without a session.
func (b *bench) stats() checkpoint.Stats {
	if s := b.relay.session.Load(); s != nil {
		return s.tracker.Stats()
	}
	return checkpoint.Stats{}
}

// told is how often the server was told a position.
func (s *fakeServer) told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reports)
}

// outage is a day in which brokers acknowledge nothing.
type outage struct {
	*bench
	limit int
	rows  []string // payloads, in order
	next  wal.LSN
}

func (o *outage) row() func() *wal.Batch {
	o.rows = append(o.rows, fmt.Sprint(len(o.rows)))
	o.next += 10
	return fixed(o.next-5, o.next, 1, fmt.Sprintf("order/k%d/%s", len(o.rows)%3, o.rows[len(o.rows)-1]))
}

// fill sends rows until no other fits.
func (o *outage) fill(t *testing.T) {
	t.Helper()
	for each := 0; ; {
		o.server.more <- o.row()
		synctest.Wait()
		used := o.stats().Bytes
		if each = max(each, used/len(o.rows)); used+each > o.limit {
			return
		}
		if len(o.rows) > 1000 {
			t.Fatalf("%d rows take %d bytes of %d", len(o.rows), used, o.limit)
		}
	}
}

// overfill sends more rows than fit, until the source takes nothing either.
func (o *outage) overfill() {
	for {
		next := o.row()
		select {
		case o.server.more <- next:
			synctest.Wait()
		case <-time.After(time.Second):
			o.rows, o.next = o.rows[:len(o.rows)-1], o.next-10
			return
		}
	}
}

// A window that is full is back-pressure: a day of it takes no more memory than its first
// minute, the server is answered all the time, and nothing is lost or out of order.
func TestOutage_OfADayIsBackPressureAndNotMemory(t *testing.T) {
	hours := 24
	if testing.Short() {
		hours = 2
	}
	for name, c := range map[string]struct {
		away   bool // no broker answers; else they do, and acknowledge nothing
		over   bool // a row waits for room; else only keep-alives come
		state  status.State
		reason string
	}{
		"brokers away, a row waits":      {true, true, status.Blocked, fault.ReasonKafkaUnreachable},
		"brokers away, keep-alives come": {true, false, status.Streaming, fault.ReasonKafkaUnreachable},
		"brokers slow, a row waits":      {false, true, status.Blocked, fault.ReasonKafkaNotAcknowledging},
		"brokers slow, keep-alives come": {false, false, status.Streaming, fault.ReasonConfirmedNotMoving},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &outage{bench: &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}, limit: 64 << 10, next: 100}
				safe := int64(3 << 30)
				p := new(probe)
				p.snapshot.Store(&watch.Snapshot{WALEnd: 1 << 30, Slot: catalog.SlotInfo{Active: true, Confirmed: 100, Restart: 100, SafeWAL: &safe}})
				o.probe, o.server.status = p, 10*time.Second
				o.sink.Hold()
				o.start(t, Config{MaxInFlightBytes: o.limit, Replication: postgres.Config{WalSenderTimeout: time.Minute}})
				if c.away {
					o.sink.SetReachable(errors.New("dial broker: refused"))
				}
				pass(time.Second)
				o.fill(t)
				if c.over {
					o.overfill()
				}
				done, ended := make(chan struct{}), make(chan struct{})
				end := sync.OnceFunc(func() { close(done) })
				defer func() { // a failure may leave it in a drain
					end()
					o.relay.Abort()
					o.cancel()
				}()
				go func() { // behind a row that waits they stay in the connection
					defer close(ended)
					for {
						select {
						case <-time.After(10 * time.Second):
						case <-done:
							return
						}
						select {
						case o.server.more <- fixed(0, o.next+1, 1):
							o.next++
						case <-done:
							return
						}
					}
				}()
				pass(time.Minute)
				entries, waiting, told := o.stats().Entries, o.sink.Counts().Waiting, o.server.told()
				for hour := 1; hour <= hours; hour++ {
					pass(time.Hour)
					st := o.relay.Status()
					if st.State != c.state || st.Reason != c.reason || c.away != strings.Contains(st.Message, "nothing is lost before another 3.0 GiB") {
						t.Fatalf("hour %d: %s %s: %s", hour, st.State, st.Reason, st.Message)
					}
					if st.InFlightBytes > o.limit || st.InFlightBytes < o.limit/2 || st.InFlightLimitBytes != o.limit {
						t.Fatalf("hour %d: %d bytes in flight of %d", hour, st.InFlightBytes, o.limit)
					}
					if got := o.stats().Entries; got > entries {
						t.Fatalf("hour %d: %d entries are tracked, %d were in the first minute", hour, got, entries)
					}
					if got := o.sink.Counts().Waiting; got != waiting {
						t.Fatalf("hour %d: the sink holds %d records, %d in the first minute", hour, got, waiting)
					}
					if now := o.server.told(); now-told < 3600/30 { // half of wal_sender_timeout
						t.Fatalf("hour %d: the server was answered %d times in it", hour, now-told)
					} else {
						told = now
					}
					if at, n := o.server.position(), o.server.opens.Load(); at != 100 || n != 1 {
						t.Fatalf("hour %d: confirmed %s in session %d", hour, at, n)
					}
					if alive := time.Since(st.LastTick); alive > time.Minute {
						t.Fatalf("hour %d: the loops stand still for %s", hour, alive)
					}
				}
				o.sink.SetReachable(nil)
				o.sink.Release()
				pass(time.Minute)
				p.snapshot.Store(&watch.Snapshot{WALEnd: 1 << 30, Slot: catalog.SlotInfo{Active: true, Confirmed: o.server.position(), Restart: 100, SafeWAL: &safe}})
				pass(10 * time.Second)
				if st := o.relay.Status(); st.State != status.Streaming || st.Reason != "" || st.InFlightEvents != 0 {
					t.Errorf("after it: %s %s, %d rows in flight", st.State, st.Reason, st.InFlightEvents)
				}
				end()
				<-ended
				o.stop(t)
				if got, want := o.values(), strings.Join(o.rows, " "); got != want {
					t.Errorf("delivered %q, want %q", got, want)
				}
				if got := o.server.position(); got != o.next {
					t.Errorf("confirmed %s, want %s", got, o.next)
				}
			})
		})
	}
}
