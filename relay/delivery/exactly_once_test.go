package delivery

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
)

// After a fork other rows have the positions of those that were rejected.
func TestExactly_RefusalsAreOfOneHistory(t *testing.T) {
	shared := new(Shared)
	shared.forget(wal.Lineage{SystemID: "7", Timeline: 1}, 0)
	shared.rejections.records = map[recordID]rejectedRecord{{row: wal.Place{Commit: 320, Ordinal: 1}}: {reason: "record_too_large"}}
	if shared.forget(wal.Lineage{SystemID: "7", Timeline: 1}, 0); len(shared.rejections.records) != 1 {
		t.Fatalf("forgot %v", shared.rejections.records)
	}
	if shared.forget(wal.Lineage{SystemID: "7", Timeline: 2}, 0); len(shared.rejections.records) != 0 {
		t.Errorf("kept %v", shared.rejections.records)
	}
}

// recordsOf is an in-flight batch with the records that the router makes of one row, by value.
func recordsOf(d *Delivery, row *wal.Row, values ...string) *InFlight {
	f := &InFlight{delivery: d, buf: new(record.Buffer)}
	for _, v := range values {
		f.buf.Records = append(f.buf.Records, record.Record{Nth: uint8(len(f.buf.Records)), Topic: "orders", Key: []byte("k"), Value: []byte(v), Row: row})
	}
	return f
}

// valuesOf are those of the records, letters in brackets.
func valuesOf(f *InFlight) (all []string) {
	for _, r := range f.buf.Records {
		if r.Topic == lettersTopic {
			all = append(all, "["+string(r.Value)+"]")
		} else {
			all = append(all, string(r.Value))
		}
	}
	return all
}

// A row may become several records, of which the brokers refuse one and then another.
func TestExactly_CondemnsTheRecordThatIsRefused(t *testing.T) {
	for policy, want := range map[OnReject][][]string{
		DeadLetterOnReject: {{"a", "[b]", "c"}, {"a", "[b]", "[c]"}, {"[a]", "[b]", "[c]"}},
		SkipOnReject:       {{"a", "c"}, {"a"}, nil},
	} {
		t.Run(string(policy), func(t *testing.T) {
			d := opened(Config{Guarantee: ExactlyOnce, OnReject: policy, DeadLetterTopic: lettersTopic})
			x := &exactlyOnce{delivery: d}
			d.guarantee = x
			row := wal.Row{Relation: outbox, Ordinal: 1, LSN: 109, Txn: &wal.Txn{Commit: 110, End: 120, Time: time.Unix(1000, 0)}}
			f := recordsOf(d, &row, "a", "b", "c")
			for i, refused := range []string{"b", "c", "a"} {
				at := slices.IndexFunc(f.buf.Records, func(r record.Record) bool { return string(r.Value) == refused })
				err := x.decide(f.buf.Records[at:at+1], map[int]sink.Failure{0: {Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")}})
				if !errors.Is(err, errResendChanged) {
					t.Fatal(err)
				}
				f = recordsOf(d, &row, "a", "b", "c")
				if err := x.replace(f, 0, &row); err != nil {
					t.Fatal(err)
				}
				if got := valuesOf(f); !slices.Equal(got, want[i]) {
					t.Errorf("%s is refused: %q, want %q", refused, got, want[i])
				}
			}
		})
	}
}

// sized refuses what takes more bytes than it, as a sink with a limit.
type sized int

func (limit sized) Refuses(r *record.Record) *sink.Failure {
	if broker.BatchSize(r) <= int(limit) {
		return nil
	}
	return &sink.Failure{Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")}
}

// A record that the sink refuses becomes its dead letter when it is routed, one after the other;
// with relay.on_reject: stop it is left to the sink, which ends the session before its transaction.
func TestExactly_CondemnsBeforehandWhatTheSinkRefuses(t *testing.T) {
	large := strings.Repeat("x", 200)
	for policy, want := range map[OnReject][]string{
		DeadLetterOnReject: {"a", "[" + large + "]", "c", "[" + large + "]"},
		SkipOnReject:       {"a", "c"},
		StopOnReject:       {"a", large, "c", large},
	} {
		d := opened(Config{Guarantee: ExactlyOnce, OnReject: policy, DeadLetterTopic: lettersTopic})
		x := &exactlyOnce{delivery: d, refuser: sized(200)}
		row := wal.Row{Relation: outbox, Ordinal: 1, LSN: 109, Txn: &wal.Txn{Commit: 110, End: 120}}
		f := recordsOf(d, &row, "a", large, "c", large)
		if err := x.replace(f, 0, &row); err != nil {
			t.Fatal(err)
		}
		if got := valuesOf(f); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", policy, got, want)
		}
		if len(d.shared.rejections.records) > 0 {
			t.Errorf("%s: remembers %v", policy, d.shared.rejections.records)
		}
	}
}

// While the end of a transaction is not known, the position header's room is not its size: a
// record that fits with its position is never set aside.
func TestExactly_JudgesARecordByItsSizeWithThePosition(t *testing.T) {
	for _, end := range []wal.LSN{0, 0x120, 1<<63 + 5} {
		d := opened(Config{Guarantee: ExactlyOnce, OnReject: SkipOnReject})
		d.shared.router = positioned
		row := wal.Row{Relation: outbox, Ordinal: 1, LSN: 109, Txn: &wal.Txn{Commit: 110, End: end, Time: time.Unix(1000, 0)}}
		left := func(limit int) int {
			f := recordsOf(d, &row, "a")
			record.AddPositions(f.buf, f.buf.Records, &row)
			x := &exactlyOnce{delivery: d, refuser: sized(limit)}
			if err := x.replace(f, 0, &row); err != nil {
				t.Fatal(err)
			}
			return len(f.buf.Records)
		}
		f := recordsOf(d, &row, "a")
		record.AddPositions(f.buf, f.buf.Records, &row)
		record.PlaceAt(&f.buf.Records[0], max(end, 1))
		size := broker.BatchSize(&f.buf.Records[0])
		if left(size) != 1 || left(size-1) != 0 {
			t.Errorf("end %s: %d records with a limit of their size, and %d with one byte less", end, left(size), left(size-1))
		}
	}
}

// A letter loses what it has to until the sink takes it, and no more.
func TestExactly_ShortensLettersUntilTheSinkTakesThem(t *testing.T) {
	for limit, want := range map[int]string{10_000: "both", 2_000: "headers", 1_000: "neither", 100: "neither"} {
		d := opened(Config{Guarantee: ExactlyOnce, OnReject: DeadLetterOnReject, DeadLetterTopic: lettersTopic})
		x := &exactlyOnce{delivery: d, refuser: sized(limit)}
		row := wal.Row{Relation: outbox, Ordinal: 1, LSN: 109, Txn: &wal.Txn{Commit: 110, End: 120}}
		rec := record.Record{
			Topic: "orders", Key: []byte("k"), Value: make([]byte, 5_000), Row: &row,
			Headers: []record.Header{{Key: "id", Value: []byte("7")}, {Key: "note", Value: make([]byte, 1_000)}},
		}
		letters := []record.Record{d.letter(&rec, "record_too_large", errors.New("too large"))}
		x.shorten(letters)
		has := "neither"
		switch note := slices.ContainsFunc(letters[0].Headers, func(h record.Header) bool { return h.Key == "note" }); {
		case note && letters[0].Value != nil:
			has = "both"
		case note:
			has = "headers"
		}
		if has != want {
			t.Errorf("limit %d: the letter has %s, want %s", limit, has, want)
		}
	}
}

// What lies after the checkpoint is not judged any more.
func TestExactly_ForgetsVerdictsOfWhatIsCommitted(t *testing.T) {
	v := newRejections()
	early, late := recordID{row: wal.Place{Commit: 120, Ordinal: 1}}, recordID{wal.Place{Commit: 320, Ordinal: 1}, 1}
	for _, id := range []recordID{early, late} {
		v.records[id], v.strips[id] = rejectedRecord{reason: "record_too_large"}, 1
	}
	v.forget(&stored.Position{End: 300})
	if len(v.records) != 1 || len(v.strips) != 1 || v.strips[late] != 1 {
		t.Errorf("kept %v and %v", v.records, v.strips)
	}
}
