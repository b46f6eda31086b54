package ends

import (
	"strings"
	"testing"
	"time"

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
