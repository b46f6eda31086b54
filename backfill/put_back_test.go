package backfill

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// writeWAL has the server write so many pages of WAL, and no row of the outbox.
func (s *scene) writeWAL(t *testing.T, pages int) {
	t.Helper()
	s.db.Exec(t, "CREATE TABLE "+harness.Unique(t, "filler")+" AS SELECT repeat('x', 7000) FROM generate_series(1, $1::int)", pages)
}

// The server of a backfill that made its slot, from which nobody streamed yet, is put back to an older copy.
// The next backfill makes the slot anew, before the position that the topic has of the former one. Its rows
// up to there are no delivered ones.
func TestBackfill_AfterADiskWasPutBackLeavesNoPositionOfTheSlotThatIsGone(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.write(t, 1, 10)
	putBack := s.db.CopyDisk(t)
	s.writeWAL(t, 500)
	s.must(t, all)

	putBack()
	again := all
	again.Restart = true // sends the rows once more
	s.must(t, again)
	s.write(t, 11, 20)
	s.writeWAL(t, 1000) // past the position of the former slot
	s.stream(t)
	complete(t, s.committed(t), 20, false)
}

// The copy has the slots of a backfill that had not come to its end. A relay had streamed since.
func TestBackfill_CompletedAfterADiskWasPutBackForgetsAPositionBeyondTheWAL(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.write(t, 1, 10)
	s.endedAt(t, all, "written")
	putBack := s.db.CopyDisk(t)
	s.writeWAL(t, 500)
	s.stream(t)

	putBack()
	if text := s.must(t, all); !strings.Contains(text, "its disk was put back to a copy, or it lost flushed WAL; the position is forgotten") {
		t.Errorf("the command says %s", text)
	}
	s.write(t, 11, 20)
	s.writeWAL(t, 1000)
	s.stream(t)
	complete(t, s.committed(t), 20, false)
}
