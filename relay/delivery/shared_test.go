package delivery

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestPartialTransaction_IsOfOneHistory(t *testing.T) {
	at := wal.Place{Commit: 130, Ordinal: 3}
	counted := 0
	s := &Shared{history: wal.Lineage{SystemID: "1", Timeline: 1}, partial: resume.Partial{Last: at, After: 120}, isolated: 130}
	s.Rejected.Count = func(string, string, wal.Place, error) { counted++ }
	again := func() int { s.Rejected.Reject("route", "public.outbox", at, nil); return counted }
	again()
	txn := &wal.Txn{Commit: 130, Time: time.Unix(1000, 0)}
	rows := []wal.Row{{Txn: txn, Ordinal: 3}, {Txn: txn, Ordinal: 4}}
	s.forget(wal.Lineage{SystemID: "1", Timeline: 1}, 120)
	if !s.partial.Covers(&rows[0]) || s.partial.Covers(&rows[1]) {
		t.Error("it covers what it should not")
	}
	if again() != 1 || s.isolated != 130 {
		t.Error("a row that was counted, or a transaction that was taken apart, is forgotten")
	}
	s.forget(wal.Lineage{SystemID: "1", Timeline: 2}, 120)
	if s.partial.Covers(&rows[0]) {
		t.Error("it covers a row of another history")
	}
	if again() != 2 || s.isolated != 0 {
		t.Error("a row that was counted, or a transaction that was taken apart, is one of another history")
	}
}

// A failover that ends exactly where the server was told lost nothing that was delivered.
func TestForked_TellsWhetherDeliveredRowsAreLost(t *testing.T) {
	for _, c := range []struct {
		told, fork wal.LSN
		lost       int64
	}{{told: 119, fork: 120}, {told: 120, fork: 120}, {told: 121, fork: 120, lost: 1}} {
		s := shared(Config{})
		s.logForked(resume.Known{Origin: wal.Origin{SystemID: "7", Timeline: 1}, Reported: c.told}, wal.Origin{SystemID: "7", Timeline: 2}, wal.Fork{Timeline: 1, At: c.fork})
		if got := s.monitor.LostForks.Load(); got != c.lost {
			t.Errorf("told %s, fork at %s: %d failovers that lost rows, want %d", c.told, c.fork, got, c.lost)
		}
	}
}

// A row that is skipped is in no topic, also where one for dead letters is configured.
func TestAside_NamesTheTopicOfDeadLettersAlone(t *testing.T) {
	for policy, topic := range map[OnReject]string{StopOnReject: lettersTopic, DeadLetterOnReject: lettersTopic, SkipOnReject: ""} {
		if got := shared(Config{OnReject: policy, DeadLetterTopic: lettersTopic}).Rejected.Topic; got != topic {
			t.Errorf("%s: topic %q, want %q", policy, got, topic)
		}
	}
}
