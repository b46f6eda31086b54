package ends

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Another member, which believed to own the partition too, has handled records and moved the offset
// in the database, where this one had not been told. This one goes on where the database is.
func TestOffsets_AreThoseOfTheDatabaseWhereTwoMembersOwnAPartition(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.unique = true
	cfg := s.config()
	cfg.Offsets = true
	m := s.start(t, cfg)
	s.produce(t, 10, 3)
	s.awaitAll(t)
	s.awaitCommitted(t)

	// The other one's transaction: it is committed when this one gets the records.
	conn := s.db.Connect(t)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE inbox_progress SET next = next + 7"); err != nil {
		t.Fatal(err)
	}
	s.produce(t, 20, 3)
	for _, r := range s.past[10:17] {
		if err := journal(t.Context(), tx, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t)
}

// The same where the other member does so between the two looks of this one: at the offset that it begins to fetch
// at, and at that of its partition.
func TestOffsets_MoveWhileAPartitionBegins(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.unique = true
	cfg := s.config()
	cfg.Offsets = true
	s.produce(t, 10, 3)
	s.finish(t, s.start(t, cfg))
	s.produce(t, 20, 3)
	cfg.DB = newPool(t, s.db.URL, 8, &beginning{adjusted: make(chan struct{}), between: func() {
		tx, err := s.pool.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), "UPDATE inbox_progress SET next = next + 7")
		}
		for _, r := range s.past[10:17] {
			err = errors.Join(err, journal(t.Context(), tx, r))
		}
		if err := errors.Join(err, tx.Commit(t.Context())); err != nil {
			t.Error(err)
		}
	}})
	s.finish(t, s.start(t, cfg))
}

// beginning has something done between the two looks.
type beginning struct {
	loads    atomic.Int32
	adjusted chan struct{} // closed when the consumer has read where to fetch
	between  func()
}

type adjusting struct{}

func (b *beginning) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.HasPrefix(data.SQL, "SELECT topic, partition, next "):
		return context.WithValue(ctx, adjusting{}, true)
	case strings.HasPrefix(data.SQL, "SELECT next, ") && b.loads.Add(1) == 2: // with the first one it looks for its tables
		<-b.adjusted
		b.between()
	}
	return ctx
}

func (b *beginning) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(adjusting{}) != nil {
		close(b.adjusted)
	}
}

// A trigger that keeps the offset where it is has the round tried again at intervals, and told.
func TestOffsets_ThatCannotBeMovedAreTold(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.unique = true
	s.db.Exec(t, "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
	s.db.Exec(t, "CREATE TRIGGER keep BEFORE UPDATE ON inbox_progress FOR EACH ROW WHEN (NEW.next > OLD.next) EXECUTE FUNCTION keep()")
	told := make(chan struct{}, 1)
	cfg := s.config()
	cfg.Offsets = true
	cfg.Events.Trouble = func(err error) {
		if strings.Contains(err.Error(), "stays where it is") {
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}
	m := s.start(t, cfg)
	s.produce(t, 10, 3)
	select {
	case <-told:
	case <-time.After(relaytest.Patience):
		t.Fatal("it is not told")
	}
	s.db.Exec(t, "DROP TRIGGER keep ON inbox_progress")
	s.finish(t, m)
}
