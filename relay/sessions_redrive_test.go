package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// redriven are values that a redrive sent when so many records had been delivered.
type redriven struct {
	after  int
	values []string
}

// redriveAll sends the letters that wait, those of a key in the order of their rows, as another producer
// does whose records are durable at once.
func (r *rejecting) redriveAll(t *testing.T) (done redriven) {
	t.Helper()
	waiting := map[deadletter.Group][]*deadletter.Letter{}
	for _, m := range r.log.messages() {
		letter, marker, err := deadletter.Parse(m)
		if err != nil {
			t.Fatal(err)
		}
		if marker != nil {
			waiting[marker.Group] = slices.DeleteFunc(waiting[marker.Group], func(l *deadletter.Letter) bool { return marker.Covers(l) })
			continue
		}
		waiting[letter.Group] = append(waiting[letter.Group], letter)
	}
	done.after = len(r.log.delivered())
	for group, letters := range waiting {
		if len(letters) == 0 {
			continue
		}
		var offsets []int64
		for _, l := range letters {
			offsets = append(offsets, l.Offset)
		}
		slices.SortStableFunc(letters, func(a, b *deadletter.Letter) int { return a.Compare(b.ID) })
		letters = slices.CompactFunc(letters, func(a, b *deadletter.Letter) bool { return a.ID == b.ID })
		for _, l := range letters {
			done.values = append(done.values, string(l.Record.Key)+"/"+string(l.Record.Value))
		}
		m := deadletter.Marker{Source: letters[0].Source, Group: group, Outcome: deadletter.Sent, Offsets: deadletter.NewOffsets(offsets)}
		r.log.add(m.Record(lettersTopic, letters[0].Record.Key))
	}
	return done
}

// slowRows are brokers that take longer for rows than for dead letters, whose topic has other leaders.
type slowRows struct {
	*sinktest.Recorder
	delay time.Duration

	turn  sync.Mutex
	mu    sync.Mutex
	queue []func()
}

func (s *slowRows) Send(ctx context.Context, records []record.Record, done func(error)) {
	of := map[bool][]int{}
	for i := range records {
		letter := records[i].Topic == lettersTopic
		of[letter] = append(of[letter], i)
	}
	var mu sync.Mutex
	var failures []sink.Failure
	left := len(of)
	part := func(letters bool) {
		indices := of[letters]
		subset := make([]record.Record, len(indices))
		for i, index := range indices {
			subset[i] = records[index]
		}
		s.Recorder.Send(ctx, subset, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if failed, ok := errors.AsType[*sink.FailedError](err); ok {
				for _, f := range failed.Failures {
					f.Index = indices[f.Index]
					failures = append(failures, f)
				}
			}
			if left--; left > 0 {
				return
			}
			if len(failures) == 0 {
				done(nil)
				return
			}
			slices.SortFunc(failures, func(a, b sink.Failure) int { return a.Index - b.Index })
			done(&sink.FailedError{Failures: failures})
		})
	}
	if of[false] != nil {
		s.mu.Lock()
		s.queue = append(s.queue, func() { part(false) })
		s.mu.Unlock()
		time.AfterFunc(s.delay, func() {
			s.turn.Lock() // timers of one moment keep the order
			defer s.turn.Unlock()
			s.mu.Lock()
			next := s.queue[0]
			s.queue = s.queue[1:]
			s.mu.Unlock()
			next()
		})
	}
	if of[true] != nil {
		part(true)
	}
}

// Rows are rejected, their keys parked and re-driven, while sessions end anywhere, processes are
// killed and the slot goes back. In the end consumers have each row of a key last after the one
// before it.
func TestSessions_RedrivenKeysEndWithTheirNewestRow(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { randomRedrives(t, seed) })
	}
}

func randomRedrives(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 9))
	batches, ends, last := numberedTxns(random)
	server := newServer(batches...)
	server.skipConfirmed = true
	goesBack(server, ends, rand.New(rand.NewPCG(seed, 10)), 4)
	r := newRejecting(server)
	cfg := Config{MaxInFlightBytes: 200 + random.IntN(20_000), OnReject: DeadLetterOnReject, ParkKey: true}
	accepted := time.Now().Add(time.Duration(random.IntN(10_000)) * time.Millisecond)
	prepare := func(s *sinktest.Recorder) {
		s.Scatter(random.IntN(2) == 0)
		s.Decide(refuseBadUntil(accepted))
	}
	prepare(r.sink)
	r.wrap = func(s *sinktest.Recorder) sink.Sink {
		return &slowRows{Recorder: s, delay: time.Duration(1+seed%50) * time.Millisecond}
	}
	r.run(t, cfg)
	var sent []redriven
	for range 14 {
		pass(time.Duration(random.IntN(400)) * time.Millisecond)
		server.mu.Lock()
		current := server.current
		server.mu.Unlock()
		switch random.IntN(5) {
		case 0, 1:
			sent = append(sent, r.redriveAll(t))
		case 2:
			r.relay.Abort()
			r.cancel()
			<-r.result
			r.sink = new(sinktest.Recorder)
			prepare(r.sink)
			r.log.mu.Lock()
			r.log.sinks = append(r.log.sinks, r.sink)
			r.log.mu.Unlock()
			r.run(t, cfg)
		default:
			if current == nil {
				continue
			}
			err := []error{
				&fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "read stream", Err: errors.New("connection reset")},
				&fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, LSN: 125, Err: errors.New("too large")},
				fmt.Errorf("stream from slot: %w", wal.ErrReadPast),
			}[random.IntN(3)]
			select {
			case current.fail <- err:
			default:
			}
		}
	}
	pass(10 * time.Second)
	sent = append(sent, r.redriveAll(t))
	pass(time.Second)
	sent = append(sent, r.redriveAll(t))
	r.stop(t)
	var story []string
	for i, d := range r.log.delivered() {
		for len(sent) > 0 && sent[0].after <= i {
			story = append(story, sent[0].values...)
			sent = sent[1:]
		}
		if d.Topic != lettersTopic {
			story = append(story, string(d.Key)+"/"+string(d.Value))
		}
	}
	for _, rest := range sent {
		story = append(story, rest.values...)
	}
	at := map[string]map[int]int{}
	for i, s := range story {
		key, value, _ := strings.Cut(s, "/")
		n, err := strconv.Atoi(strings.TrimPrefix(value, "bad"))
		if err != nil {
			t.Fatal(err)
		}
		if at[key] == nil {
			at[key] = map[int]int{}
		}
		at[key][n] = i
	}
	for key, n := range last {
		before := -1
		for row := 1; row <= n; row++ {
			i, ok := at[key][row]
			if !ok || i < before {
				t.Errorf("seed %d: row %d of key %s (there: %t) is not last after row %d: %s", seed, row, key, ok, row-1, strings.Join(story, " "))
				return
			}
			before = i
		}
	}
}
