package ends

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// aged sends events whose timestamps are old.
func (s *shop) aged(t *testing.T, age time.Duration, ids ...string) {
	t.Helper()
	for _, id := range ids {
		s.send(t, []*kgo.Record{{Key: []byte("k"), Value: []byte("1"), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}, Timestamp: time.Now().Add(-age)}})
	}
}

func (s *shop) rewind(t *testing.T) {
	t.Helper()
	admin := s.brokers.Admin(t)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: s.topic, Partition: 0, At: 0, LeaderEpoch: -1})
	relaytest.Eventually(t, "the group's offsets are set", func() (bool, string) {
		got, err := admin.CommitOffsets(t.Context(), s.group, offsets)
		if err == nil {
			err = got.Error()
		}
		return err == nil, "it is busy"
	})
}

func TestRewind_BeyondTheKeysIsRefusedAndOthersAreDropped(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	cfg := s.config()
	cfg.Keep = time.Hour
	blocked := make(chan *kafkainbox.RecordError, 10)
	cfg.Events.Blocked = func(e *kafkainbox.RecordError) { blocked <- e }
	s.aged(t, 3*time.Hour, "old")
	s.aged(t, time.Minute, "new", "newer")
	m := s.start(t, cfg)
	s.awaitEffects(t, 3)
	s.awaitCommitted(t)
	m.stop(t)

	s.rewind(t)
	m = s.start(t, cfg)
	select {
	case e := <-blocked:
		var rewind *kafkainbox.RewindError
		if e.Offset != 0 || !errors.As(e, &rewind) || rewind.Next != 3 {
			t.Errorf("%v", e)
		}
	case <-time.After(relaytest.Patience):
		t.Fatal("it is not refused")
	}
	m.stop(t)
	if n := s.effects(t); n != 3 {
		t.Errorf("%d effects", n)
	}

	// Who means it has it, and keys that are there still count.
	s.rewind(t)
	s.db.Exec(t, "DELETE FROM inbox WHERE key LIKE '%/old'") // as Prune does
	cfg.AllowRewind = true
	m = s.start(t, cfg)
	s.awaitEffects(t, 4)
	s.awaitCommitted(t)
	m.stop(t)
	if n := s.effects(t); n != 4 {
		t.Errorf("%d effects", n)
	}
}

// A partition that is read to its end has the time of the last look, so that it does not hold the
// keys of others; keys then go by the clock of the slowest.
func TestPrune_GoesByTheSlowestPartition(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	cfg := s.config()
	cfg.Keep = time.Hour
	pruned := make(chan struct{}, 100)
	cfg.DB = newPool(t, s.db.URL, 8, &pruning{committed: pruned, deleting: map[*pgx.Conn]bool{}})
	s.aged(t, 5*time.Hour, "a", "b")
	// Another partition, which nobody has read for long, holds all keys.
	s.db.Exec(t, "INSERT INTO inbox_progress (consumer, topic, partition, next, at) VALUES ('billing', 'other', 0, 1, now() - interval '10 hours')")
	m := s.start(t, cfg)
	s.awaitEffects(t, 2)
	at := func() time.Time {
		return harness.Query[time.Time](t, s.db, "SELECT coalesce(min(at), '2000-01-01') FROM inbox_progress WHERE topic = $1", s.topic)
	}
	relaytest.Eventually(t, "the clock is that of now", func() (bool, string) { return time.Since(at()) < time.Minute, at().String() })
	m.stop(t)
	for len(pruned) > 0 {
		<-pruned
	}
	m = s.start(t, cfg) // which deletes old keys at once
	<-pruned
	if n := harness.Query[int](t, s.db, "SELECT count(*)::int FROM inbox"); n != 2 {
		t.Errorf("%d keys; an absent partition needs them", n)
	}
	m.stop(t)
	s.db.Exec(t, "DELETE FROM inbox_progress WHERE topic = 'other'")
	m = s.start(t, cfg)
	relaytest.Eventually(t, "old keys are gone", func() (bool, string) {
		return harness.Query[int](t, s.db, "SELECT count(*)::int FROM inbox") == 0, "they are there"
	})
	m.stop(t)
}

// pruning tells of each commit of a transaction that deletes old keys.
type pruning struct {
	committed chan struct{}

	mu       sync.Mutex // guards the following
	deleting map[*pgx.Conn]bool
}

func (p *pruning) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, textOf{}, data.SQL)
}

func (p *pruning) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	text, _ := ctx.Value(textOf{}).(string)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case data.Err != nil:
	case strings.HasPrefix(text, "DELETE FROM") && strings.Contains(text, "LIMIT"):
		p.deleting[conn] = true
	case text == "commit" && p.deleting[conn]:
		delete(p.deleting, conn)
		p.committed <- struct{}{}
	}
}

// A key that is older than Keep may be gone by prune: that says nothing about the database, and
// nobody is to be told that it was set back.
func TestPrune_OfTheNewestKeyIsNoDatabaseThatWasSetBack(t *testing.T) {
	t.Parallel()
	for _, parallel := range []int{1, 3} {
		t.Run(fmt.Sprint("parallel ", parallel), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
			cfg := s.config()
			cfg.Keep, cfg.Parallel = time.Hour, parallel
			troubles := make(chan error, 100)
			cfg.Events.Trouble = func(err error) { troubles <- err }
			s.aged(t, 5*time.Hour, "a")
			m := s.start(t, cfg)
			s.awaitEffects(t, 1)
			clock := func(after time.Time) {
				t.Helper()
				relaytest.Eventually(t, "the clock goes on", func() (bool, string) {
					at := harness.Query[time.Time](t, s.db, "SELECT coalesce(min(at), '2000-01-01') FROM inbox_progress")
					return at.After(after), at.String()
				})
			}
			s.aged(t, 2*time.Minute, "a") // a repeat: it moves the clock, and claims nothing
			clock(time.Now().Add(-3 * time.Minute))
			s.db.Exec(t, "DELETE FROM inbox AS i USING inbox_progress AS p WHERE i.at < p.at - interval '1 hour'") // as prune does
			if n := harness.Query[int](t, s.db, "SELECT count(*)::int FROM inbox"); n != 0 {
				t.Fatalf("%d keys", n)
			}
			s.aged(t, time.Minute, "b")
			s.awaitEffects(t, 2)
			clock(time.Now().Add(-90 * time.Second))
			m.stop(t)
			close(troubles)
			for err := range troubles {
				t.Errorf("trouble: %v", err)
			}
		})
	}
}

// A member whose clock is ahead does not have keys deleted, and the clock of the partition goes
// back to the time of the database.
func TestPrune_GoesByNoClockThatIsAhead(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	cfg := s.config()
	cfg.Keep = time.Hour
	s.aged(t, time.Minute, "a")
	m := s.start(t, cfg)
	s.awaitEffects(t, 1)
	s.awaitCommitted(t)
	m.stop(t)
	s.db.Exec(t, "UPDATE inbox_progress SET at = now() + interval '10 hours'") // as such a member would have it
	m = s.start(t, cfg)
	s.aged(t, time.Minute, "b")
	s.awaitEffects(t, 2)
	relaytest.Eventually(t, "the clock is that of the database", func() (bool, string) {
		ahead := harness.Query[int](t, s.db, "SELECT count(*)::int FROM inbox_progress WHERE at > now()")
		return ahead == 0, "it is ahead"
	})
	m.stop(t)
}
