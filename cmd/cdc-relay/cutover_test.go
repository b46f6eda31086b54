package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// polls has a publisher send what has no mark, with a lock on the rows, until it is stopped.
func (k *keeper) polls(t *testing.T, topic string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	conn := k.db.Connect(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer client.Close()
		working := context.WithoutCancel(ctx)
		for ctx.Err() == nil {
			tx, err := conn.Begin(working)
			if err != nil {
				t.Error(err)
				return
			}
			rows, err := tx.Query(working, "SELECT id, aggregate_id, payload::text FROM outbox WHERE published_at IS NULL ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED")
			if err != nil {
				t.Error(err)
				return
			}
			var ids []int64
			var records []*kgo.Record
			for rows.Next() {
				var id int64
				var key, value string
				if err := rows.Scan(&id, &key, &value); err != nil {
					t.Error(err)
				}
				ids, records = append(ids, id), append(records, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)})
			}
			if err := client.ProduceSync(working, records...).FirstErr(); err != nil {
				t.Error(err)
			}
			if _, err := tx.Exec(working, "UPDATE outbox SET published_at = now() WHERE id = ANY ($1)", ids); err != nil {
				t.Error(err)
			}
			if err := tx.Commit(working); err != nil {
				t.Error(err)
			}
			if len(ids) == 0 {
				<-time.After(20 * time.Millisecond)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// writesSlowly inserts some hundred rows a second, until it is stopped, and then tells the last.
func (k *keeper) writesSlowly(t *testing.T) (last <-chan int, stop func()) {
	t.Helper()
	writing, stop := context.WithCancel(t.Context())
	conn := k.db.Connect(t)
	ended := make(chan int, 1)
	go func() {
		n := 0
		for ; writing.Err() == nil; n++ {
			if _, err := conn.Exec(t.Context(), `WITH a AS (SELECT pg_sleep(0.003)) INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', $1::int % 7, 'Placed', to_jsonb($1::int) FROM a`, n+1); err != nil {
				t.Error(err)
				break
			}
		}
		ended <- n
	}()
	return ended, stop
}

// Killed with SIGKILL wherever it is, there and back, it goes on with the next call: each row comes
// once, and the rows of a key in order.
func TestCutover_KilledGoesOn(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newOld(t, "18", how)
			k.db.Exec(t, "ALTER TABLE outbox ADD COLUMN published_at timestamptz")
			k.brokers.CreateTopic(t, "order-events", 1)
			stopPublisher := k.polls(t, "order-events")
			written, stopWriting := k.writesSlowly(t)
			random := rand.New(rand.NewPCG(1, 9))
			untilDone := func(args ...string) (kills int) {
				for ; ; kills++ {
					limit := time.Duration(200+random.IntN(900)+kills*300) * time.Millisecond
					if kills > 3 { // on a slow machine
						limit = time.Minute
					}
					within, cancel := context.WithTimeout(t.Context(), limit)
					program := exec.CommandContext(within, executable, args...) // SIGKILL at the end of within
					program.Env = append(slices.Clone(k.env), "HOME=/nonexistent", asProgram+"=1")
					out, err := program.CombinedOutput()
					killed := within.Err() != nil
					cancel()
					if err == nil {
						return kills
					}
					if !killed && program.ProcessState.ExitCode() != exitFailed && !strings.Contains(string(out), "is under way") && !strings.Contains(string(out), "streams from") && !strings.Contains(string(out), "holds the lock") {
						t.Fatalf("%v: %v\n%s", args, err, out)
					}
					released(t, k.db)
				}
			}
			there := untilDone("cutover", "--mark-new", "--yes", "--settle", "300ms")
			before := len(k.committed(t, "order-events"))
			k.runsUntil(t, "order-events", before+100)
			back := untilDone("cutover", "--back", "--yes")
			stopWriting()
			last := <-written
			k.await(t, "the publisher sends the rest", func() bool {
				return harness.Query[int64](t, k.db, "SELECT count(*) FROM outbox WHERE published_at IS NULL") == 0
			})
			stopPublisher()
			if there+back == 0 {
				t.Error("nothing was killed")
			}
			t.Logf("%d rows, killed %d times on the way there and %d back", last, there, back)
			records := k.committed(t, "order-events")
			if how == keeping["exactly_once"] {
				eachOnce(t, records, last)
				return
			}
			firsts := map[string]map[int]bool{} // a killed relay repeats what was in flight
			count := 0
			for key, list := range numbers(t, records) {
				firsts[key] = map[int]bool{}
				highest := 0
				for _, n := range list {
					if firsts[key][n] {
						continue
					}
					if firsts[key][n] = true; n < highest {
						t.Errorf("of key %s comes %d behind %d", key, n, highest)
					}
					highest, count = max(highest, n), count+1
				}
			}
			if count != last {
				t.Errorf("%d rows, want %d", count, last)
			}
		})
	}
}

// A role with the printed grants can do it. One without them gets an error that names them.
func TestCutover_PrintedGrantsAreEnough(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := newOld(t, version, keeping["detect_moved_slot"])
			k.db.Exec(t, "ALTER TABLE outbox ADD COLUMN published_at timestamptz")
			owner, role := harness.Unique(t, "owner"), harness.Unique(t, "least")
			k.db.Exec(t, "CREATE ROLE "+owner)
			k.db.Exec(t, fmt.Sprintf("GRANT USAGE ON SCHEMA public TO %s; REVOKE CREATE ON SCHEMA public FROM PUBLIC", owner))
			k.db.Exec(t, "ALTER TABLE outbox OWNER TO "+owner)
			defer func() {
				for _, name := range []string{role, owner} {
					k.db.Exec(t, "DROP OWNED BY "+name)
					k.db.Exec(t, "DROP ROLE "+name)
				}
			}()
			printed := invoke(t, k.env, "sql", "--for", "cutover", "--role", role)
			printed.want(t, exitOK, "GRANT %I TO", "")
			all := strings.ReplaceAll(printed.stdout, `\set ON_ERROR_STOP on`, "")
			i := strings.Index(all, "DO $$ BEGIN EXECUTE (SELECT format('GRANT")
			j := strings.LastIndex(all, "DO $$")
			j += strings.Index(all[j:], "\n")
			grants := strings.Split(strings.TrimSpace(all[i:j]), "\n")
			if len(grants) != 2 {
				t.Fatalf("printed are %q, want membership in the owner, and CREATE for the owner", grants)
			}
			k.db.Exec(t, all[:i]+all[j:])
			env := append(slices.Clone(k.env), "CDC_RELAY_POSTGRES_URL="+strings.Replace(k.db.URL, "postgres@", role+"@", 1))
			for _, missing := range []struct{ says, grant string }{{"is not a member of " + owner, grants[0]}, {owner + " has no CREATE on schema public", grants[1]}} {
				for _, flags := range [][]string{{"--watch", "0s"}, {"--yes", "--settle", "0s", "--watch", "0s"}} { // the plan says it, and no slot is made
					got := invoke(t, env, append([]string{"cutover", "--mark-new"}, flags...)...)
					got.want(t, exitRefused, "", missing.says)
					got.want(t, exitRefused, "", "sql --for cutover")
				}
				k.db.Exec(t, missing.grant)
			}
			if made := k.slots(t); made != "" {
				t.Errorf("there is %s", made)
			}
			invoke(t, env, "cutover", "--mark-new", "--watch", "0s").want(t, exitOK, "nothing was changed", "")
			invoke(t, env, "cutover", "--mark-new", "--yes", "--settle", "0s").want(t, exitOK, "start `cdc-relay run`", "")
			k.write(t, 1, 20)
			invoke(t, env, "cutover", "--mark-new").want(t, exitOK, "the cutover is complete", "")
			invoke(t, env, "explain", "--no-record").want(t, exitOK, "published: published_at", "")
			checkUp(t, env).want(t, "table.triggers", advice.OK, "trigger of a cutover")
			invoke(t, env, "cutover", "--back", "--yes").want(t, exitOK, "new rows are the publisher's", "")
			eachOnce(t, k.committed(t, "order-events"), 20)
			invoke(t, env, "cutover", "--back").want(t, exitOK, "there is nothing to take back", "")
		})
	}
}
