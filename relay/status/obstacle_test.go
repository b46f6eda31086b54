package status

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/rs/zerolog"
)

func TestObstacle_NamesTheRowAndNothingOfItsContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.Nop(), nil)
		b.SetState(Streaming, "", "")
		if o := b.Status().Obstacle; o != nil {
			t.Fatalf("there is %+v while all is well", o)
		}
		row := &wal.Row{Txn: &wal.Txn{Commit: 0x100, End: 0x120, Time: time.Now()}, Ordinal: 3, Relation: &wal.Relation{Namespace: "public", Name: "outbox"}}
		rec := &record.Record{Topic: "orders", Key: []byte("secret"), Value: []byte("secret"), Headers: []record.Header{{Key: "id", Value: []byte(strings.Repeat("7", 300))}}}
		cause := errors.New("too large")
		began := time.Now()
		for try := range 3 {
			b.BlockedAt(row, rec, wal.Lineage{}, "record_too_large", cause)
			b.SetBlocked("record_too_large", cause)
			b.Waits(time.Now().Add(time.Second))
			o := b.Status().Obstacle
			if o == nil || o.Row == nil {
				t.Fatalf("try %d: %+v", try, o)
			}
			if o.Attempts != try+1 || !o.NextTry.Equal(time.Now().Add(time.Second)) || !o.Since.Equal(began) || o.Slot != "cdc_relay" || o.Reason != "record_too_large" {
				t.Errorf("try %d: %+v", try, o)
			}
			if *o.Row != (BlockedRow{Table: "public.outbox", Commit: 0x100, Number: 3, Topic: "orders", EventID: strings.Repeat("7", maxEventID), Bytes: 6 + 6 + 2 + 300}) {
				t.Errorf("try %d: %+v", try, o.Row)
			}
			<-time.After(time.Second)
		}
		b.Delivered([]wal.Row{*row})
		b.ClearBlocked()
		if o := b.Status().Obstacle; o != nil {
			t.Errorf("%+v is left", o)
		}
		b.SetState(Reconnecting, "network", "connection refused")
		b.Waits(time.Now())
		if o := b.Status().Obstacle; o == nil || o.Reason != "network" || o.Row != nil || o.Attempts != 1 {
			t.Errorf("while it reconnects: %+v", o)
		}
		b.SetState(Standby, "slot_in_use", "another relay")
		if o := b.Status().Obstacle; o != nil {
			t.Errorf("who stands by has no obstacle: %+v", o)
		}
	})
}

// tooLarge is over a limit of the configuration.
type tooLarge struct{}

func (tooLarge) Error() string        { return "too large" }
func (tooLarge) Limit() (int, string) { return 100, "kafka.max_message_bytes" }

// Whoever sees the size of a record sees what it is held against.
func TestObstacle_NamesTheLimit(t *testing.T) {
	b := NewMonitor(Pipeline{}, zerolog.Nop(), nil)
	cause := fmt.Errorf("deliver row: %w", tooLarge{})
	b.BlockedAt(&wal.Row{Txn: &wal.Txn{Commit: 0x100}}, &record.Record{Value: make([]byte, 200)}, wal.Lineage{}, "record_too_large", cause)
	b.SetBlocked("record_too_large", cause)
	if o := b.Status().Obstacle; o == nil || o.Row == nil || o.Row.Bytes != 200 || o.Row.Limit != 100 || o.Row.LimitOf != "kafka.max_message_bytes" {
		t.Errorf("got %+v", o)
	}
}

func TestMonitor_LogsHowFarTheSlotIsBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		server, start wal.LSN
		want          string
	}{
		"a backlog":    {0x8000000, 0xA00000, `"lag_bytes":123731968,"message":"slot is 118.0 MiB behind the end of the WAL; reading on from its position"`},
		"next to none": {0x8000000, 0x7FFFF00, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.New(&out), nil)
			b.SetSession(&fixedSession{server: tt.server, start: tt.start})
			if got := out.String(); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("logged %s, want %s", got, tt.want)
			}
		})
	}
}

// fixedSession is one that has just begun.
type fixedSession struct {
	server, start wal.LSN
	silent        time.Duration
}

func (s *fixedSession) Lineage() wal.Lineage { return wal.Lineage{} }
func (s *fixedSession) StartLSN() wal.LSN    { return s.start }
func (s *fixedSession) Positions() LSNs {
	return LSNs{Server: Position(s.server), Received: Position(s.start), Confirmed: Position(s.start)}
}
func (s *fixedSession) Stats() checkpoint.Stats                               { return checkpoint.Stats{} }
func (s *fixedSession) ToRepeat(checkpoint.Stats) int                         { return 0 }
func (s *fixedSession) Acked() int                                            { return 0 }
func (s *fixedSession) NewestCommit(time.Time) (t time.Time, _ time.Duration) { return t, 0 }
func (s *fixedSession) Silent() time.Duration                                 { return s.silent }
func (s *fixedSession) LastConfirm() time.Time                                { return time.Time{} }
func (s *fixedSession) BlockedFor(time.Time) (time.Duration, bool)            { return 0, false }
