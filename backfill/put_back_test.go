package backfill

import (
	"context"
	"errors"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5/pgconn"
)

// writeWAL has the server write so many megabytes of WAL, and no row of the outbox.
func (s *scene) writeWAL(t *testing.T, size int) {
	t.Helper()
	s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', $1::int * 1000000))", size)
}

// The server of a backfill that made its slot, from which nobody streamed yet, is put back to an older copy.
// The next backfill makes the slot anew, before the position that the topic has of the former one. Its rows
// up to there are no delivered ones.
func TestBackfill_AfterADiskWasPutBackLeavesNoPositionOfTheSlotThatIsGone(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.write(t, 1, 10)
	putBack := s.db.CopyDisk(t)
	s.writeWAL(t, 4)
	s.must(t, all)

	putBack()
	again := all
	again.Restart = true // sends the rows once more
	s.must(t, again)
	s.write(t, 11, 20)
	s.writeWAL(t, 8) // past the position of the former slot
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
	s.writeWAL(t, 4)
	s.stream(t)

	putBack()
	if text := s.must(t, all); !strings.Contains(text, "its disk was put back to a copy, or it lost flushed WAL; the position is forgotten") {
		t.Errorf("the command says %s", text)
	}
	s.write(t, 11, 20)
	s.writeWAL(t, 8)
	s.stream(t)
	complete(t, s.committed(t), 20, false)
}

// A new slot may begin at the position of the former one. The former one's progress must not count for it.
func TestBackfill_ForgetsTheProgressOfASlotThatIsGoneBeforeItMakesAnother(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 10)
	s.endedAt(t, all, "sent")
	s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot+"_backfill")
	s.endedAt(t, all, "slot_made")
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	system := harness.Query[string](t, s.db, "SELECT system_identifier::text FROM pg_control_system()")
	value, err := ledger.Committed(t.Context(), stored.BackfillKey(system, s.slot))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := progress.Parse(value); err != nil || !p.IsAnnounced() {
		t.Errorf("%s, %v", value, err)
	}
	s.must(t, all)
	complete(t, s.committed(t), 10, false)
}

// A call that goes on leaves out what the one before has sent, by the values in the columns of the order. On
// a disk that was put back other rows may have these values.
func TestBeside_DoesNotGoOnWithRowsOfADiskThatWasPutBack(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
			s.must(t, all) // an empty table: it makes the slot
			gap := func(first int) {
				s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" DROP TABLE outbox")
				s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', (n + $1::int)::text, '2026-01-01' FROM generate_series(1, 1000) n`, first)
				s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE outbox")
			}
			putBack := s.db.CopyDisk(t)
			s.writeWAL(t, 4)
			gap(0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			options := BesideOptions{Where: "true", AcceptOrder: true, Yes: true}
			slow := options
			slow.MaxRate = slowly
			go func() {
				wait(ctx, func() bool { return len(s.committed(t)) >= some })
				cancel()
			}()
			if text, err := s.beside(ctx, slow, nil); !errors.Is(err, context.Canceled) {
				t.Fatalf("%v\n%s", err, text)
			}

			putBack()
			gap(1000)
			text, err := s.beside(t.Context(), options, nil)
			if _, refused := errors.AsType[*advice.Refused](err); !refused || !strings.Contains(err.Error(), "its disk was put back to a copy") {
				t.Fatalf("%v\n%s", err, text)
			}
			options.Restart = true
			if text, err := s.beside(t.Context(), options, nil); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			list := slices.DeleteFunc(s.committed(t), func(n int) bool { return n <= 1000 })
			if len(list) != 1000 {
				t.Errorf("%d of 1000 rows", len(list))
			}
		})
	}
}

// The server lost WAL that it had flushed, and kept the slot of the backfill, which is ahead of what is left. It
// would never send the rows that commit in between.
func TestBackfill_DoesNotGoOnWithASlotAheadOfTheWAL(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 10)
	putBack := s.db.CopyDisk(t)
	s.writeWAL(t, 4)
	s.endedAt(t, all, "begun")
	slots := filepath.Join(s.db.Server.Dir(), "slots")
	copied := func(from, to string) {
		t.Helper()
		if err := s.db.Server.Stop(t.Context(), sandbox.Fast); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := s.db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	of := filepath.Join(s.db.Server.Dir(), "data", "pg_replslot", s.slot+"_backfill")
	copied(of, slots)
	putBack()
	copied(slots, of)

	s.write(t, 11, 20)
	s.must(t, all)
	s.writeWAL(t, 8)
	s.write(t, 21, 30)
	s.stream(t)
	complete(t, s.committed(t), 30, false)
}

// What a backfill beside a relay asks of the server's history needs a replication connection. The relay may have
// the only one, and the history is then the present timeline alone.
func TestBeside_NeedsNoReplicationConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	options := sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"max_wal_senders": "1"}}
	s := play(t, harness.OwnPostgres(t, options), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.must(t, all)
	s.write(t, 1, 10)
	only, err := pgconn.Connect(t.Context(), s.db.URLWith(t, url.Values{"replication": {"database"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = only.Close(context.WithoutCancel(t.Context())) }()
	if text, err := s.beside(t.Context(), BesideOptions{Where: "true", AcceptOrder: true, Yes: true}, nil); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	complete(t, s.committed(t), 10, false)
}
