package delivery

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

func TestFragment_IsOfOneHistory(t *testing.T) {
	at := deadletter.Row{Commit: 130, Seq: 3}
	m := &Memory{of: wal.Lineage{SystemID: "1", Timeline: 1}, part: fragment{last: at}, apart: 130}
	m.seen.first(at)
	txn := &wal.Txn{Commit: 130, Time: time.Unix(1000, 0)}
	rows := []wal.Row{{Txn: txn, Ordinal: 3}, {Txn: txn, Ordinal: 4}}
	m.belong(wal.Lineage{SystemID: "1", Timeline: 1})
	if !m.part.covers(&rows[0]) || m.part.covers(&rows[1]) {
		t.Error("it covers what it should not")
	}
	if m.seen.first(at) || m.apart != 130 {
		t.Error("a row that was counted, or a transaction that was taken apart, is forgotten")
	}
	m.belong(wal.Lineage{SystemID: "1", Timeline: 2})
	if m.part.covers(&rows[0]) {
		t.Error("it covers a row of another history")
	}
	if !m.seen.first(at) || m.apart != 0 {
		t.Error("a row that was counted, or a transaction that was taken apart, is one of another history")
	}
}

// unreadable letters have a topic that cannot be read.
type unreadableLetters struct{ err error }

func (u unreadableLetters) Run(context.Context, func(*topics.Message)) {}
func (u unreadableLetters) CatchUp(context.Context, bool) error        { return u.err }
func (u unreadableLetters) Close()                                     {}

// A dead-letter topic that is not there yet has no letters, where the relay makes it.
func TestDeadLetters_ATopicThatIsNotThereYetIsEmpty(t *testing.T) {
	for _, c := range []struct {
		reason string
		makes  bool
		fails  bool
	}{{"unknown_topic", true, false}, {"unknown_topic", false, true}, {"network", true, true}} {
		m := memory(Config{OnReject: DeadLetterOnReject, ParkKey: true, CreateTopics: c.makes})
		m.journal = unreadableLetters{&sink.Error{Reason: c.reason, Err: errors.New("no")}}
		if err := m.AwaitDeadLetters(t.Context(), time.Second, true); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Rejects are remembered up to a number of them, the last ones.
func TestRejects_ForgetsTheOldest(t *testing.T) {
	var r rejects
	row := func(n int) deadletter.Row { return deadletter.Row{Commit: wal.LSN(n)} }
	for n := range maxRejects {
		if !r.first(row(n)) {
			t.Fatalf("row %d is known", n)
		}
	}
	if r.first(row(0)) || !r.first(row(maxRejects)) || r.first(row(1)) || !r.first(row(0)) || r.first(row(2)) {
		t.Error("not the last ones are known")
	}
}
