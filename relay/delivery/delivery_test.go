package delivery

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

const lettersTopic = "cdc-relay.dead-letters"

var outbox = &wal.Relation{Namespace: "public", Name: "outbox"}

// noRoutes knows no table.
var noRoutes, _ = router.New(router.Config{})

// positioned knows no table, and has position headers.
var positioned, _ = router.New(router.Config{PositionHeaders: true})

// shared is that of a relay without servers.
func shared(cfg Config) *Shared {
	if cfg.Resume == nil {
		cfg.Resume = new(resume.Config)
	}
	return New(cfg, noRoutes, nil, nil, status.NewMonitor(status.Pipeline{}, zerolog.Nop(), nil), Events{}, zerolog.Nop())
}

// opened is a delivery of its first session.
func opened(cfg Config) *Delivery { return &Delivery{shared: shared(cfg)} }

func TestOpenRows_AreThoseOfTheLastTransaction(t *testing.T) {
	rows := func(open bool, txns ...int) *wal.Batch {
		b, all := &wal.Batch{Open: open}, map[int]*wal.Txn{}
		for _, n := range txns {
			if all[n] == nil {
				all[n] = new(wal.Txn)
			}
			b.Rows = append(b.Rows, wal.Row{Txn: all[n]})
		}
		return b
	}
	for _, c := range []struct {
		batch *wal.Batch
		want  int
	}{
		{rows(false, 1, 1), 0}, {rows(true), 0}, {rows(true, 1, 1), 2}, {rows(true, 1, 2), 1}, {rows(true, 1, 1, 2, 2, 2), 3},
	} {
		if got := c.batch.OpenRows(); got != c.want {
			t.Errorf("%d of %d rows, want %d", got, len(c.batch.Rows), c.want)
		}
	}
}

// What loses nothing is said first, and of moving the slot all that it takes.
func TestBlocked_SaysHowToGoOnWithoutTheRow(t *testing.T) {
	const (
		letter = "; to have it kept as a dead letter, set relay.on_reject: dead_letter, run `cdc-relay setup` and restart"
		move   = "; to give up its whole transaction, stop the relay and run: SELECT pg_replication_slot_advance('orders', '0/65')"
		shape  = "; the row has the columns that its table had when it was written: correct outbox in the configuration so that it needs no other column, and restart"
		gap    = ", then `cdc-relay setup --accept-gap`"
	)
	for _, tt := range []struct {
		cfg    Config
		reason string
		want   string
	}{
		{Config{OnReject: StopOnReject}, "record_too_large", letter + move},
		{Config{OnReject: StopOnReject, KeepsPositions: true}, "record_too_large", letter + move + gap},
		{Config{Guarantee: ExactlyOnce, OnReject: StopOnReject, KeepsPositions: true}, "record_too_large", letter + move + gap},
		{Config{Guarantee: ExactlyOnce, OnReject: StopOnReject, KeepsPositions: true}, fault.ReasonSchema, shape + move + gap},
		{Config{OnReject: DeadLetterOnReject}, fault.ReasonParkedKeysFull, move},
	} {
		hints := rejected.Hints{Stops: tt.cfg.OnReject == StopOnReject, KeepsPositions: tt.cfg.KeepsPositions, Slot: "orders"}
		if got := hints.Past(100, tt.reason, errors.New("too large")).Error(); got != "too large"+tt.want {
			t.Errorf("%+v, %s:\n%s\nwant\n%s", tt.cfg, tt.reason, got, tt.want)
		}
	}
}

// The end of a transaction that was read through is not that of the message before it: a
// refused row would have confirmed its own transaction as one that lies before.
func TestMessage_HasNotTheEndOfTheTransactionBehindIt(t *testing.T) {
	origin := wal.Origin{SystemID: "7", Timeline: 1}
	d := opened(Config{})
	d.start.Origin, d.shared.ends = origin, map[wal.LSN]wal.LSN{130: 140}
	rows := []wal.Row{
		{Relation: outbox, Ordinal: 1, Txn: &wal.Txn{Commit: 130}}, // a message outside any transaction
		{Relation: outbox, Ordinal: 1, Txn: &wal.Txn{Commit: 130, Time: time.Unix(1000, 0)}},
	}
	for i, want := range []wal.LSN{0, 140} {
		if d.fillPosition(&record.Record{Row: &rows[i]}); rows[i].Txn.End != want {
			t.Errorf("row %d ends at %s, want %s", i, rows[i].Txn.End, want)
		}
	}
}

// idle is a journal of a dead-letter topic that is empty.
type idle struct{}

func (idle) Run(context.Context, func(*topics.Message)) {}
func (idle) CatchUp(context.Context, bool) error        { return nil }
func (idle) Close()                                     {}

// The letter of a parked key waits for earlier records of its key, and for those that are not
// acknowledged, which may be of the key. With nothing ahead it goes with its batch.
func TestOvertakes_IsWhatMayBeAheadOfTheLetter(t *testing.T) {
	letter := record.Record{Topic: "orders", Key: []byte("k")}
	other := record.Record{Topic: "orders", Key: []byte("l")}
	for _, c := range []struct {
		name  string
		until func(d *Delivery, f *InFlight, letter *record.Record)
		want  bool
	}{
		{"nothing is ahead", func(*Delivery, *InFlight, *record.Record) {}, false},
		{"a Send is not answered", func(d *Delivery, _ *InFlight, _ *record.Record) { d.sends.outstanding.Store(1) }, true},
		{"a record failed", func(d *Delivery, _ *InFlight, _ *record.Record) { d.sends.failed = []failedSend{{}} }, true},
		{"one of its key is in the batch", func(_ *Delivery, f *InFlight, _ *record.Record) { f.buf.Records = append(f.buf.Records, other, letter) }, true},
		{"one of another key is", func(_ *Delivery, f *InFlight, _ *record.Record) { f.buf.Records = append(f.buf.Records, other) }, false},
		{"one of another topic is", func(_ *Delivery, f *InFlight, _ *record.Record) {
			f.buf.Records = append(f.buf.Records, record.Record{Topic: "bills", Key: []byte("k")})
		}, false},
		{"that of its key is acknowledged", func(_ *Delivery, f *InFlight, _ *record.Record) {
			f.buf.Records, f.ackedUpTo, f.waitedFor = append(f.buf.Records, letter), 1, 0
		}, false},
		{"the row has waited", func(d *Delivery, f *InFlight, _ *record.Record) {
			d.sends.outstanding.Store(1)
			f.routed, f.waitedFor = 4, 4
		}, false},
		{"the row before has waited", func(d *Delivery, f *InFlight, _ *record.Record) {
			d.sends.outstanding.Store(1)
			f.routed, f.waitedFor = 1, 0
		}, false},
		{"it has no key", func(d *Delivery, _ *InFlight, letter *record.Record) {
			d.sends.outstanding.Store(1)
			letter.Key = nil
		}, false},
		{"its topic is not known", func(d *Delivery, _ *InFlight, letter *record.Record) {
			d.sends.outstanding.Store(1)
			letter.Topic = ""
		}, false},
	} {
		cfg := Config{OnReject: DeadLetterOnReject, DeadLetterTopic: lettersTopic, Resume: new(resume.Config)}
		d := &Delivery{shared: New(cfg, noRoutes, nil, idle{}, status.NewMonitor(status.Pipeline{}, zerolog.Nop(), nil), Events{}, zerolog.Nop())}
		d.guarantee = &atLeastOnce{d}
		f, own := &InFlight{delivery: d, buf: new(record.Buffer), waitedFor: -1}, letter
		c.until(d, f, &own)
		if got := d.overtakes(f, &own); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
