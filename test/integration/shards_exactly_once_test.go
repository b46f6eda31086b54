package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/shards"
	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// shardedOnce is an outbox divided over slots, with exactly-once.
func shardedOnce(t *testing.T, db *harness.Database, brokers *harness.Brokers, shards int) (*sharded, *relaytest.Workload, string) {
	t.Helper()
	checkpoints := harness.Unique(t, "checkpoints")
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"},
		fmt.Sprintf("relay: {guarantee: exactly_once, checkpoint_topic: %s, max_in_flight_bytes: 512KiB}", checkpoints))
	s := &sharded{Pipeline: p, plain: p.YAML}
	s.divide(shards, "")
	setup := s.Exec(t, "setup", "--create-table")
	if code := setup.Wait(t); code != 0 {
		t.Fatalf("setup ended with %d:\n%s", code, setup.Output())
	}
	w := s.NewWorkload(t, "outbox", harness.Unique(t, "order"))
	brokers.CreateTopic(t, w.Topic(), 3)
	return s, w, checkpoints
}

// slot is the name of the i-th of two shards' slots.
func (s *sharded) slot(i int) string { return fmt.Sprintf("%s_2_%d", s.Slot, i) }

// insertAcross commits one transaction whose rows belong to many keys in turn, and so
// to every shard, and to every partition.
func insertAcross(t *testing.T, p *relaytest.Pipeline, w *relaytest.Workload, rows int) {
	t.Helper()
	keys := make([]uuid.UUID, 16)
	for i := range keys {
		keys[i] = uuid.New()
	}
	conn, err := pgx.Connect(t.Context(), p.DB.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	found, err := conn.Query(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT $1, ($2::uuid[])[1 + i % 16], 'Happened', jsonb_build_object('n', i, 'fill', repeat('x', 40)) FROM generate_series(1, $3) AS i
		RETURNING id::text, aggregate_id::text`, strings.TrimSuffix(w.Topic(), "-events"), keys, rows)
	if err != nil {
		t.Fatal(err)
	}
	events, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (e ledger.Event, err error) {
		e.Topic = w.Topic()
		return e, row.Scan(&e.ID, &e.Key)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Ledger.Committed(events...)
}

// checkpointsOf are the positions in the topic, by slot.
func checkpointsOf(t *testing.T, s *sharded, topic string) map[string]stored.Position {
	t.Helper()
	system := harness.Query[string](t, s.DB, "SELECT system_identifier::text FROM pg_control_system()")
	found := map[string]stored.Position{}
	err := topics.ReadTopic(t.Context(), s.Settings().Kafka.Connection, topic, func(m *topics.Message) error {
		if m.Value == nil {
			return nil // where a producer session began
		}
		if strings.Contains(string(m.Key), ": ") {
			return nil // what is known of the rows before the slot, and which tables are streamed
		}
		rec, err := stored.ParsePosition(m.Value)
		if err != nil {
			return err
		}
		if key := stored.Key(system, rec.Slot); string(m.Key) != key {
			t.Errorf("a checkpoint of slot %s has the key %q, want %q", rec.Slot, m.Key, key)
		}
		if before, ok := found[rec.Slot]; ok && rec.Behind(&before) {
			t.Errorf("the checkpoint of slot %s went back from %s to %s", rec.Slot, before.End, rec.End)
		}
		found[rec.Slot] = rec
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Two shards in one process, killed again and again at work, some times with another
// process standing by for both slots: who reads what is committed sees each row once,
// and each key in order.
func TestExactlyOnce_ShardsAreKilledAndDuplicateNothing(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	s, w, checkpoints := shardedOnce(t, db, brokers, 2)
	begun := checkpointsOf(t, s, checkpoints)
	if len(begun) != 2 {
		t.Fatalf("checkpoints that setup wrote of two shards: %v", begun)
	}
	random := rand.New(rand.NewPCG(w.Seed, 9))
	w.Start(t, 2, 10*time.Millisecond)
	kills, late, divided := scale(t, "CDC_RELAY_TEST_KILLS", 4), 0, 0
	running := s.Exec(t, "run")
	for done := 0; done < kills; {
		before := s.confirmed(t)
		relaytest.Eventually(t, "every shard confirms", func() (bool, string) { return s.confirmed(t) > before, running.Output() })
		var other *relaytest.Process
		if done%2 == 1 {
			other = s.Exec(t, "run")
			relaytest.Eventually(t, "another one stands by for every slot", func() (bool, string) {
				return strings.Count(other.Output(), `"state":"standby"`) >= 2, other.Output()
			})
		}
		insertAcross(t, s.Pipeline, w, 1000+random.IntN(4000)) // more than a Kafka transaction takes
		end := s.WALEnd(t)
		<-time.After(time.Duration(random.IntN(60_000)) * time.Microsecond) // the random moment
		running.Kill()
		if s.confirmed(t) < end {
			done++
		} else if late++; late > tooLate(kills) {
			t.Fatalf("%d of %d kills came after the last acknowledgement", late, late+done)
		}
		for _, rec := range checkpointsOf(t, s, checkpoints) {
			if rec.Part.Commit != 0 {
				divided++
			}
		}
		if running = other; running == nil {
			running = s.Exec(t, "run")
		}
	}
	w.Stop(t)
	s.awaitCaughtUp(t)
	s.stop(t, running)
	verifyOnce(t, s.Pipeline, w)
	t.Logf("%d kills at work, %d came too late and were repeated; a shard was in the midst of a transaction %d times", kills, late, divided)

	found := checkpointsOf(t, s, checkpoints)
	if len(found) != 2 {
		t.Errorf("checkpoints of %d slots, want 2: %v", len(found), found)
	}
	for i := range 2 {
		rec, confirmed := found[s.slot(i)], relaytest.LSN(t, db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", s.slot(i))
		if rec.Publication != s.slot(i) || rec.End < confirmed {
			t.Errorf("slot %s is at %s, and its checkpoint is %+v", s.slot(i), confirmed, rec)
		}
	}
}

// Each shard has an id of its own: who takes that of one shuts out that shard alone,
// the other drains, and the next start goes on with both.
func TestExactlyOnce_AFencedShardEndsTheProcess(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	s, w, _ := shardedOnce(t, db, brokers, 2)
	start := func() (stop func(), ended chan error) {
		settings := s.Settings()
		settings.Replication.Shard.Count = 2
		running, err := shards.Open(settings, []int{0, 1}, zerolog.Nop(), func(int) (relay.Events, []func() kgo.Hook) { return relay.Events{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		t.Cleanup(running.Abort)
		ended = make(chan error, 1)
		go func() { ended <- running.Run(ctx) }()
		return stop, ended
	}
	end := func(ended chan error) error {
		t.Helper()
		select {
		case err := <-ended:
			return err
		case <-time.After(relaytest.Patience):
			t.Fatal("the shards did not end")
			return nil
		}
	}
	_, ended := start()
	insertAcross(t, s.Pipeline, w, 100)
	s.awaitCaughtUp(t)
	system := harness.Query[string](t, db, "SELECT system_identifier::text FROM pg_control_system()")
	twin, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.TransactionalID(stored.TransactionalID(system, s.slot(1))))
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	ids, err := kadm.NewClient(twin).ListTransactions(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if id := stored.TransactionalID(system, s.slot(i)); ids[id].TxnID != id {
			t.Errorf("no transactional id %s among %v", id, ids.TransactionalIDs())
		}
	}
	if _, _, err := twin.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	insertAcross(t, s.Pipeline, w, 100)
	switch err := end(ended); {
	case err == nil:
		t.Error("the shards ended without an error")
	case !strings.Contains(err.Error(), "shard 1 (slot") || !strings.Contains(err.Error(), "another relay") || strings.Contains(err.Error(), "shard 0 (slot"):
		t.Errorf("ended with %v, want shard 1 alone to be shut out", err)
	}
	stop, ended := start()
	s.awaitCaughtUp(t)
	stop()
	if err := end(ended); err != nil {
		t.Error(err)
	}
	verifyOnce(t, s.Pipeline, w)
}
