package backfill

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// endedAt is a call that is ended after a step.
func (s *scene) endedAt(t *testing.T, options Options, step string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text, err := s.attempt(ctx, options, func(at string) {
		if at == step {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v\n%s", err, text)
	}
}

// `cdc-relay backfill --yes` goes on with the same rows, whenever the call before was ended.
func TestBackfill_CalledAgainMeansTheSameRows(t *testing.T) {
	t.Parallel()
	t.Run("all, of a table with a mark", func(t *testing.T) {
		s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
		s.db.Exec(t, "ALTER TABLE outbox ADD COLUMN published_at timestamptz")
		s.write(t, 1, 3)
		s.db.Exec(t, "UPDATE outbox SET published_at = now()")
		s.endedAt(t, all, "slot_made")
		if text, err := s.attempt(t.Context(), Options{Yes: true}, nil); err == nil && len(s.committed(t)) != 3 {
			t.Errorf("%d of 3 rows, and no error\n%s", len(s.committed(t)), text)
		}
	})
	t.Run("all, after an attempt with others", func(t *testing.T) {
		s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
		s.write(t, 1, 3)
		s.endedAt(t, Options{Where: "id > 2", Yes: true}, "begun")
		restarted := all
		restarted.Restart = true
		s.endedAt(t, restarted, "slot_made")
		if text, err := s.attempt(t.Context(), Options{Yes: true}, nil); err == nil && len(s.committed(t)) != 3 {
			t.Errorf("%d of 3 rows, and no error\n%s", len(s.committed(t)), text)
		}
	})
}

// An order by columns that the publication hides is another one once these have changed their names.
func TestBackfill_DoesNotGoOnByAnotherColumnOfThatName(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.db.Exec(t, "ALTER TABLE outbox ADD COLUMN changed_at timestamptz; CREATE PUBLICATION "+s.slot+" FOR TABLE outbox (id, aggregate_type, aggregate_id, event_type, payload) WITH (publish = 'insert')")
	s.write(t, 1, 100)
	s.db.Exec(t, "UPDATE outbox SET changed_at = created_at - id * interval '1 minute'")
	s.endedAt(t, all, "begun")
	swap := func() {
		s.db.Exec(t, "ALTER TABLE outbox RENAME changed_at TO other; ALTER TABLE outbox RENAME created_at TO changed_at; ALTER TABLE outbox RENAME other TO created_at")
	}
	swap()
	if text, err := s.attempt(t.Context(), all, nil); err == nil || !strings.Contains(err.Error(), "differ from those that the backfill began with") {
		t.Errorf("%d of 100 rows sent, %v\n%s", len(s.committed(t)), err, text)
	}
	swap()
	s.must(t, all)
	complete(t, s.committed(t), 100, false)
}
