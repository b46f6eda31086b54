package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// sharded is an outbox divided over slots, with its topic.
type sharded struct {
	*relaytest.Pipeline
	plain string // the configuration without shards
}

func newSharded(t *testing.T, db *harness.Database, brokers *harness.Brokers, shards int) (*sharded, *relaytest.Workload) {
	t.Helper()
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"})
	s := &sharded{Pipeline: p, plain: p.YAML}
	s.divide(shards, "")
	setup := s.Exec(t, "setup", "--create-table")
	if code := setup.Wait(t); code != 0 {
		t.Fatalf("setup ended with %d:\n%s", code, setup.Output())
	}
	w := s.NewWorkload(t, "outbox", harness.Unique(t, "order"))
	brokers.CreateTopic(t, w.Topic(), 3)
	return s, w
}

// divide has the next process run with that many shards, or with some of them.
func (s *sharded) divide(shards int, own string) {
	text := fmt.Sprintf("postgres: {shards: %d, ", shards)
	if own != "" {
		text += "own_shards: [" + own + "], "
	}
	s.YAML = strings.Replace(s.plain, "postgres: {", text, 1)
}

// confirmed is the position of the slot that is most behind.
func (s *sharded) confirmed(t *testing.T) wal.LSN {
	t.Helper()
	return relaytest.LSN(t, s.DB, "SELECT coalesce(min(confirmed_flush_lsn), '0/0')::text FROM pg_replication_slots WHERE database = current_database()")
}

func (s *sharded) awaitCaughtUp(t *testing.T) {
	t.Helper()
	end := s.WALEnd(t)
	relaytest.Eventually(t, "every shard has confirmed everything", func() (bool, string) {
		at := s.confirmed(t)
		return at >= end, fmt.Sprintf("%s of %s", at, end)
	})
}

func (s *sharded) stop(t *testing.T, running *relaytest.Process) {
	t.Helper()
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d:\n%s", code, running.Output())
	}
}

func TestShards_AreKilledAndKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		brokers := harness.Kfake(t, kfakeDefault)
		s, w := newSharded(t, db, brokers, 3)
		random := rand.New(rand.NewPCG(w.Seed, 7))
		w.Start(t, 2, 10*time.Millisecond)
		for range scale(t, "CDC_RELAY_TEST_KILLS", 4) {
			running := s.Exec(t, "run")
			before := s.confirmed(t)
			relaytest.Eventually(t, "every shard confirms", func() (bool, string) { return s.confirmed(t) > before, running.Output() })
			w.Insert(t, 1+random.IntN(1000))
			<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond) // the random moment
			running.Kill()
		}
		w.Stop(t)
		running := s.Exec(t, "run")
		s.awaitCaughtUp(t)
		s.stop(t, running)
		t.Logf("%d duplicates", w.Verify(t))
	})
}

// The number of shards changes while writers write. Nothing else stops them than the
// relay itself, which is restarted.
func TestShards_ChangeInNumberUnderLoad(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		brokers := harness.Kfake(t, kfakeDefault)
		s, w := newSharded(t, db, brokers, 1)
		w.Start(t, 2, 10*time.Millisecond)
		running := s.Exec(t, "run")
		for _, change := range [][2]int{{1, 3}, {3, 2}} {
			s.divide(change[1], "")
			reshard := s.Exec(t, "setup", "--reshard-from", fmt.Sprint(change[0]))
			relaytest.Eventually(t, "it asks for the relay to be stopped", func() (bool, string) {
				return strings.Contains(reshard.Output(), "stop every relay"), reshard.Output()
			})
			s.stop(t, running)
			if code := reshard.Wait(t); code != 0 {
				t.Fatalf("setup --reshard-from %d ended with %d:\n%s", change[0], code, reshard.Output())
			}
			s.divide(change[0], "")
			refused := s.Exec(t, "run")
			if code := refused.Wait(t); code != 3 {
				t.Errorf("a relay with the former number ended with %d:\n%s", code, refused.Output())
			}
			s.divide(change[1], "")
			running = s.Exec(t, "run")
		}
		s.awaitCaughtUp(t)
		w.Stop(t)
		s.awaitCaughtUp(t)
		s.stop(t, running)
		t.Logf("%d duplicates", w.Verify(t))
	})
}

// Several processes share the slots: each runs some, and a third stands by for all.
func TestShards_OfSeveralProcesses(t *testing.T) {
	t.Parallel()
	brokers := harness.Kfake(t, kfakeDefault)
	s, w := newSharded(t, harness.Postgres(t), brokers, 3)
	w.Start(t, 2, 10*time.Millisecond)
	s.divide(3, "0")
	first := s.Exec(t, "run")
	s.divide(3, "1, 2")
	second := s.Exec(t, "run")
	relaytest.Eventually(t, "the two have every slot", func() (bool, string) { // which may be caught up before anybody had it
		n := harness.Query[int](t, s.DB, "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND active")
		return n == 3, fmt.Sprint(n)
	})
	s.awaitCaughtUp(t)
	s.divide(3, "")
	third := s.Exec(t, "run")
	relaytest.Eventually(t, "the third stands by for every slot", func() (bool, string) {
		return strings.Count(third.Output(), `"state":"standby"`) >= 3, third.Output()
	})
	first.Kill()
	s.awaitCaughtUp(t)
	s.stop(t, second)
	s.awaitCaughtUp(t)
	w.Stop(t)
	s.awaitCaughtUp(t)
	s.stop(t, third)
	t.Logf("%d duplicates", w.Verify(t))
}
