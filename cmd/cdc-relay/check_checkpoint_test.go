package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// keeping are the two ways to have positions kept in Kafka.
var keeping = map[string]string{
	"detect_moved_slot": "CDC_RELAY_RELAY_DETECT_MOVED_SLOT=true",
	"exactly_once":      "CDC_RELAY_RELAY_GUARANTEE=exactly_once",
}

// keeper is a life whose relay keeps positions in a topic of its own.
func keeper(t *testing.T, how string) (l *life, slot, topic string) {
	t.Helper()
	l = newLife(t)
	topic = harness.Unique(t, "positions")
	l.env = append(l.env, how, "CDC_RELAY_RELAY_CHECKPOINT_TOPIC="+topic)
	return l, strings.TrimPrefix(l.env[1], "CDC_RELAY_POSTGRES_SLOT="), topic
}

// runs writes n rows, and has a relay deliver them and stop.
func (l *life) runs(t *testing.T, n int) {
	t.Helper()
	l.insert(t, n)
	url, stop := l.start(t, nil)
	l.await(t, "everything is published", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, fmt.Sprintf("published %d,", n))
	})
	if code := stop(); code != exitOK {
		t.Fatalf("run ended with %d", code)
	}
	released(t, l.db)
}

// refuses has a run end at its start. It is not asked for after something else has
// failed: a run that does not refuse goes on for ever.
func (l *life) refuses(t *testing.T, says string) {
	t.Helper()
	if t.Failed() {
		t.FailNow()
	}
	invoke(t, l.env, "run").want(t, exitRefused, "", says)
}

func (l *life) confirmed(t *testing.T, slot string) string {
	t.Helper()
	return harness.Query[string](t, l.db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", slot)
}

// move puts the slot behind a row that nobody has seen.
func (l *life) move(t *testing.T, slot string) {
	t.Helper()
	l.insert(t, 1)
	l.db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", slot)
}

// held are the positions in the checkpoint topic, newest last, and where the topic ends.
func (l *life) held(t *testing.T, topic string) (ends []string, next int64) {
	t.Helper()
	offsets, err := l.brokers.Admin(t).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := offsets.Lookup(topic, 0)
	for _, r := range l.brokers.Read(t, topic) {
		if r.Value == nil {
			continue
		}
		rec, err := checkpoint.ParseRecord(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, rec.End.String())
	}
	return ends, at.Offset
}

func (c checked) has(check string) bool {
	for _, f := range c.Findings {
		if f.Check == check {
			return true
		}
	}
	return false
}

// check says of slot and checkpoint what run would, and writes nothing to say it.
func TestCheck_ComparesTheSlotWithItsCheckpoint(t *testing.T) {
	t.Parallel()
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, slot, topic := keeper(t, how)
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
			l.runs(t, 3)
			ends, before := l.held(t, topic)
			level := l.confirmed(t, slot)
			checkUp(t, l.env).want(t, "slot.checkpoint", levelOK, fmt.Sprintf("slot %q is at %s", slot, level), topic, "at "+ends[len(ends)-1])

			l.move(t, slot)
			moved := l.confirmed(t, slot)
			said := fmt.Sprintf("the slot is at %s, and the checkpoint in topic %q at %s", moved, topic, ends[len(ends)-1])
			checkUp(t, l.env).want(t, "slot.checkpoint", levelFail, said, "setup --accept-gap")
			if checkUp(t, without(l.env, []string{how, "CDC_RELAY_RELAY_CHECKPOINT_TOPIC=" + topic})).has("slot.checkpoint") {
				t.Error("a configuration that keeps no positions is told of them")
			}
			if _, after := l.held(t, topic); after != before {
				t.Errorf("the checkpoint topic ends at %d, and did at %d before check", after, before)
			}
			l.refuses(t, said)

			invoke(t, l.env, "setup", "--accept-gap").want(t, exitOK, "forgot the checkpoint", "")
			checkUp(t, l.env).want(t, "slot.checkpoint", levelWarn, moved, "has no checkpoint of it", "start the relay")
			l.runs(t, 2)
			checkUp(t, l.env).want(t, "slot.checkpoint", levelOK, slot)
		})
	}
}

// A relay at work moves its checkpoint before its slot, and check does not take the one
// for behind the other, nor the relay's open transactions for all there is.
func TestCheck_OfARelayAtWorkSeesNoGap(t *testing.T) {
	t.Parallel()
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, slot, _ := keeper(t, how)
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
			url, stop := l.start(t, nil)
			l.await(t, "the relay streams", func() bool { return invoke(t, nil, "status", "--url", url).code == exitOK })
			for range 5 {
				l.insert(t, 200)
				checkUp(t, l.env).want(t, "slot.checkpoint", levelOK, slot)
			}
			if code := stop(); code != exitOK {
				t.Errorf("run ended with %d", code)
			}
		})
	}
}

func TestCheck_ACheckpointTopicThatCannotBeRead(t *testing.T) {
	t.Parallel()
	l, _, topic := keeper(t, keeping["detect_moved_slot"])
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
	if _, err := l.brokers.Admin(t).DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	got := checkUp(t, l.env)
	got.want(t, "slot.checkpoint", levelWarn, "could not be compared", topic, "does not exist", "cdc-relay setup")
	got.want(t, "checkpoint.topic", levelFail, topic)
	l.brokers.Fake.TakeAway(0)
	defer l.brokers.Fake.Return()
	checkUp(t, l.env).want(t, "slot.checkpoint", levelWarn, "kafka.connection")
}

func TestCheck_ComparesTheSlotOfEachShard(t *testing.T) {
	t.Parallel()
	l, base, topic := keeper(t, keeping["detect_moved_slot"])
	if harness.Query[int64](t, l.db, "SELECT current_setting('server_version_num')::bigint") < 150000 {
		t.Skip("row filters in publications came with PostgreSQL 15")
	}
	l.env = append(l.env, "CDC_RELAY_POSTGRES_SHARDS=2")
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
	got := checkUp(t, l.env)
	for i := range 2 {
		got.want(t, "slot.checkpoint", levelOK, fmt.Sprintf("%s_2_%d", base, i), topic)
	}
	l.move(t, base+"_2_1")
	got = checkUp(t, l.env)
	got.want(t, "slot.checkpoint", levelOK, base+"_2_0")
	got.want(t, "slot.checkpoint", levelFail, base+"_2_1", "--accept-gap")
}

// Between setup and the first run somebody moves the slot.
func TestSetup_WritesWhereTheSlotBegins(t *testing.T) {
	t.Parallel()
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, slot, topic := keeper(t, how)
			invoke(t, l.env, "setup", "--create-table", "--dry-run").want(t, exitOK, "would be written to topic "+topic, "")
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "wrote where slot "+slot+" begins", "")
			begins := l.confirmed(t, slot)
			ends, before := l.held(t, topic)
			if len(ends) != 1 || ends[0] != begins {
				t.Fatalf("the topic has %q, want %s", ends, begins)
			}
			checkUp(t, l.env).want(t, "slot.checkpoint", levelOK, begins)
			again := invoke(t, l.env, "setup")
			again.want(t, exitOK, "ready", "")
			if _, after := l.held(t, topic); after != before {
				t.Error("a setup that made nothing wrote a checkpoint")
			}

			l.move(t, slot)
			checkUp(t, l.env).want(t, "slot.checkpoint", levelFail, begins, l.confirmed(t, slot))
			l.refuses(t, "the checkpoint in topic \""+topic+"\" at "+begins)
			invoke(t, l.env, "setup", "--accept-gap").want(t, exitOK, "forgot the checkpoint", "")
			l.runs(t, 4)
			if n := len(l.brokers.Read(t, "order-events")); n != 4 {
				t.Errorf("%d records, want the 4 from behind the gap", n)
			}
		})
	}
}

// What is written does not keep a relay from the rows behind it.
func TestSetup_WhereTheSlotBeginsNothingIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _, topic := keeper(t, how)
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "wrote where slot", "")
			l.runs(t, 7)
			if n := len(l.brokers.Read(t, "order-events")); n != 7 {
				t.Errorf("%d records, want 7", n)
			}
			if ends, _ := l.held(t, topic); len(ends) < 2 {
				t.Errorf("the relay wrote nothing: %q", ends)
			}
		})
	}
}

// A slot that was made anew leaves a gap behind the checkpoint of the old one. Setup
// must not paper that over.
func TestSetup_ASlotMadeAnewKeepsTheOldCheckpoint(t *testing.T) {
	t.Parallel()
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, slot, topic := keeper(t, how)
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
			l.runs(t, 3)
			l.insert(t, 1) // which is lost with the slot
			l.db.Exec(t, "SELECT pg_drop_replication_slot($1)", slot)
			ends, before := l.held(t, topic)
			old := ends[len(ends)-1]
			got := invoke(t, l.env, "setup")
			got.want(t, exitOK, "created slot "+slot, "would refuse")
			got.want(t, exitOK, "", "at "+old)
			if strings.Contains(got.stdout, "ready") {
				t.Errorf("setup says it is ready:\n%s", got.stdout)
			}
			if _, after := l.held(t, topic); after != before {
				t.Error("setup wrote over the checkpoint of the old slot")
			}
			l.refuses(t, "at "+old)

			l.db.Exec(t, "SELECT pg_drop_replication_slot($1)", slot)
			accepted := invoke(t, l.env, "setup", "--accept-gap")
			accepted.want(t, exitOK, "forgot the checkpoint", "")
			accepted.want(t, exitOK, "wrote where slot "+slot+" begins", "")
			checkUp(t, l.env).want(t, "slot.checkpoint", levelOK, l.confirmed(t, slot))
		})
	}
}

func TestSetup_SaysWhenItCannotWriteWhereTheSlotBegins(t *testing.T) {
	t.Parallel()
	l, slot, _ := keeper(t, keeping["detect_moved_slot"])
	l.brokers.Fake.TakeAway(0)
	got := invoke(t, l.env, "setup", "--create-table")
	got.want(t, exitRefused, "created slot "+slot, "is not written to topic")
	if strings.Contains(got.stdout, "ready") || !strings.Contains(got.stderr, l.confirmed(t, slot)) {
		t.Errorf("standard output:\n%sstandard error:\n%s", got.stdout, got.stderr)
	}
	l.brokers.Fake.Return()
	invoke(t, l.env, "setup").want(t, exitOK, "ready", "")
	checkUp(t, l.env).want(t, "slot.checkpoint", levelWarn, "has no checkpoint of it")
}

// A relay that has the slot already is not shut out, and its checkpoint stands.
func TestSetup_ARelayThatWasQuickerIsLeftAlone(t *testing.T) {
	t.Parallel()
	l, slot, topic := keeper(t, keeping["exactly_once"])
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
	l.runs(t, 3)
	ends, _ := l.held(t, topic)
	cfg, err := (&app{process: process{env: l.env}}).load()
	if err != nil {
		t.Fatal(err)
	}
	var out output
	f := newFirst(&app{process: process{stdout: &out, stderr: &out}}, cfg.Relay())
	f.slots[slot] = true
	f.look(t.Context())
	system := f.standing.Origin.SystemID
	rec := checkpoint.Record{System: system, Timeline: 1, Slot: slot, End: 1}
	if err := f.commit(t.Context(), cfg.Relay(), &rec); !errors.Is(err, errTaken) {
		t.Errorf("over the checkpoint of a relay: %v", err)
	}

	url, stop := l.start(t, nil)
	l.await(t, "the relay streams", func() bool { return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "streaming") })
	if err := f.commit(t.Context(), cfg.Relay(), &rec); !errors.Is(err, errTaken) {
		t.Errorf("beside a relay: %v", err)
	}
	l.insert(t, 2)
	l.await(t, "it goes on", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "published 2,")
	})
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d", code)
	}
	now, _ := l.held(t, topic)
	for _, end := range now[len(ends):] {
		if end == "0/1" {
			t.Error("setup wrote over a relay's checkpoint")
		}
	}
}

// An open transaction hides what follows it, also what was committed: that is waited
// for, and never taken for the newest.
func TestCheck_AnOpenTransactionIsWaitedFor(t *testing.T) {
	t.Parallel()
	l, slot, topic := keeper(t, keeping["exactly_once"])
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
	other, err := kgo.NewClient(kgo.SeedBrokers(l.brokers.Addrs...), kgo.TransactionalID("somebody"), kgo.TransactionTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("another")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	checkUp(t, l.env).want(t, "slot.checkpoint", levelWarn, "could not be compared", "open transaction")
	if err := other.EndTransaction(context.WithoutCancel(t.Context()), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	checkUp(t, l.env).want(t, "slot.checkpoint", levelOK, slot)
}
