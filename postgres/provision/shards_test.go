package provision_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/postgres/preflight/preflighttest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/teardown"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
)

func shardConfig(t *testing.T, db *harness.Database, count int, key string, tables ...wal.Table) postgres.Config {
	t.Helper()
	name := harness.Unique(t, "shard")
	return postgres.Config{URL: db.URL, Slot: name, Publication: name, Tables: tables, Shard: postgres.Shard{
		Count: count, Slot: name, Publication: name, Key: func(*wal.Relation) (string, error) { return key, nil },
	}}.OfShard(0)
}

// streamFrom opens a slot that somebody else may have had a moment ago.
func streamFrom(t *testing.T, cfg postgres.Config) *replication.Stream {
	t.Helper()
	s, err := replication.Open(t.Context(), cfg, replication.Options{}, zerolog.Nop())
	for began := time.Now(); err != nil && postgres.KindOf(err) == fault.KindBusy && time.Since(began) < time.Minute; {
		<-time.After(20 * time.Millisecond)
		s, err = replication.Open(t.Context(), cfg, replication.Options{}, zerolog.Nop())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inShards reads what each shard's slot has, as the texts of column n.
func inShards(t *testing.T, db *harness.Database, cfg postgres.Config, n int) [][]string {
	t.Helper()
	all := make([][]string, len(cfg.Shards()))
	for i, shard := range cfg.Shards() {
		conn := db.Connect(t)
		rows, err := conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`, shard.Slot, `"`+shard.Publication+`"`)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var data []byte
			if err := rows.Scan(&data); err != nil {
				t.Fatal(err)
			}
			message, err := pglogrepl.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if insert, ok := message.(*pglogrepl.InsertMessage); ok {
				column := insert.Tuple.Columns[n]
				text := string(column.Data)
				if column.DataType == 'n' {
					text = "NULL"
				}
				all[i] = append(all[i], text)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Every type that may be a key: each row is in one shard, all rows of a key in the
// same, and the server's text of the filter is known again.
func TestShards_HaveEachRowOnce(t *testing.T) {
	keys := map[string]string{
		"text": "'k' || i % 40", "varchar(50)": "'k' || i % 40", "char(9)": "'k' || i % 40", "name": "('k' || i % 40)::name",
		"uuid": "md5((i % 40)::text)::uuid", "smallint": "i % 40 - 20", "integer": "i % 40 - 20", "bigint": "(i % 40 - 20) * 10000000000",
		"numeric": "(i % 40 - 20) / 4.0", "bytea": "decode(md5((i % 40)::text), 'hex')", `text COLLATE "C"`: "'k' || i % 40",
	}
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		for kind, value := range keys {
			if kind == "bytea" && db.Major() < "18" {
				continue
			}
			table := harness.Unique(t, "keys")
			db.Exec(t, fmt.Sprintf(`CREATE TABLE %s (id bigserial PRIMARY KEY, "The ""key""" %s)`, table, kind))
			cfg := shardConfig(t, db, 3, `The "key"`, wal.Table{Schema: "public", Name: table})
			if _, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{}); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if _, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{}); err != nil {
				t.Fatalf("%s, for the second time: %v", kind, err)
			}
			db.Exec(t, fmt.Sprintf(`INSERT INTO %s ("The ""key""") SELECT %s FROM generate_series(1, 400) i`, table, value))
			db.Exec(t, fmt.Sprintf(`INSERT INTO %s ("The ""key""") SELECT NULL FROM generate_series(1, 5)`, table))
			seen, rows := map[string]int{}, 0
			for i, shard := range inShards(t, db, cfg, 1) {
				if len(shard) == 0 {
					t.Errorf("%s: shard %d has nothing", kind, i)
				}
				for _, key := range shard {
					if in, known := seen[key]; known && in != i {
						t.Errorf("%s: key %q is in shards %d and %d", kind, key, in, i)
					}
					seen[key] = i
					rows++
				}
			}
			if rows != 405 || len(seen) != 41 {
				t.Errorf("%s: %d rows of %d keys, want 405 of 41", kind, rows, len(seen))
			}
			if _, err := teardown.Run(t.Context(), cfg, true); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestShards_OfAPartitionedTable(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		db.Exec(t, `CREATE TABLE events (id bigint, key text, day int) PARTITION BY LIST (day);
			CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
			CREATE TABLE events_2 (day int, key text, gone int, id bigint);
			ALTER TABLE events_2 DROP COLUMN gone;
			ALTER TABLE events ATTACH PARTITION events_2 FOR VALUES IN (2)`)
		cfg := shardConfig(t, db, 2, "key", wal.Table{Schema: "public", Name: "events"})
		if _, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{}); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `INSERT INTO events SELECT i, 'k' || i % 30, 1 + i % 2 FROM generate_series(1, 300) i`)
		var all []string
		for _, shard := range inShards(t, db, cfg, 0) {
			all = append(all, shard...)
		}
		slices.Sort(all)
		if rows := len(all); rows != 300 || len(slices.Compact(all)) != 300 {
			t.Errorf("%d rows of 300, each once", rows)
		}
	})
}

func TestSetup_OfShards(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		cfg := shardConfig(t, db, 4, "aggregateType", wal.Table{Schema: "public", Name: "outbox"})
		create := func(wal.Table) (string, error) { return postgrestest.OutboxSQL, nil }
		dry, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{DryRun: true, CreateTable: create})
		if err != nil || len(dry.Steps) != 1 || !strings.Contains(strings.Join(dry.Warnings, "\n"), "once the tables exist") {
			t.Fatalf("dry run without the table: %+v, %v", dry, err)
		}
		report, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{CreateTable: create})
		if err != nil || len(report.Steps) != 9 {
			t.Fatalf("%+v, %v", report, err)
		}
		if n := harness.Query[int](t, db, `SELECT count(DISTINCT confirmed_flush_lsn)::int FROM pg_replication_slots WHERE slot_name LIKE $1`, cfg.Shard.Slot+`%`); n != 1 {
			t.Errorf("the slots begin at %d positions", n)
		}
		if db.Major() >= "17" {
			if n := harness.Query[int](t, db, `SELECT count(*)::int FROM pg_replication_slots WHERE failover AND slot_name LIKE $1`, cfg.Shard.Slot+`%`); n != 4 {
				t.Errorf("%d of 4 slots survive a failover", n)
			}
		}

		// An earlier run was cut short, and the slots that it made have waited.
		db.Exec(t, `SELECT pg_drop_replication_slot($1)`, cfg.OfShard(2).Slot)
		db.Exec(t, `INSERT INTO outbox (id, "aggregateType") SELECT gen_random_uuid(), i FROM generate_series(1, 40) i`)
		if _, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{}); err != nil {
			t.Fatal(err)
		}
		rows := 0
		for _, shard := range inShards(t, db, cfg, 0) {
			rows += len(shard)
		}
		if rows != 40 {
			t.Errorf("%d rows of 40", rows)
		}

		stream := streamFrom(t, cfg.OfShard(3))
		if err := stream.Close(t.Context(), stream.StartLSN()); err != nil {
			t.Fatal(err)
		}
		report1 := preflight.Check(t.Context(), cfg)
		preflighttest.WantFinding(t, report1, "postgres.shards", advice.OK, "4 of 4 slots")
		preflighttest.WantFinding(t, report1, "publication.row_filter", advice.OK, cfg.OfShard(3).Publication)

		// Each thing that is wrong with a shard.
		probe := watch.NewProbe(cfg.OfShard(1))
		defer probe.Close()
		db.Exec(t, fmt.Sprintf(`ALTER PUBLICATION %s SET TABLE outbox WHERE (1 = 1)`, cfg.OfShard(1).Publication))
		_, err = replication.Open(t.Context(), cfg.OfShard(1), replication.Options{}, zerolog.Nop())
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "row filter on public.outbox", "shard 1 of 4")
		_, err = provision.Setup(t.Context(), cfg, provision.SetupOptions{})
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "row filter on public.outbox")
		look, err := probe.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		postgrestest.WantError(t, look.Drift, fault.KindDrift, fault.ReasonShards, "shard 1 of 4")
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication.row_filter", advice.Fail, "shard 1 of 4")
		db.Exec(t, fmt.Sprintf(`ALTER PUBLICATION %s SET TABLE outbox`, cfg.OfShard(0).Publication))
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "publication.row_filter", advice.Fail, "no row filter", "shard 0 of 4")

		other := cfg
		other.Shard.Count = 2
		other = other.OfShard(0)
		_, err = provision.Setup(t.Context(), other, provision.SetupOptions{})
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "one of 4 shards, and postgres.shards is 2", "--reshard-from 4")
		_, err = replication.Open(t.Context(), other, replication.Options{}, zerolog.Nop())
		postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "--reshard-from 4")
		preflighttest.WantFinding(t, preflight.Check(t.Context(), other), "postgres.shards", advice.Fail, "postgres.shards is 2")

		steps, err := teardown.Run(t.Context(), cfg, true)
		if err != nil || len(steps) != 8 || !steps[3].Exists || steps[3].Object != "slot" || !steps[7].Exists {
			t.Errorf("%+v, %v", steps, err)
		}
		preflighttest.WantFinding(t, preflight.Check(t.Context(), cfg), "slot", advice.Fail, cfg.OfShard(3).Slot)
	})
}

// deliver plays the relay of one shard: it takes what there is and confirms it.
func deliver(t *testing.T, db *harness.Database, shard postgres.Config, into map[string][]int) {
	t.Helper()
	conn := db.Connect(t)
	rows, err := conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`, shard.Slot, `"`+shard.Publication+`"`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			t.Fatal(err)
		}
		message, err := pglogrepl.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if insert, ok := message.(*pglogrepl.InsertMessage); ok {
			var n int
			if _, err := fmt.Sscan(string(insert.Tuple.Columns[0].Data), &n); err != nil {
				t.Fatal(err)
			}
			key := string(insert.Tuple.Columns[1].Data)
			into[key] = append(into[key], n)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// The change from one number of shards to another is cut short after each of its
// steps, and run again. Rows are written all along.
func TestReshard_LosesNothingWhereverItIsCutShort(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		table := wal.Table{Schema: "public", Name: "moved"}
		db.Exec(t, `CREATE TABLE moved (n bigserial PRIMARY KEY, key text)`)
		cfg := shardConfig(t, db, 1, "key", table)
		if _, err := provision.Setup(t.Context(), cfg, provision.SetupOptions{}); err != nil {
			t.Fatal(err)
		}
		delivered, write := map[string][]int{}, func() { db.Exec(t, `INSERT INTO moved (key) SELECT 'k' || i % 7 FROM generate_series(1, 20) i`) }
		for _, count := range []int{3, 2, 1, 2} {
			next, from := cfg, max(1, cfg.Shard.Count)
			next.Shard.Count = count
			next.Slot, next.Publication = next.Shard.Slot, next.Shard.Publication
			next = next.OfShard(0)
			for steps := 1; ; steps++ {
				write()
				if reshardUpTo(t, db, next, cfg, from, steps, delivered) {
					break
				}
				if steps > 30 {
					t.Fatal("it never ends")
				}
			}
			write()
			cfg = next
			for _, shard := range cfg.Shards() {
				deliver(t, db, shard, delivered)
			}
			complete(t, db, delivered)
		}
	})
}

// reshardUpTo cuts the command short after a number of steps, and reports whether it
// came to its end before. The old relay works as long as it may.
func reshardUpTo(t *testing.T, db *harness.Database, next, old postgres.Config, from, steps int, delivered map[string][]int) bool {
	t.Helper()
	ctx, cut := context.WithTimeout(t.Context(), time.Minute)
	defer cut()
	_, err := provision.Reshard(ctx, next, from, provision.ReshardOptions{
		OnStep: func(step provision.Step) {
			if steps--; steps == 0 {
				cut()
			}
		},
		OnWait: func(string) {
			for i, shard := range old.Shards() { // of several, one stays behind
				deliver(t, db, shard, delivered)
				if i == 0 {
					db.Exec(t, `INSERT INTO moved (key) SELECT 'k' || i % 7 FROM generate_series(1, 20) i`)
				}
			}
		},
	})
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return err == nil
}

// complete requires each key's rows in order, apart from rows that came again with all
// that followed them.
func complete(t *testing.T, db *harness.Database, delivered map[string][]int) {
	t.Helper()
	for _, key := range []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6"} {
		want := harness.Query[[]int](t, db, `SELECT array_agg(n::int ORDER BY n) FROM moved WHERE key = $1`, key)
		place := map[int]int{}
		for i, n := range want {
			place[n] = i
		}
		last := -1
		for _, n := range delivered[key] {
			at, known := place[n]
			if !known || at > last+1 {
				t.Fatalf("key %s: row %d comes after number %d of %v; delivered %v", key, n, last, want, delivered[key])
			}
			last = at
		}
		if last != len(want)-1 {
			t.Fatalf("key %s: %d of %d rows", key, last+1, len(want))
		}
	}
}

func TestReshard_Refuses(t *testing.T) {
	db := harness.Postgres(t, "18")
	db.Exec(t, `CREATE TABLE moved (n bigserial PRIMARY KEY, key text)`)
	cfg := shardConfig(t, db, 2, "key", wal.Table{Schema: "public", Name: "moved"})
	for from, want := range map[int]string{0: "cannot change", 2: "cannot change", 65: "cannot change", 1: "0 of 1 slot of 1 shard exist"} {
		if _, err := provision.Reshard(t.Context(), cfg, from, provision.ReshardOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("from %d: %v, want %q", from, err, want)
		}
	}
	one := undivided(t, cfg)

	// A transaction from before the publications, whose rows would be decoded without.
	open := db.Connect(t)
	if _, err := open.Exec(t.Context(), `BEGIN; INSERT INTO moved (key) VALUES ('early')`); err != nil {
		t.Fatal(err)
	}
	refused := func(wait time.Duration, says string) error { // once nothing else is waited for, such as a transaction of somebody else
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			_, err := provision.Reshard(t.Context(), cfg, 1, provision.ReshardOptions{Wait: wait})
			if err == nil || strings.Contains(err.Error(), says) || time.Now().After(deadline) {
				return err
			}
		}
	}
	_, err := provision.Reshard(t.Context(), cfg, 1, provision.ReshardOptions{Wait: time.Millisecond})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "transactions that began before", "run the command again")
	if _, err := open.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	postgrestest.WantError(t, refused(2*time.Second, "confirmed past"), fault.KindRefused, fault.ReasonShards, "confirmed past", one.Slot)
	deliver(t, db, one, map[string][]int{})

	stream := streamFrom(t, one)
	batches := make(chan *wal.Batch, 100)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- stream.Run(ctx, batches, stream.Received) }()
	err = refused(3*time.Second, "stop every relay") // the stream has to confirm within the wait
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "stop every relay with 1 shard")
	stop()
	<-ended
	if err := stream.Close(t.Context(), stream.Received()); err != nil {
		t.Fatal(err)
	}
	if _, err := provision.Reshard(t.Context(), cfg, 1, provision.ReshardOptions{Wait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	_, err = replication.Open(t.Context(), one, replication.Options{}, zerolog.Nop())
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "one of 2 shards, and postgres.shards is 1")
}

// A transaction that began to write while the publications were being made, which may
// take as long as a VACUUM or CREATE INDEX CONCURRENTLY of the table does, is waited for too.
func TestReshard_OutlivesWhoBeganDuringThePublications(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		db.Exec(t, `CREATE TABLE moved (n bigserial PRIMARY KEY, key text)`)
		next := shardConfig(t, db, 2, "key", wal.Table{Schema: "public", Name: "moved"})
		one := undivided(t, next)
		lock, writer := db.Connect(t), db.Connect(t)
		if _, err := lock.Exec(t.Context(), `BEGIN; LOCK TABLE moved IN SHARE UPDATE EXCLUSIVE MODE`); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := provision.Reshard(t.Context(), next, 1, provision.ReshardOptions{Wait: time.Second})
			ended <- err
		}()
		for harness.Query[int](t, db, `SELECT count(*)::int FROM pg_locks WHERE NOT granted AND relation = 'moved'::regclass`) == 0 {
			runtime.Gosched() // until the publications wait for the lock
		}
		if _, err := writer.Exec(t.Context(), `BEGIN; INSERT INTO moved (key) VALUES ('early')`); err != nil {
			t.Fatal(err)
		}
		if _, err := lock.Exec(t.Context(), `COMMIT`); err != nil {
			t.Fatal(err)
		}
		postgrestest.WantError(t, <-ended, fault.KindRefused, fault.ReasonShards, "transactions that began before")
		if _, err := writer.Exec(t.Context(), `COMMIT`); err != nil {
			t.Fatal(err)
		}
		all := map[string][]int{}
		if _, err := provision.Reshard(t.Context(), next, 1, provision.ReshardOptions{Wait: time.Minute, OnWait: func(string) { deliver(t, db, one, all) }}); err != nil {
			t.Fatal(err)
		}
		for _, shard := range next.Shards() {
			deliver(t, db, shard, all)
		}
		if len(all["early"]) == 0 {
			t.Error("the row of the transaction is in neither generation")
		}
	})
}

// undivided sets up what a configuration of several shards had before it was divided.
func undivided(t *testing.T, next postgres.Config) postgres.Config {
	t.Helper()
	one := next
	one.Shard.Count, one.Slot, one.Publication = 1, next.Shard.Slot, next.Shard.Publication
	if _, err := provision.Setup(t.Context(), one, provision.SetupOptions{}); err != nil {
		t.Fatal(err)
	}
	return one
}

// A server without room for the new slots is told before the relay is stopped, and
// copies that were made before the room was gone do not keep it from going on.
func TestReshard_NeedsRoom(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"max_replication_slots": "6"}})
	db.Exec(t, `CREATE TABLE moved (n bigserial PRIMARY KEY, key text)`)
	next := shardConfig(t, db, 3, "key", wal.Table{Schema: "public", Name: "moved"})
	one := undivided(t, next)
	fill := func(leave int) {
		db.Exec(t, fmt.Sprintf(`SELECT pg_create_physical_replication_slot('other' || n || '_%d') FROM generate_series(1,
			current_setting('max_replication_slots')::int - (SELECT count(*)::int FROM pg_replication_slots) - %[1]d) n`, leave))
	}
	fill(3)
	_, err := provision.Reshard(t.Context(), next, 1, provision.ReshardOptions{Wait: time.Minute, OnWait: func(string) {
		deliver(t, db, one, map[string][]int{})
		fill(2) // somebody else takes one
	}})
	if err == nil || !strings.Contains(err.Error(), "slots are in use") {
		t.Errorf("%v", err)
	}
	if n := harness.Query[int](t, db, `SELECT count(*)::int FROM pg_replication_slots WHERE slot_name LIKE $1`, next.Shard.Slot+`%`); n != 1 {
		t.Errorf("%d slots of the pipeline, want the old one alone", n)
	}
	_, err = provision.Reshard(t.Context(), next, 1, provision.ReshardOptions{Wait: time.Minute})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonShards, "2 slots free, and 3 needed", "max_replication_slots")
}

// A commit that is not flushed yet counts: the old slot has to be past it.
func TestReshard_WaitsForWhatIsNotFlushed(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"wal_writer_delay": "10s"}})
	db.Exec(t, `CREATE TABLE moved (n bigserial PRIMARY KEY, key text)`)
	next := shardConfig(t, db, 2, "key", wal.Table{Schema: "public", Name: "moved"})
	one := undivided(t, next)
	writer := db.Connect(t)
	if _, err := writer.Exec(t.Context(), `SET synchronous_commit = off; BEGIN; INSERT INTO moved (key) VALUES ('early')`); err != nil {
		t.Fatal(err)
	}
	all := map[string][]int{}
	committed := false
	for try := range 10 {
		_, err := provision.Reshard(t.Context(), next, 1, provision.ReshardOptions{Wait: 2 * time.Second, OnWait: func(what string) {
			if !committed && strings.Contains(what, "transactions that began before") {
				committed = true
				if _, err := writer.Exec(t.Context(), `COMMIT`); err != nil {
					t.Error(err)
				}
				return
			}
			if try > 0 {
				db.Exec(t, `SELECT txid_current()`) // its commit flushes what is before it
			}
			deliver(t, db, one, all)
		}})
		if err == nil {
			break
		}
		if postgres.Reason(err) != fault.ReasonShards || try == 9 {
			t.Fatal(err)
		}
	}
	for _, shard := range next.Shards() {
		deliver(t, db, shard, all)
	}
	if !committed || len(all["early"]) == 0 {
		t.Errorf("committed %t; the row is in neither generation", committed)
	}
}
