package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// redrive marks letters of a key as sent: nothing of the key waits at the offsets.
func (r *rejecting) redrive(key string, offsets ...int64) {
	m := deadletter.Marker{
		Source: "7000/16384/orders", Group: deadletter.KeyGroup("order-events", []byte(key)), Outcome: deadletter.Sent,
		Offsets: deadletter.NewOffsets(offsets),
	}
	r.log.add(m.Record(lettersTopic, []byte(key)))
}

func TestParking_LaterRowsFollowUntilReDriven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(
			fixed(110, 120, 1, "order/a/1", "order/b/2", "order/a/bad", "order/a/4", "order/b/5"), fixed(130, 140, 1, "order/a/6", "other/a/7")))
		r.sink.Decide(refuseBad)
		r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(10 * time.Second)
		if got := r.direct(); got != "1 2 5 7" {
			t.Fatalf("delivered %q: key a of order-events is parked, nothing else", got)
		}
		if got := r.told(t); got != "record_too_large:bad parked:4 parked:6" || r.server.position() != 140 {
			t.Fatalf("letters %q, confirmed %s", got, r.server.position())
		}
		if st := r.relay.Status(); st.ParkedKeys != 1 || st.DeadLetters != 3 || st.EventsRejected != 1 {
			t.Fatalf("status %+v", st)
		}

		// A redrive that does not reach the last row leaves the key parked.
		r.redrive("a", 0, 1)
		pass(time.Second)
		r.server.more <- fixed(150, 160, 1, "order/a/8")
		pass(time.Second)
		if got := r.told(t); got != "record_too_large:bad parked:4 parked:6 parked:8" {
			t.Fatalf("letters %q", got)
		}
		// So does one of another slot's rows.
		other := deadletter.Marker{Source: "7000/16384/other", Group: deadletter.KeyGroup("order-events", []byte("a")), Offsets: deadletter.NewOffsets([]int64{0, 1, 2}), Outcome: deadletter.Sent}
		r.log.add(other.Record(lettersTopic, []byte("a")))
		pass(time.Second)
		if st := r.relay.Status(); st.ParkedKeys != 1 {
			t.Fatalf("%d keys parked", st.ParkedKeys)
		}

		// Another process finds the key parked.
		r.stop(t)
		r.again(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(time.Second)
		r.server.more <- fixed(170, 180, 1, "order/a/9")
		pass(time.Second)
		if got := r.told(t); !strings.HasSuffix(got, " parked:9") || r.direct() != "1 2 5 7" {
			t.Fatalf("letters %q, delivered %q", got, r.direct())
		}

		r.redrive("a", 2, 3, 4, 5, 6)
		pass(time.Second)
		r.server.more <- fixed(190, 200, 1, "order/a/10")
		pass(time.Second)
		if got := r.direct(); got != "1 2 5 7 10" || r.relay.Status().ParkedKeys != 0 {
			t.Fatalf("delivered %q after the key was free", got)
		}
		r.stop(t)
		if r.server.position() != 200 {
			t.Fatalf("confirmed %s", r.server.position())
		}
	})
}

func TestParking_RouterRejectionParksWhereTopicAndKeyAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "/a/x", "order/a/2")))
		r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(time.Second)
		if got := r.direct(); got != "2" {
			t.Fatalf("delivered %q: without a topic there is no order to keep", got)
		}
		noID := func() *wal.Batch {
			b := batch(130, 140, 1, "order/a/3", "order/a/4")
			b.Rows[0].Values[0] = wal.Value{Kind: wal.Null}
			return b
		}
		r.server.more <- noID
		pass(time.Second)
		if got := r.told(t); got != "route:x mapping:3 parked:4" {
			t.Fatalf("letters %q", got)
		}
		r.stop(t)
	})
}

// The letter of a row that the router refuses is not there before earlier rows of its key
// are: whoever re-drives it would put it ahead of them.
func TestParking_ALetterDoesNotOvertakeEarlierRowsOfItsKey(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(map[bool]string{false: "one batch", true: "two batches"}[apart], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				noID := func(first int, rows ...string) func() *wal.Batch {
					return func() *wal.Batch {
						b := batch(130, 140, 1, rows...)
						for i := first; i < len(b.Rows); i++ {
							b.Rows[i].Values[0] = wal.Value{Kind: wal.Null}
						}
						return b
					}
				}
				r := newRejecting(newServer(noID(1, "order/a/1", "order/a/2", "order/b/3")))
				if apart {
					r = newRejecting(newServer(fixed(110, 120, 1, "order/a/1"), noID(0, "order/a/2", "order/b/3")))
				}
				r.sink.Hold()
				r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
				pass(20 * time.Second)
				if got := r.sink.Counts().Waiting; got != 1 {
					t.Errorf("%d records were handed over while an earlier row of the key is not acknowledged", got)
				}
				r.sink.Release()
				pass(20 * time.Second)
				if got := r.direct() + " " + r.told(t); got != "1 mapping:2 mapping:3" {
					t.Errorf("in the end: %q", got)
				}
				r.stop(t)
				if r.server.position() != 140 {
					t.Errorf("confirmed %s", r.server.position())
				}
			})
		})
	}
}

func TestParking_MoreKeysThanFitBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRejecting(newServer(fixed(110, 120, 1, "order/a/bad1", "order/b/bad2", "order/c/3")))
		r.sink.Decide(refuseBad)
		r.most = 1
		r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(time.Minute)
		if st := r.relay.Status(); st.State != status.Blocked || st.Reason != "parked_keys_full" || !strings.Contains(st.Message, "deadletter list") {
			t.Fatalf("status %+v", st)
		}
		if r.server.position() != 100 || r.told(t) != "record_too_large:bad1" {
			t.Fatalf("confirmed %s, letters %q", r.server.position(), r.told(t))
		}
		r.stop(t)
	})
}

// Whatever is refused, wherever the connection breaks: every row is in its topic or
// among the dead letters, no key has a row in its topic behind a rejected one that is
// still there, and the rest of each key is in order.
func TestParking_KeepsOrderUnderRandomRefusals(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRefusals(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomRefusals(t *testing.T, random *rand.Rand) {
	var batches []func() *wal.Batch
	total, last := 0, wal.LSN(0)
	for n := range 12 {
		var rows []string
		for range 1 + random.IntN(6) {
			key, value := string(rune('a'+random.IntN(4))), fmt.Sprintf("%04d", total)
			switch random.IntN(8) {
			case 0:
				value = "bad" + value
			case 1:
				rows = append(rows, "/"+key+"/"+value) // no topic
				total++
				continue
			}
			rows = append(rows, "order/"+key+"/"+value)
			total++
		}
		commit := wal.LSN(110 + 20*n)
		last = commit + 10
		batches = append(batches, fixed(commit, last, 1, rows...))
	}
	r := newRejecting(newServer(batches...))
	r.sink.Scatter(random.IntN(2) == 0)
	r.sink.Decide(refuseBad)
	r.sink.Delay(time.Duration(1+random.IntN(50)) * time.Millisecond)
	r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
	for range random.IntN(3) {
		pass(time.Duration(20+random.IntN(400)) * time.Millisecond)
		r.server.cut()
	}
	pass(time.Minute)
	r.stop(t)
	if r.server.position() != last {
		t.Fatalf("confirmed %s, want %s", r.server.position(), last)
	}
	seen, parked, newest := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, d := range r.sink.Delivered() {
		value, key := string(d.Value), string(d.Key)
		fresh := !seen[value]
		seen[value] = true
		switch {
		case d.Topic == lettersTopic:
			l, _, err := deadletter.Parse(&topics.Message{Key: d.Key, Value: d.Value, Headers: d.Headers})
			if err != nil {
				t.Fatal(err)
			}
			parked[key] = parked[key] || l.Keyed
		case parked[key] && fresh:
			t.Fatalf("%s of key %s was delivered although an earlier row of the key is a dead letter", value, key)
		case fresh && strings.TrimPrefix(value, "bad") < newest[key]:
			t.Fatalf("%s of key %s came after %s", value, key, newest[key])
		case fresh:
			newest[key] = strings.TrimPrefix(value, "bad") // one that the brokers happened to take after all
		}
	}
	if len(seen) != total {
		t.Fatalf("%d of %d rows are somewhere", len(seen), total)
	}
}

// A row that has to come as text ends the session. Rows before it are not confirmed unless they were
// sent, also where the batch was routed in pieces, because a letter waited for earlier rows of its key.
func TestParking_RowsBeforeOneThatComesAgainAsTextAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		binary := *outbox
		binary.Columns = slices.Clone(outbox.Columns)
		binary.Columns[3].Type = 99_999 // without a text form that is known exactly
		first := true
		rows := func() *wal.Batch {
			b := batch(110, 120, 1, "order/a/1", "order/a/2", "order/b/3", "order/b/4")
			for i := range b.Rows {
				commit := wal.LSN(111 + 2*i)
				b.Rows[i].Txn = &wal.Txn{XID: uint32(7 + i), Commit: commit, End: commit + 1, Time: time.Unix(1000, 0)}
				b.Rows[i].Ordinal = 1
			}
			b.Rows[1].Values[0] = wal.Value{Kind: wal.Null} // a letter, which would overtake the first row
			if first {
				b.Rows[3].Relation = &binary
				b.Rows[3].Values[3].Kind = wal.Binary
			}
			first = false
			return b
		}
		r := newRejecting(newServer(rows))
		r.server.skipConfirmed = true
		r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(20 * time.Second)
		if got, letters := r.direct(), r.told(t); !strings.HasSuffix(got, "3 4") || !strings.Contains(letters, "mapping:2") {
			t.Errorf("delivered %q, letters %q; confirmed %s", got, letters, r.server.position())
		}
		r.stop(t)
	})
}
