package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// ledger is what consumers of committed records see, and the position beside it. Both
// change together, and only by whoever opened last.
type ledger struct {
	sim *sim

	mu        sync.Mutex
	epoch     int
	committed []string // key/payload, in order
	places    []string // topic and payload, in order
	position  []byte
	parts     int // commits of a part of a source transaction

	refuses func(*record.Record) bool // nil: what has the key bad, but for letters
	letters *topicLog                 // what is committed to the dead-letter topic; nil: nobody reads it
}

// transactional is one process' hold on a ledger. It ends transactions when it likes, at marks
// that allow it, and fails in every way that brokers do.
type transactional struct {
	sink.Sink // what is not needed
	l         *ledger

	mu      sync.Mutex
	epoch   int
	dead    bool
	lost    func(error)
	sends   []simSend
	mark    *sink.Position
	pressed bool
	finish  func(error)
	ended   chan struct{}
	wake    chan struct{}
}

type simSend struct {
	records []record.Record
	done    func(error)
}

func (x *transactional) Ready(context.Context) error { return nil }
func (x *transactional) Reachable() error            { return nil }
func (x *transactional) Ping(context.Context)        {}
func (x *transactional) Resume(context.Context)      {}
func (x *transactional) Halt()                       {}
func (x *transactional) Overhead(n int) int          { return new(sinktest.Recorder).Overhead(n) }
func (x *transactional) TopicsRecreated() int64      { return 0 }
func (x *transactional) DataLoss() int64             { return 0 }
func (x *transactional) Overtaken() int64            { return 0 }

func (x *transactional) Open(_ context.Context, h sink.Holder) ([]byte, error) {
	x.stop(sink.ErrHalted)
	if x.l.sim.chance(8) {
		x.l.sim.count("not opened")
		return nil, &sink.Error{Class: sink.Retry, Reason: "not_leader", Err: errors.New("no coordinator")}
	}
	x.l.mu.Lock()
	defer x.l.mu.Unlock()
	x.l.epoch++
	x.mu.Lock()
	defer x.mu.Unlock()
	x.epoch, x.dead, x.lost = x.l.epoch, false, h.Lost
	x.sends, x.mark, x.pressed, x.finish = nil, nil, false, nil
	x.ended, x.wake = make(chan struct{}), make(chan struct{}, 1)
	go x.run(x.ended, x.wake)
	return slices.Clone(x.l.position), nil
}

// stop ends the tenure and fails what it has.
func (x *transactional) stop(cause error) {
	x.mu.Lock()
	ended := x.ended
	x.mu.Unlock()
	if ended == nil {
		return
	}
	x.abandon(cause, nil)
	<-ended
}

func (x *transactional) Close(context.Context) error {
	x.stop(sink.ErrClosed)
	return nil
}

func (x *transactional) put(change func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dead || x.ended == nil {
		return false
	}
	change()
	select {
	case x.wake <- struct{}{}:
	default:
	}
	return true
}

func (x *transactional) Send(_ context.Context, records []record.Record, done func(error)) {
	send := func() { x.sends, x.mark, x.pressed = append(x.sends, simSend{records, done}), nil, false }
	if !x.put(send) {
		done(failedAs(records, sink.Failure{Class: sink.Retry, Reason: "held_back", Err: sink.ErrHalted}))
	}
}

func (x *transactional) SetPosition(m sink.Position) { x.put(func() { x.mark = &m }) }
func (x *transactional) Seal()                       { x.put(func() { x.pressed = true }) }

func (x *transactional) Finish(done func(error)) {
	if !x.put(func() { x.finish = done }) {
		done(sink.ErrHalted)
	}
}

func failedAs(records []record.Record, f sink.Failure) error {
	all := &sink.FailedError{}
	for i := range records {
		f.Index = i
		all.Failures = append(all.Failures, f)
	}
	return all
}

// run ends transactions.
func (x *transactional) run(ended, wake chan struct{}) {
	defer close(ended)
	for {
		select {
		case <-wake:
		case <-time.After(time.Duration(1+x.l.sim.int(100)) * time.Millisecond):
		}
		x.mu.Lock()
		dead, mark, finish := x.dead, x.mark, x.finish
		due := mark != nil && (mark.Whole && (mark.Now || x.l.sim.int(3) == 0) || !mark.Whole && x.pressed && len(x.sends) > 0)
		pending := len(x.sends) > 0
		x.mu.Unlock()
		switch {
		case dead:
			return
		case finish != nil && (mark == nil && pending || mark != nil && !mark.Whole):
			x.abandon(errors.New("the stream ended inside a transaction"), nil)
			return
		case finish != nil && mark == nil:
			x.put(func() { x.finish = nil })
			finish(nil)
		case due, finish != nil:
			if !x.commit() {
				return
			}
		}
	}
}

// commit is one transaction's end. Answers take their time, and whoever opens
// meanwhile shuts this one out.
func (x *transactional) commit() bool {
	pass(time.Duration(x.l.sim.int(30)) * time.Millisecond)
	x.mu.Lock()
	if x.dead {
		x.mu.Unlock()
		return false
	}
	mark, sends, finish := x.mark, x.sends, x.finish
	if mark == nil || !mark.Whole && !x.pressed { // more was sent meanwhile
		x.mu.Unlock()
		return true
	}
	x.mark, x.sends, x.finish, x.pressed = nil, nil, nil, false
	x.mu.Unlock()

	var failure *sink.Failure
	counts := true
	s := x.l.sim
	switch {
	case s.chance(12):
		s.count("aborted")
		counts, failure = false, &sink.Failure{Class: []sink.Class{sink.Retry, sink.Blocked}[s.int(2)], Reason: "test", Err: errors.New("refused")}
	case s.chance(12):
		s.count("unknown and not committed")
		counts, failure = false, &sink.Failure{Class: sink.Retry, Reason: fault.ReasonCommitUnknown, Err: errors.New("connection lost")}
	case s.chance(12):
		s.count("unknown and committed")
		failure = &sink.Failure{Class: sink.Retry, Reason: fault.ReasonCommitUnknown, Err: errors.New("connection lost")}
	}
	for _, each := range sends {
		for i := range each.records {
			if string(each.records[i].Key) == "nowhere" {
				counts, failure = false, &sink.Failure{Class: sink.Blocked, Reason: "unknown_topic", Err: errors.New("no such topic")}
			}
			if x.l.refused(&each.records[i]) {
				counts, failure = false, &sink.Failure{Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")}
			}
		}
	}
	if !x.l.append(x.epoch, sends, mark, counts) {
		s.count("fenced")
		failure = &sink.Failure{Class: sink.Blocked, Reason: fault.ReasonFenced, Err: errors.New("fenced")}
	}
	if failure != nil {
		x.mu.Lock()
		x.sends, x.finish = append(sends, x.sends...), finish
		x.mu.Unlock()
		x.abandon(failure.Err, failure)
		return false
	}
	mark.Committed()
	for _, each := range sends {
		each.done(nil)
	}
	if finish != nil {
		finish(nil)
	}
	return true
}

// append commits, unless somebody else opened since.
func (l *ledger) append(epoch int, sends []simSend, mark *sink.Position, counts bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		return false
	}
	if !counts {
		return true
	}
	l.position = slices.Clone(mark.Value)
	if !mark.Whole {
		l.parts++
	}
	l.sim.mu.Lock()
	defer l.sim.mu.Unlock()
	for _, each := range sends {
		for i := range each.records {
			r := &each.records[i]
			value := string(r.Value)
			l.committed = append(l.committed, string(r.Key)+"/"+value)
			l.places = append(l.places, r.Topic+" "+value)
			if l.letters != nil && r.Topic == lettersTopic {
				l.letters.commit(r)
			}
			l.sim.durable[value] = true
		}
	}
	return true
}

// commit adds a record whose memory is used again.
func (l *topicLog) commit(r *record.Record) {
	m := topics.Message{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, record.Header{Key: strings.Clone(h.Key), Value: slices.Clone(h.Value)})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(m)
}

func (x *transactional) abandon(cause error, own *sink.Failure) {
	x.mu.Lock()
	if x.dead {
		x.mu.Unlock()
		return
	}
	x.dead = true
	sends, finish, lost := x.sends, x.finish, x.lost
	x.sends, x.finish = nil, nil
	select {
	case x.wake <- struct{}{}:
	default:
	}
	x.mu.Unlock()
	f := sink.Failure{Class: sink.Retry, Reason: "held_back", Err: sink.ErrHalted}
	if own != nil {
		f = *own
	}
	for _, each := range sends {
		each.done(failedAs(each.records, f))
	}
	if finish != nil {
		finish(cause)
	}
	if !errors.Is(cause, sink.ErrClosed) && !errors.Is(cause, sink.ErrHalted) {
		reason := "held_back"
		if own != nil {
			reason = own.Reason
		}
		lost(&sink.Error{Class: f.Class, Reason: reason, Err: cause})
	}
}

func (x *transactional) FindRejected(_ context.Context, _ string, records []record.Record) (map[int]sink.Failure, error) {
	x.stop(sink.ErrHalted)
	x.l.sim.count("searched")
	guilty := map[int]sink.Failure{}
	for i := range records {
		if x.l.refused(&records[i]) {
			guilty[i] = sink.Failure{Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")}
		}
	}
	return guilty, nil
}

// knowing is a sink that refuses by itself what the brokers of its ledger refuse.
type knowing struct{ *transactional }

func (k knowing) Refuses(r *record.Record) *sink.Failure {
	if !k.l.refused(r) {
		return nil
	}
	return &sink.Failure{Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")}
}

func (l *ledger) refused(r *record.Record) bool {
	if l.refuses != nil {
		return l.refuses(r)
	}
	return string(r.Key) == "bad" && r.Topic != lettersTopic
}

// unseen rows are those for which there is no record.
func unseen(ordinal uint64) bool { return ordinal%3 == 0 }

func TestSim_ExactlyOnceIsOnceWhateverHappens(t *testing.T) {
	first, n := simSeeds(t, 300)
	trouble := map[string]int{}
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { simulateOnce(t, seed, false, trouble) })
	}
	t.Logf("bar: exactly-once simulation: %d seeds; trouble: %v", n, trouble)
	for _, what := range []string{"crash", "cut", "refused", "stop", "kill", "zombie", "fenced", "aborted", "not opened", "unknown and committed", "unknown and not committed", "divided", "set aside", "parked"} {
		if trouble[what] == 0 && n >= 100 {
			t.Errorf("no seed had any %q", what)
		}
	}
}

// What the sink refuses by itself is set aside before it is sent, and nothing else changes.
func TestSim_ExactlyOnceWithASinkThatKnowsWhatItRefuses(t *testing.T) {
	first, n := simSeeds(t, 200)
	trouble := map[string]int{}
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { simulateOnce(t, seed, true, trouble) })
	}
	t.Logf("bar: exactly-once simulation of a sink that knows what it refuses: %d seeds; trouble: %v", n, trouble)
	for _, what := range []string{"crash", "cut", "kill", "zombie", "fenced", "aborted", "unknown and committed", "divided", "set aside", "parked"} {
		if trouble[what] == 0 && n >= 100 {
			t.Errorf("no seed had any %q", what)
		}
	}
	if trouble["searched"] > 0 {
		t.Errorf("%d searches for rejected records", trouble["searched"])
	}
}

// onceWorld is one seed's relays, one after another, and for a while two.
type onceWorld struct {
	t      *testing.T
	seed   uint64
	s      *sim
	l      *ledger
	cfg    Config
	bad    map[string]bool // values that the brokers refuse, of keys that are parked then
	cancel context.CancelFunc
	relay  *Relay
	sink   *transactional
	knows  bool // the sink refuses by itself what the brokers would refuse
	result chan error
}

func (w *onceWorld) start() {
	routes := outboxRoutes(w.t, w.cfg.Router)
	x := &transactional{l: w.l}
	w.sink = x
	var to sink.Sink = x
	if w.knows {
		to = knowing{x}
	}
	parts := Parts{Source: w.s.open, Router: routes, Sink: func() (sink.Sink, error) { return to, nil }}
	if w.cfg.ParkKey {
		parts.Journal = w.l.letters.reader()
	}
	w.relay = New(w.cfg, parts, Events{}, zerolog.Nop())
	ctx, cancel := context.WithCancel(w.t.Context())
	w.cancel, w.result = cancel, make(chan error, 1)
	go func(r *Relay, result chan error) { result <- r.Run(ctx) }(w.relay, w.result)
}

// stop ends the relay; one that was shut out may have ended by itself.
func (w *onceWorld) stop() {
	w.cancel()
	if err := <-w.result; err != nil && !errors.Is(err, ErrDrainCut) && !strings.Contains(err.Error(), "fenced") {
		w.t.Errorf("seed %d: stop: %v", w.seed, err)
	}
}

// kill ends the relay without anything reaching brokers or server any more.
func (w *onceWorld) kill() {
	w.l.mu.Lock()
	w.l.epoch++
	w.l.mu.Unlock()
	w.s.mu.Lock()
	if w.s.current != nil {
		w.s.current.gone.Store(true)
	}
	w.s.mu.Unlock()
	w.relay.Abort()
	w.cancel()
	<-w.result
}

// park has the brokers refuse up to three rows, and the relay set aside all that follow
// one of its key.
func (w *onceWorld) park() {
	w.cfg.ParkKey, w.l.letters, w.bad = true, new(topicLog), map[string]bool{}
	for range 1 + w.s.int(3) {
		rows := w.s.txns[w.s.int(len(w.s.txns))].rows
		i := w.s.int(len(rows))
		if value := rows[i][strings.LastIndexByte(rows[i], '/')+1:]; w.cfg.AlreadySent == nil || !unseen(uint64(i+1)) {
			w.bad[value] = true
		}
	}
	w.l.refuses = func(r *record.Record) bool {
		return r.Topic != lettersTopic && (w.bad[string(r.Value)] || string(r.Key) == "bad")
	}
}

// checkParked requires the first refused row of a key and all after it among the letters, and
// no other.
func (w *onceWorld) checkParked(want map[string][]string, trouble map[string]int) {
	w.t.Helper()
	topics := map[string]string{}
	for _, place := range w.l.places {
		topic, value, _ := strings.Cut(place, " ")
		topics[value] = topic
	}
	for key, values := range want {
		topic := "order-events"
		for _, value := range values {
			if w.bad[value] || key == "bad" {
				topic = lettersTopic
			}
			if topics[value] != topic {
				w.t.Errorf("seed %d: key %s: row %s is in topic %q, want %s", w.seed, key, value, topics[value], topic)
			}
			if topic == lettersTopic && !w.bad[value] {
				trouble["parked"]++
			}
		}
	}
}

// zombie leaves the relay at work while the server has given its slot away, and lets
// another one take over.
func (w *onceWorld) zombie() {
	w.s.mu.Lock()
	source := w.s.current
	w.s.mu.Unlock()
	if source == nil {
		return
	}
	source.gone.Store(true)
	old, cancel := w.result, w.cancel
	w.start()
	pass(time.Duration(w.s.int(1000)) * time.Millisecond)
	cancel()
	select {
	case source.fail <- &fault.Error{Kind: fault.KindRetry, Op: "read stream", Err: errors.New("connection reset")}:
	default:
	}
	<-old
}

func simulateOnce(t *testing.T, seed uint64, knows bool, trouble map[string]int) {
	t.Helper()
	s := newSim(seed)
	s.origin = wal.Origin{SystemID: "7", Timeline: 1}
	l := &ledger{sim: s}
	// A row that the brokers refuse, in every third world.
	letters := s.int(3) == 0
	if letters {
		txn := &s.txns[s.int(len(s.txns))]
		txn.rows[s.int(len(txn.rows))] = fmt.Sprintf("order/bad/%d.bad", txn.commit)
	}
	done := make(chan struct{})
	defer close(done)
	go s.happen(done)
	go s.disturb(done)
	w := &onceWorld{t: t, seed: seed, s: s, l: l, knows: knows, cfg: Config{
		Guarantee: ExactlyOnce, Router: router.Config{PositionHeaders: s.int(2) == 0}, OnReject: DeadLetterOnReject, DeadLetterTopic: lettersTopic,
		MaxInFlightBytes: []int{170, 1000, 3300, 340 << 10}[s.int(4)], RetryMin: 10 * time.Millisecond, RetryMax: 200 * time.Millisecond, DrainTimeout: time.Minute,
		Replication: postgres.Config{Slot: "slot", Publication: "slot"},
	}}
	if s.int(2) == 0 {
		w.cfg.AlreadySentIn = s.origin
		w.cfg.AlreadySent = func(row *wal.Row) bool { return unseen(row.Ordinal) }
		for _, txn := range s.txns {
			for i, row := range txn.rows {
				if unseen(uint64(i + 1)) {
					s.durable[row[strings.LastIndexByte(row, '/')+1:]] = true
				}
			}
		}
	}
	if s.int(3) == 0 {
		w.park()
	}
	w.start()
	for range s.int(6) {
		pass(time.Duration(100+s.int(2000)) * time.Millisecond)
		switch s.int(3) {
		case 0:
			s.count("stop")
			w.stop()
			w.start()
		case 1:
			s.count("kill")
			w.kill()
			w.start()
		case 2:
			s.count("zombie")
			w.zombie()
		}
	}
	pass(time.Duration(s.int(6000)) * time.Millisecond)
	s.mu.Lock()
	s.calm, s.written = true, len(s.txns)
	s.mu.Unlock()
	for began := time.Now(); time.Since(began) < 2*time.Minute && !s.done(); {
		pass(100 * time.Millisecond)
		select {
		case err := <-w.result: // shut out by one that is gone by now
			if err == nil || !strings.Contains(err.Error(), "fenced") {
				t.Errorf("seed %d: ended with %v", seed, err)
			}
			w.start()
		default:
		}
	}
	w.stop()
	w.check(trouble)
}

// check requires every row once, in the order of its key.
func (w *onceWorld) check(trouble map[string]int) {
	w.t.Helper()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	want, got := map[string][]string{}, map[string][]string{}
	for _, txn := range w.s.txns {
		for i, row := range txn.rows {
			if w.cfg.AlreadySent == nil || !unseen(uint64(i+1)) {
				parts := strings.Split(row, "/")
				want[parts[1]] = append(want[parts[1]], parts[2])
			}
		}
	}
	for _, row := range w.l.committed {
		key, value, _ := strings.Cut(row, "/")
		got[key] = append(got[key], value)
		if key == "bad" {
			trouble["set aside"]++
		}
	}
	for key, values := range want {
		if !slices.Equal(values, got[key]) {
			w.t.Errorf("seed %d: key %s: committed\n%q\nwant\n%q", w.seed, key, got[key], values)
		}
	}
	if w.cfg.ParkKey {
		w.checkParked(want, trouble)
	}
	if w.s.early != "" {
		w.t.Errorf("seed %d: %s", w.seed, w.s.early)
	}
	if w.s.confirmed != w.s.wal() {
		w.t.Errorf("seed %d: confirmed %s of %s two minutes after the last fault", w.seed, w.s.confirmed, w.s.wal())
	}
	rec, err := stored.ParsePosition(w.l.position)
	if err != nil || rec.End < w.s.confirmed {
		w.t.Errorf("seed %d: the slot is at %s, the checkpoint at %s, %v", w.seed, w.s.confirmed, rec.End, err)
	}
	for what, n := range w.s.trouble {
		trouble[what] += n
	}
	trouble["divided"] += w.l.parts
}
