package main

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A slot of a relay that does not start holds back WAL until the disk is full.
func TestSetup_MakesNothingThatRunWouldRefuse(t *testing.T) {
	db, env := shop(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, a text, b text)`, "CDC_RELAY_POSTGRES_SLOT=refused", "CDC_RELAY_POSTGRES_PUBLICATION=refused")
	nothing := func(after string) {
		t.Helper()
		for _, sql := range []string{
			`SELECT 1 / (count(*) - 1) * 0 + 1 FROM pg_publication WHERE pubname = 'refused'`,
			`SELECT 1 / (count(*) - 1) * 0 + 1 FROM pg_replication_slots WHERE slot_name = 'refused'`,
			`SELECT 1 / (count(*) - 1) * 0 + 1 FROM pg_class WHERE relname = 'made'`,
		} {
			db.Exec(t, sql) // divides by zero where one is there
		}
		if t.Failed() {
			t.Fatalf("made by %s", after)
		}
	}
	run := invoke(t, env, "explain")
	run.want(t, exitUsage, "", "auto does not recognise table")
	for _, args := range [][]string{{"setup"}, {"setup", "--dry-run"}} {
		invoke(t, env, args...).want(t, exitUsage, "", "auto does not recognise table")
		nothing(args[0])
	}
	invoke(t, env, "setup", "--set", "outbox[0].columns.payload=c", "--set", "outbox[0].topic=x").want(t, exitUsage, "", `"c"`)
	nothing("setup with a column that is not there")
	invoke(t, env, "setup", "--create-table=outbox", "--set", "outbox.table=made", "--set", "outbox.columns.payload=c").want(t, exitUsage, "", `"c"`)
	nothing("setup --create-table")
}

// The slot comes last: `run` and `check` refuse these topics too.
func TestSetup_MakesNoSlotForTopicsThatRunWouldRefuse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		partitions int32
		policy     string
		env        func(topic string) []string
		says       string
	}{
		"compacted dead letters": {1, "compact", func(topic string) []string {
			return []string{"CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC=" + topic}
		}, "only the last would stay"},
		"three partitions of checkpoints": {3, "compact", func(topic string) []string {
			return []string{keeping["detect_moved_slot"], "CDC_RELAY_RELAY_CHECKPOINT_TOPIC=" + topic}
		}, "has 3 partitions and has to have one"},
		"checkpoints that are deleted": {1, "delete", func(topic string) []string {
			return []string{keeping["exactly_once"], "CDC_RELAY_RELAY_CHECKPOINT_TOPIC=" + topic}
		}, "has cleanup.policy=delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			topic := harness.Unique(t, "own")
			l.brokers.CreateTopic(t, topic, tt.partitions, "cleanup.policy", tt.policy)
			l.env = append(l.env, tt.env(topic)...)
			slot := strings.TrimPrefix(l.env[1], "CDC_RELAY_POSTGRES_SLOT=")
			for _, args := range [][]string{{"setup", "--create-table", "--dry-run"}, {"setup", "--create-table"}} {
				got := invoke(t, l.env, args...)
				got.want(t, exitRefused, "", tt.says)
				if strings.Contains(got.stderr, "start the relay") || strings.Contains(got.stderr, "start `cdc-relay run`") {
					t.Errorf("the relay would refuse the topic too:\n%s", got.stderr)
				}
				if n := harness.Query[int64](t, l.db, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+slot+"'"); n != 0 {
					t.Errorf("%v made the slot", args)
				}
			}
			invoke(t, l.env, "check").want(t, exitRefused, tt.says, "")
		})
	}
}
