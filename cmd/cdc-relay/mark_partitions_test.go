package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const markPartitions = "outbox: [{table: public.outbox, mark: {column: published_at}, rejects: {error: last_error}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n"

// The proof is that of the table which is streamed, and the rows are those of its partitions.
func TestMark_MarksPartitionsOfWhatIsDelivered(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *harness.Database) {
		k := partitioned(t, db, "drop_partition", "")
		db.Exec(t, "ALTER TABLE outbox ADD last_error text")
		k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+k.topic+"-letters", "CDC_RELAY_MAINTENANCE_WAIT=1s")
		k.configure(t, markPartitions)
		invoke(t, k.env, "setup").want(t, exitOK, "", "")
		k.old(t, "order", 3)
		k.insert(t, 2)
		invoke(t, k.env, "mark", "--once").want(t, exitFailed, "marked 0 rows", "(reason slot_behind)")
		if n := k.marked(t); n != 0 {
			t.Fatalf("%d rows are marked that nobody has delivered", n)
		}

		k.env = append(k.env, "CDC_RELAY_MAINTENANCE_WAIT=20s")
		checkUp(t, k.env).want(t, "table.mark", advice.OK, "delivered rows of public.outbox are marked")
		_, stop := k.streams(t)
		defer stop()
		k.old(t, "no topic!", 1)
		k.insert(t, 1)
		k.arrived(t, 6)
		invoke(t, k.env, "mark").want(t, exitOK, "unmarked   7 rows, the oldest of ", "")
		invoke(t, k.env, "mark", "--once").want(t, exitOK, "public.outbox: marked 6 rows; 1 held back by dead letters; 1 show their dead letter now\n", "")
		if left := queryText(t, db, "SELECT string_agg(concat_ws(' ', tableoid::regclass, aggregate_type, regexp_replace(last_error, '[0-9]+/[0-9]+', 'n/n')), ', ') FROM outbox WHERE published_at IS NULL"); left != "outbox_old no topic! route, dead letter n/n" {
			t.Errorf("without a mark: %q", left)
		}
		db.Exec(t, "CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT; INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'later', 'x', '{}', now() + interval '9 days')")
		k.arrived(t, 7)
		invoke(t, k.env, "mark", "--once").want(t, exitOK, "public.outbox: marked 1 row; 1 held back by dead letters\n", "")
		if n := k.marked(t); n != 7 {
			t.Errorf("%d rows are marked", n)
		}
		db.Exec(t, "ALTER TABLE outbox_rest SET UNLOGGED; INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'never', 'x', '{}', now() + interval '9 days')")
		if invoke(t, k.env, "mark", "--once"); k.marked(t) != 7 {
			t.Error("a row of an unlogged partition, which is in no stream, is marked")
		}
	})
}

// An unlogged partition is left alone and named, and rows of the others are marked.
func TestMark_LeavesAnUnloggedPartitionAlone(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, db *harness.Database) {
		k := partitioned(t, db, "drop_partition", "")
		k.configure(t, "outbox: [{table: public.outbox, mark: {column: published_at}}]\nmaintenance: {in_run: false, wait: 20s}\n")
		db.Exec(t, strings.Replace(daysSQL("outbox_older", 6, 4), "CREATE TABLE", "CREATE UNLOGGED TABLE", 1)+daysSQL("outbox_oldest", 9, 7))
		_, stop := k.streams(t)
		defer stop()
		db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT 'order', 'a', 'x', '{}', date_trunc('day', now(), 'UTC') - n * interval '1 day' FROM unnest(ARRAY[5, 8]) n`)
		k.insert(t, 2)
		k.arrived(t, 3)
		const says = "partition public.outbox_older is unlogged"
		invoke(t, k.env, "mark").want(t, exitOK, says, "")
		checkUp(t, k.env).want(t, "table.mark", advice.Warn, says)
		invoke(t, k.env, "mark", "--once").want(t, exitRefused, "marked 3 rows\n", says)
		if left := queryText(t, db, "SELECT string_agg(tableoid::regclass::text, ' ') FROM outbox WHERE published_at IS NULL"); left != "outbox_older" {
			t.Errorf("without a mark: %s", left)
		}
	})
}

// A mark in the key by which a table is divided would send its row again.
func TestMark_RefusesThePartitionKey(t *testing.T) {
	t.Parallel()
	k := partitioned(t, harness.Postgres(t, "18"), "drop_partition", "")
	k.db.Exec(t, "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey; ALTER TABLE outbox ADD sent boolean; CREATE TABLE outbox_later PARTITION OF outbox FOR VALUES FROM ('2200-01-01') TO ('2201-01-01') PARTITION BY LIST (sent); CREATE TABLE outbox_later_rest PARTITION OF outbox_later DEFAULT")
	k.configure(t, "outbox: [{table: public.outbox, mark: {column: sent}}]\nmaintenance: {in_run: false, wait: 1s}\n")
	invoke(t, k.env, "mark", "--once").want(t, exitUsage, "", `column "sent" of table public.outbox_later_rest is part of a partition key`)
}

// Beside a stream partitions go while marks are set.
func TestRun_MarksPartitionsBesideTheStream(t *testing.T) {
	t.Parallel()
	k := partitioned(t, harness.Postgres(t, "18"), "drop_partition", "")
	k.configure(t, "outbox: [{table: public.outbox, mark: {column: published_at}}]\nmaintenance: {wait: 5s}\n")
	url, stop := k.streams(t)
	k.old(t, "order", 3)
	k.insert(t, 4)
	k.await(t, "rows are marked", func() bool { return k.marked(t) == 7 })
	k.db.Exec(t, "DROP TABLE outbox_old")
	k.insert(t, 5)
	k.await(t, "later rows are marked", func() bool { return k.marked(t) == 9 })
	k.await(t, "the job counts them", func() bool { // after their pass
		var s status.Status
		err := json.Unmarshal([]byte(invoke(t, nil, "status", "--url", url, "--json").stdout), &s)
		return err == nil && len(s.Maintenance) == 1 && s.Maintenance[0].Rows == 12 && s.Maintenance[0].State != status.JobPaused
	})
	stop()
}

// A publication of all tables has a partition also once it is detached. What is written to it from then on is
// another table's, and sent by nobody.
func TestRun_MarksNoRowOfAPartitionThatWasDetached(t *testing.T) {
	t.Parallel()
	k := partitionedIn(t, harness.Postgres(t, "18"), "ALL TABLES", "drop_partition", "")
	k.configure(t, "outbox: [{table: public.outbox, mark: {column: published_at}}]\nmaintenance: {wait: 5s}\n")
	_, stop := k.streams(t)
	defer stop()
	k.old(t, "order", 1)
	k.insert(t, 1)
	k.await(t, "rows are marked", func() bool { return k.marked(t) == 2 })
	k.db.Exec(t, "ALTER TABLE outbox DETACH PARTITION outbox_old; INSERT INTO outbox_old (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('order', 'a', 'x', '{}', "+ago+")")
	for want := int64(2); want < 4; want++ { // the second one in a pass that began afterwards
		k.insert(t, 1)
		k.await(t, "later rows are marked", func() bool { return k.marked(t) == want })
	}
	if n := harness.Query[int64](t, k.db, "SELECT count(*) FROM outbox_old WHERE published_at IS NOT NULL"); n != 1 {
		t.Errorf("%d rows of the table that was a partition are marked, and one was delivered", n)
	}
}
