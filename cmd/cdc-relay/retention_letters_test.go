package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// withLetter has one row delivered and one become a dead letter that waits, both old enough to be
// deleted. letters is the topic.
func withLetter(t *testing.T) (k *keeper, letters string) {
	t.Helper()
	return withLetterOf(t, newLife(t))
}

func withLetterOf(t *testing.T, l *life) (k *keeper, letters string) {
	t.Helper()
	k = newKeeperOf(t, l, keeping["detect_moved_slot"])
	letters = k.topic + "-letters"
	k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters)
	k.keepsHouse(t, "delete", "")
	k.setUp(t, "")
	_, stop := k.streams(t)
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES
		('no topic!', gen_random_uuid(), 'x', '{}', now() - interval '2h'), ('order', gen_random_uuid(), 'x', '{}', now() - interval '2h')`)
	k.arrived(t, 1)
	stop()
	released(t, k.db)
	return k, letters
}

// holds requires retention to delete nothing, and to say why.
func (k *keeper) holds(t *testing.T, says string) {
	t.Helper()
	rows := k.rows(t)
	invoke(t, k.env, "retention").want(t, exitRefused, "(dead_letters_unread)", "")
	got := invoke(t, k.env, "retention", "--once")
	got.want(t, exitRefused, "deleted 0 rows", "(reason dead_letters_unread)")
	got.want(t, exitRefused, "", says)
	k.left(t, rows)
}

// deletes has retention delete rows beside a relay, which passes what is written meanwhile.
func (k *keeper) deletes(t *testing.T, says string) {
	t.Helper()
	_, stop := k.streams(t)
	invoke(t, k.env, "retention", "--once").want(t, exitOK, says, "")
	stop()
	released(t, k.db)
}

// A letter that its topic has removed was sent by nobody.
func TestRetention_KeepsTheRowOfALetterThatWasDeleted(t *testing.T) {
	t.Parallel()
	k, letters := withLetter(t)
	admin := k.brokers.Admin(t)
	ends, err := admin.ListEndOffsets(t.Context(), letters)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil { // what retention.ms does in time
		t.Fatal(err)
	}
	k.holds(t, "from offset 0 to 0 were deleted")
	invoke(t, k.env, "setup").want(t, exitOK, "", "were deleted")
	k.holds(t, "setup --before-slot delivered")
	invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "no dead letter of an earlier topic waits", "")
	k.deletes(t, "deleted 2 rows")
}

// A new topic of the same name does not show which letters waited in the old one.
func TestRetention_KeepsTheRowOfALetterWhoseTopicWasMadeAnew(t *testing.T) {
	t.Parallel()
	k, letters := withLetter(t)
	if _, err := k.brokers.Admin(t).DeleteTopics(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	k.holds(t, "setup")
	invoke(t, k.env, "setup").want(t, exitOK, "created topic "+letters, "rows stay")
	k.holds(t, "not the topic that it was")
	invoke(t, k.env, "setup").want(t, exitOK, "", "rows stay")
	invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "", "")
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	k.deletes(t, "deleted 2 rows")
}

// Before Kafka 2.8 topics have no ids. Nothing shows whether the dead-letter topic was recreated, so rows stay.
func TestRetention_KeepsRowsWhereTopicsHaveNoIDs(t *testing.T) {
	t.Parallel()
	k, letters := withLetterOf(t, newLifeWith(t, sandbox.KafkaOptions{Speaks: kversion.V2_7_0()}))
	k.holds(t, "Kafka 2.8 or later")
	if _, err := k.brokers.Admin(t).DeleteTopics(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	invoke(t, k.env, "setup").want(t, exitOK, "created topic "+letters, "")
	k.holds(t, "give topics no ids")
	invoke(t, k.env, "check").want(t, exitRefused, "give topics no ids", "")
}

// Letters that wait in the topic of an earlier configuration are not in the one of this.
func TestRetention_KeepsTheRowOfALetterInAnotherTopic(t *testing.T) {
	t.Parallel()
	k, letters := withLetter(t)
	before := k.env
	k.env = append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters+"-new")
	invoke(t, k.env, "setup").want(t, exitOK, "created topic "+letters+"-new", fmt.Sprintf("in topic %q", letters))
	k.holds(t, fmt.Sprintf("in topic %q", letters))
	invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitRefused, "", "topic "+letters+" has 1 dead letter that nobody has sent or discarded")
	k.holds(t, fmt.Sprintf("in topic %q", letters))
	invoke(t, before, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
	invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "", "")
	k.deletes(t, "deleted 2 rows")
}

// A letter that will be deleted in time counts as waiting for that time only.
func TestRetention_KeepsRowsWhileTheTopicDeletesLettersInTime(t *testing.T) {
	t.Parallel()
	k, letters := withLetter(t)
	set := func(name, value string) {
		t.Helper()
		if _, err := k.brokers.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: kmsg.StringPtr(value)}}, letters); err != nil {
			t.Fatal(err)
		}
	}
	set("retention.ms", "604800000")
	k.holds(t, "retention.ms=-1,retention.bytes=-1")
	set("retention.ms", "-1")
	set("cleanup.policy", "compact")
	k.holds(t, "cleanup.policy=delete")
	set("cleanup.policy", "delete")
	k.deletes(t, "deleted 1 row")
	k.left(t, 1)
}

// Without a record nobody knows what the records were that are gone.
func TestRetention_KeepsRowsWhereLettersWereDeletedBeforeItsFirstLook(t *testing.T) {
	t.Parallel()
	k, letters := withLetter(t)
	admin := k.brokers.Admin(t)
	ledger, err := topics.NewLedger(broker.Connection{Brokers: k.brokers.Addrs}, k.topic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	if err := ledger.Write(t.Context(), stored.LettersTopicKey(queryText(t, k.db, "SELECT system_identifier::text FROM pg_control_system()"), k.slot), nil); err != nil {
		t.Fatal(err)
	}
	ends, err := admin.ListEndOffsets(t.Context(), letters)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteRecords(t.Context(), ends.Offsets()); err != nil {
		t.Fatal(err)
	}
	k.holds(t, "from offset 0 to 0 were deleted")
	invoke(t, k.env, "setup").want(t, exitOK, "", "were deleted")
	k.holds(t, "from offset 0 to 0 were deleted")
}

// Letters of a pipeline under another name may be of the rows that are to be declared delivered.
func TestSetup_DeclaresNothingWhileLettersWait(t *testing.T) {
	t.Parallel()
	k, letters := withLetter(t)
	former := k.dropSlot(t, "_renamed")
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
	got := invoke(t, k.env, "setup", "--before-slot", "delivered")
	got.want(t, exitRefused, "", "topic "+letters+" has 1 dead letter that nobody has sent or discarded: 1 of ")
	got.want(t, exitRefused, "", "/"+former+";")
	invoke(t, k.env, "setup", "--before-slot", "delivered", "--dry-run").want(t, exitRefused, "", former)
	invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason before_slot_unknown)")
	invoke(t, k.env, "deadletter", "redrive", "--source", "all", "--all", "--discard", "--yes").want(t, exitOK, "", "")
	invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "are delivered", "")
	k.deletes(t, "deleted 2 rows")
}

// The slot is not all that may have had another name or place when a letter was written.
func TestSetup_DeclaresNothingWhileLettersOfAnEarlierPlaceWait(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(t *testing.T, k *keeper){
		"the table was renamed": func(t *testing.T, k *keeper) {
			k.db.Exec(t, "ALTER TABLE outbox RENAME TO events")
			k.configure(t, "outbox: [{table: public.events, retention: {keep: 1h, then: delete}}]\nmaintenance: {in_run: false, wait: 20s}\n")
		},
		"the dead-letter topic has another name": func(t *testing.T, k *keeper) {
			k.env = append(k.env, "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+k.topic+"-letters-new")
		},
		"the database was restored": func(t *testing.T, k *keeper) {
			rows, server := queryText(t, k.db, "SELECT json_agg(outbox)::text FROM outbox"), queryText(t, k.db, "SELECT system_identifier::text FROM pg_control_system()")
			if k.db = harness.Postgres(t); queryText(t, k.db, "SELECT system_identifier::text FROM pg_control_system()") != server {
				t.Fatal("the other database is on another server")
			}
			k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+k.db.URL)
			invoke(t, k.env, "setup", "--create-table").want(t, exitOK, "", "")
			k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
			k.db.Exec(t, "INSERT INTO outbox SELECT * FROM json_populate_recordset(NULL::outbox, $1)", rows)
			k.slot += "_again"
			k.env = append(k.env, "CDC_RELAY_POSTGRES_SLOT="+k.slot)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, letters := withLetter(t)
			k.dropSlot(t, "_renamed")
			move(t, k)
			invoke(t, k.env, "setup").want(t, exitOK, "", "")
			invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitRefused, "", "topic "+letters+" has 1 dead letter that nobody has sent or discarded: 1 of ")
		})
	}
}

// A topic that is gone takes the letters with it, whatever PostgreSQL keeps.
func TestStatus_SaysWhichLettersAreLostWithTheirTopic(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	letters := k.topic + "-letters"
	k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_PARK_KEY=true", "CDC_RELAY_KAFKA_CREATE_TOPICS_ENABLED=false", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters)
	k.setUp(t, "")
	url, stop := k.streams(t)
	reject := func() {
		k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}')`)
	}
	reject()
	k.await(t, "a letter", func() bool { return len(k.brokers.Read(t, letters)) == 1 })
	if _, err := k.brokers.Admin(t).DeleteTopics(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	reject()
	var text string
	k.await(t, "the relay is blocked", func() bool {
		text = invoke(t, nil, "status", "--url", url).stdout
		return strings.Contains(text, "unknown_topic")
	})
	if strings.Contains(text, "nothing is lost") || !strings.Contains(text, " lost") {
		t.Errorf("no word of the lost letters:\n%s", text)
	}
	invoke(t, k.env, "setup").want(t, exitOK, "created topic", "Dead letters that waited may be lost")
	stop()
}

// Marks are proven as deletes are.
func TestMark_LeavesTheRowOfALetterInAnotherTopic(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["exactly_once"])
	letters := k.topic + "-letters"
	k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters)
	k.marks(t, "column: published_at", "")
	_, stop := k.streams(t)
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}'), ('order', gen_random_uuid(), 'x', '{}')`)
	k.arrived(t, 1)
	stop()
	released(t, k.db)
	k.env = append(k.env, "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters+"-new")
	invoke(t, k.env, "setup").want(t, exitOK, "", fmt.Sprintf("in topic %q", letters))
	_, stop = k.streams(t)
	invoke(t, k.env, "mark", "--once").want(t, exitRefused, "marked 0 rows", "(reason dead_letters_unread)")
	stop()
	if n := k.marked(t); n != 0 {
		t.Errorf("%d rows are marked", n)
	}
}

// A job beside a relay pauses too, and goes on by itself once somebody has declared the letters.
func TestRun_MarksPauseWhenTheDeadLetterTopicIsReplaced(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	letters := k.topic + "-letters"
	k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters, "CDC_RELAY_MAINTENANCE_IN_RUN=true", "CDC_RELAY_MAINTENANCE_INTERVAL=1s")
	k.marks(t, "column: published_at", "")
	url, stop := k.streams(t)
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}'), ('order', gen_random_uuid(), 'x', '{}')`)
	k.await(t, "the delivered row is marked", func() bool { return k.marked(t) == 1 })
	if _, err := k.brokers.Admin(t).DeleteTopics(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	invoke(t, k.env, "setup").want(t, exitOK, "created topic "+letters, "stay")
	var text string
	k.await(t, "it pauses", func() bool {
		text = invoke(t, nil, "status", "--url", url).stdout
		return strings.Contains(text, "dead_letters_unread")
	})
	if k.marked(t) != 1 {
		t.Errorf("%d rows are marked; the status:\n%s", k.marked(t), text)
	}
	invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "", "")
	k.await(t, "the row is marked", func() bool { return k.marked(t) == 2 })
	stop()
}

// Of a topic that was given more partitions nobody knows which of two records is the newer one: what is known of
// the rows before the slot may have been taken back.
func TestRetention_KeepsRowsWhereTheCheckpointTopicWasDivided(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.keepsHouse(t, "delete", "")
	k.setUp(t, "")
	_, stop := k.streams(t)
	defer stop()
	k.insert(t, 3)
	k.arrived(t, 3)
	k.age(t, "2h")
	if _, err := k.brokers.Admin(t).CreatePartitions(t.Context(), 1, k.topic); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers.Addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: k.topic, Partition: 1, Key: []byte("a"), Value: []byte("b")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	invoke(t, k.env, "retention", "--once").want(t, exitRefused, "", "has records in several partitions")
	k.left(t, 3)
}

// holdsAll requires retention to delete nothing because of a letter, and to say which and why.
func (k *keeper) holdsAll(t *testing.T, why string) {
	t.Helper()
	rows := k.rows(t)
	invoke(t, k.env, "retention").want(t, exitOK, why, "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 0 rows; ", "")
	k.left(t, rows)
}

// A letter names its row by the column that the mapping had when it was written, as the next mapping may
// have another one.
func TestRetention_ALetterHoldsItsRowAfterAChangeOfTheMapping(t *testing.T) {
	t.Parallel()
	k, _ := withLetter(t)
	k.env = append(k.env, "CDC_RELAY_OUTBOX_COLUMNS_ID=aggregate_id")
	_, stop := k.streams(t)
	k.holdsAll(t, `its event id is of column "id", and not of "aggregate_id" as the mapping has it now`)
	invoke(t, k.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 2 rows", "")
	stop()
}

// The runbook of table_changed has both names configured.
func TestRetention_ALetterHoldsItsRowAfterTheTablesNameWentToAnother(t *testing.T) {
	t.Parallel()
	k, _ := withLetter(t)
	k.db.Exec(t, "ALTER TABLE outbox RENAME TO outbox_old")
	k.db.Exec(t, "CREATE TABLE outbox (LIKE outbox_old INCLUDING ALL)")
	k.db.Exec(t, "ALTER PUBLICATION "+harness.Query[string](t, k.db, "SELECT pubname::text FROM pg_publication")+" ADD TABLE outbox")
	k.configure(t, "outbox: [{table: public.outbox}, {table: public.outbox_old, retention: {keep: 1h, then: delete}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n")
	_, stop := k.streams(t)
	defer stop()
	got := invoke(t, k.env, "deadletter", "redrive", "--all")
	if said := got.stdout + got.stderr; strings.Contains(said, "not in table") || !strings.Contains(said, "no topic!") {
		t.Errorf("the row is there:\n%s", said)
	}
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox_old: deleted 1 row; 1 held back by dead letters\n", "")
	if left := queryText(t, k.db, "SELECT string_agg(aggregate_type, ' ') FROM outbox_old"); left != "no topic!" {
		t.Errorf("left: %q", left)
	}
	k.db.Exec(t, "UPDATE outbox_old SET aggregate_type = 'order'") // so that it makes a record
	invoke(t, k.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	k.arrived(t, 2)
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox_old: deleted 1 row\n", "")
}

// Two pipelines on one table need not have the same event id. The letter of the other one has no value, so
// that it needs the row.
func TestRetention_ALetterOfAnotherPipelineHoldsItsRow(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	letters := k.topic + "-letters"
	k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+letters)
	k.keepsHouse(t, "delete", "")
	other := *k.life
	slot := k.slot + "_b"
	other.env = append(append([]string{}, k.env...), "CDC_RELAY_POSTGRES_SLOT="+slot, "CDC_RELAY_POSTGRES_PUBLICATION="+slot, "CDC_RELAY_OUTBOX_COLUMNS_ID=aggregate_id",
		"CDC_RELAY_OUTBOX_TOPIC="+k.topic+"-others", "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=3KiB", "CDC_RELAY_RELAY_CHECKPOINT_TOPIC="+k.topic+"-b")
	k.setUp(t, "")
	invoke(t, other.env, "setup").want(t, exitOK, "", "")
	k.env = append(k.env, "CDC_RELAY_MAINTENANCE_ALSO_WAIT_FOR="+slot)
	_, stop := k.streams(t)
	defer stop()
	_, stopOther := other.start(t, nil)
	defer stopOther()
	k.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', gen_random_uuid(), 'x', jsonb_build_object('text', repeat('x', 9000)), now() - interval '2h')`)
	k.arrived(t, 1)
	k.await(t, "a letter", func() bool { return len(k.brokers.Read(t, letters)) == 1 })
	k.holdsAll(t, `its event id is of column "aggregate_id", and not of "id" as the mapping has it now`)
	invoke(t, other.env, "deadletter", "redrive", "--all", "--yes", "--set", "kafka.max_message_bytes=1MiB").want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 1 row\n", "")
}

// A row that the trigger of a cutover has marked was sent by nobody while its letter waits. A backfill of what
// has no mark says nothing of it, under whatever name the slot is made again.
func TestRetention_ALetterOfASlotThatIsGoneHoldsItsRow(t *testing.T) {
	t.Parallel()
	k, _ := withLetter(t)
	former := k.dropSlot(t, "_again")
	k.db.Exec(t, "ALTER TABLE outbox ADD COLUMN IF NOT EXISTS published_at timestamptz")
	k.db.Exec(t, "UPDATE outbox SET published_at = now()")
	invoke(t, k.env, "backfill", "--unpublished", "--yes").want(t, exitOK, "start `cdc-relay run`", "")
	_, stop := k.streams(t)
	defer stop()
	invoke(t, k.env, "retention").want(t, exitOK, "/"+former+", whose slot does not exist, waits: send or discard it", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 1 row; 1 held back by dead letters", "")
	if left := queryText(t, k.db, "SELECT string_agg(aggregate_type, ' ') FROM outbox"); left != "no topic!" {
		t.Errorf("left: %q", left)
	}
	invoke(t, k.env, "deadletter", "redrive", "--source", "all", "--all", "--discard", "--yes").want(t, exitOK, "", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 1 row\n", "")
}
