package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The tests of this file promote a standby under what works beside the stream. One kind of
// standby has the slots, the other one has not.

// promotable is a table of numbered rows on a primary that has a standby.
type promotable struct {
	*relaytest.Pipeline
	old, next *harness.Database
	synced    bool // the standby keeps the slots
}

// eachStandby plays with a standby that has no slots, and where the server can do it with one that has.
// The short form leaves out half of what a version does without slots.
func eachStandby(t *testing.T, test func(t *testing.T, version, guarantee string, synced bool)) {
	t.Helper()
	for i, version := range harness.Versions() {
		for _, synced := range []bool{false, true} {
			if synced && version < "17" {
				continue
			}
			for j, guarantee := range []string{"guarantee: exactly_once", "detect_moved_slot: true"} {
				if !synced && harness.Left(i, j) {
					continue
				}
				t.Run(fmt.Sprintf("postgres%s %s, slots on the standby %t", version, guarantee, synced), func(t *testing.T) {
					t.Parallel()
					test(t, version, guarantee, synced)
				})
			}
		}
	}
}

func newPromotable(t *testing.T, version, guarantee string, synced bool, outbox, more string) *promotable {
	t.Helper()
	p := &promotable{synced: synced}
	var both *harness.Database
	if synced {
		p.old, p.next, both = syncedPair(t, version)
	} else {
		p.old, p.next, both = pair(t, version, nil, nil)
	}
	p.Pipeline = relaytest.New(t, both, harness.Kfake(t, kfakeDefault), []string{"{table: public.outbox, preset: outbox" + outbox + "}"},
		more, "relay: {checkpoint_topic: positions, "+guarantee+"}")
	p.old.Exec(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
		event_type text NOT NULL, payload jsonb, created_at timestamptz DEFAULT now(), published_at timestamptz)`)
	p.Brokers.CreateTopic(t, "order-events", 1)
	return p
}

// write inserts rows of five keys, whose payloads are their numbers. They were written so long ago.
func (p *promotable) write(t *testing.T, from, to int, ago string) {
	t.Helper()
	p.DB.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
		SELECT 'order', n % 5, 'x', to_jsonb(n), now() - $3::text::interval FROM generate_series($1::int, $2) n`, from, to, ago)
}

// failOver ends the primary and promotes the standby, which has everything.
func (p *promotable) failOver(t *testing.T) {
	t.Helper()
	end := relaytest.LSN(t, p.old, "SELECT pg_current_wal_lsn()::text")
	relaytest.Eventually(t, "the standby has everything", func() (bool, string) {
		at := relaytest.LSN(t, p.next, "SELECT pg_last_wal_replay_lsn()::text")
		return at >= end, at.String()
	})
	if err := p.old.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	p.next.Exec(t, "SELECT pg_promote()")
	p.DB = p.next
}

// lags has the standby stand still, until awaitHeld. A slot that confirms nothing is synchronised only to a
// standby that is not ahead of it.
func (p *promotable) lags(t *testing.T) {
	t.Helper()
	if !p.synced {
		return
	}
	p.next.Exec(t, "SELECT pg_wal_replay_pause()")
	relaytest.Eventually(t, "the standby stands still", func() (bool, string) {
		state := harness.Query[string](t, p.next, "SELECT pg_get_wal_replay_pause_state()")
		return state == "paused", state
	})
}

// awaitHeld waits until a slot that confirms nothing is on the standby.
func (p *promotable) awaitHeld(t *testing.T, slot string) {
	t.Helper()
	if !p.synced {
		return
	}
	syncSlots(t, p.next, "on")
	relaytest.Eventually(t, "the standby begins with the slot", func() (bool, string) {
		return harness.Query[bool](t, p.next, "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = $1", slot), p.next.Server.Log()
	})
	p.next.Exec(t, "SELECT pg_wal_replay_resume()")
	awaitSlotSynced(t, p.old, p.next, slot)
}

// keeps synchronises a slot that confirms nothing to the standby, and reports whether the standby took it.
// The standby needs a consistent snapshot between the slot's restart position and its confirmed position,
// and no transaction since the slot was made. Such a slot stays as it is, so where it is refused only a new
// one helps.
func (p *promotable) keeps(t *testing.T, slot string) bool {
	t.Helper()
	at := relaytest.LSN(t, p.old, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", slot)
	relaytest.Eventually(t, "the standby has the slot's position", func() (bool, string) {
		replayed := relaytest.LSN(t, p.next, "SELECT pg_last_wal_replay_lsn()::text")
		return replayed >= at, replayed.String()
	})
	for range 3 {
		p.old.Exec(t, "SELECT pg_log_standby_snapshot()")
		p.next.Exec(t, "SELECT pg_sync_replication_slots()")
		if isSynced(t, p.next, slot) {
			return true
		}
	}
	return false
}

// sends waits until a backfill has sent so many rows.
func (p *promotable) sends(t *testing.T, backfill *relaytest.Process, rows int) {
	t.Helper()
	relaytest.Eventually(t, "some rows are sent", func() (bool, string) {
		list, _ := p.arrived(t)
		return len(list) >= rows, backfill.Output()
	})
}

func (p *promotable) rows(t *testing.T) int64 {
	t.Helper()
	return harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox")
}

// ends has a command end with a code.
func (p *promotable) ends(t *testing.T, code int, verb ...string) string {
	t.Helper()
	process := p.Exec(t, verb...)
	if got := process.Wait(t); got != code {
		t.Fatalf("%v ended with %d, want %d: %s", verb, got, code, process.Output())
	}
	return process.Output()
}

// streams runs a relay until everything is confirmed.
func (p *promotable) streams(t *testing.T) {
	t.Helper()
	r := p.Start(t)
	r.AwaitStreaming(t)
	p.AwaitCaughtUp(t)
	r.Stop(t)
}

// arrived are the numbers that consumers of committed records see, and how many of them a publisher sent.
func (p *promotable) arrived(t *testing.T) (list []int, published int) {
	t.Helper()
	for _, r := range p.Brokers.Read(t, "order-events") {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
		if slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "by" }) {
			published++
		}
	}
	return list, published
}

// complete holds that 1 to n are there, the first ones of each key in order.
func (p *promotable) complete(t *testing.T, n int) (duplicates int) {
	t.Helper()
	list, _ := p.arrived(t)
	seen, last := map[int]bool{}, map[int]int{}
	for _, v := range list {
		if seen[v] {
			continue
		}
		if seen[v] = true; v < last[v%5] {
			t.Errorf("of key %d comes %d behind %d", v%5, v, last[v%5])
		}
		last[v%5] = v
	}
	for v := 1; v <= n; v++ {
		if !seen[v] {
			t.Fatalf("%d is missing, of %d there are %d", v, n, len(seen))
		}
	}
	if len(seen) != n {
		t.Errorf("%d rows arrived, and %d were committed", len(seen), n)
	}
	return len(list) - len(seen)
}

// A standby is promoted while a retention waits for the slot. Nothing goes but what a relay has
// delivered from the new primary's slot, and nothing at all where that slot was made anew.
func TestRetention_PromotedStandbyKeepsWhatIsNotDelivered(t *testing.T) {
	t.Parallel()
	eachStandby(t, func(t *testing.T, version, guarantee string, synced bool) {
		p := newPromotable(t, version, guarantee, synced, ", retention: {keep: 1h, then: delete}", "maintenance: {in_run: false, wait: 1s, max_rows_per_second: 0}")
		p.ends(t, 0, "setup")
		r := p.Start(t)
		r.AwaitStreaming(t)
		p.write(t, 1, 500, "2h")
		p.AwaitCaughtUp(t)
		if synced {
			awaitSynced(t, p.Pipeline, p.old, p.next)
		}
		r.Stop(t)
		p.write(t, 501, 800, "2h") // and nobody delivers them
		waiting := p.Exec(t, "retention", "--once", "--set", "maintenance.wait=10m")
		looks := map[string]bool{} // at the slot, by when they began
		relaytest.Eventually(t, "it has named rows and waits", func() (bool, string) {
			looks[harness.Query[string](t, p.DB, "SELECT coalesce(max(query_start)::text, '') FROM pg_stat_activity WHERE application_name = 'cdc-relay maintenance' AND query LIKE '%confirmed_flush_lsn%'")] = true
			return len(looks) > 5, waiting.Output()
		})
		p.failOver(t)
		if code := waiting.Wait(t); code != 1 {
			t.Errorf("the one that waited ended with %d: %s", code, waiting.Output())
		}
		if n := p.rows(t); n != 800 {
			t.Fatalf("%d of 800 rows are left", n)
		}
		if !synced {
			p.ends(t, 3, "retention", "--once")
			p.ends(t, 0, "setup", "--accept-gap")
			p.streams(t) // and the slot passes the rows that nobody has sent
			p.ends(t, 3, "retention", "--once")
			if n := p.rows(t); n != 800 {
				t.Errorf("%d of 800 rows are left, and 300 were never sent", n)
			}
			return
		}
		p.ends(t, 1, "retention", "--once")
		if n := p.rows(t); n != 800 {
			t.Fatalf("%d of 800 rows are left, and nobody has delivered the last 300", n)
		}
		r = p.Start(t) // and goes on, as the server may write WAL of its own behind the rows
		r.AwaitStreaming(t)
		p.ends(t, 0, "retention", "--once", "--set", "maintenance.wait=60s")
		r.Stop(t)
		if n := p.rows(t); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		p.complete(t, 800)
	})
}

// A standby is promoted in the middle of a backfill. Its snapshot is gone, and what its slot would
// bring is not known to be all: it begins anew, of its own accord where rows may come twice and no
// slot is left, else when it is told to.
func TestBackfill_PromotedStandbyHasItBeginAnew(t *testing.T) {
	t.Parallel()
	eachStandby(t, func(t *testing.T, version, guarantee string, synced bool) {
		p := newPromotable(t, version, guarantee, synced, "", "")
		p.write(t, 1, 60_000, "1h")
		// more rows than it sends at this rate before the standby is promoted
		slowly := []string{"backfill", "--all", "--yes", "--max-rate", "400", "--order", "id"}
		first := p.Exec(t, slowly...)
		p.sends(t, first, 300)
		// before anybody writes: a slot that confirms nothing does not get to a standby that is ahead of it
		for attempt := 2; synced && !p.keeps(t, p.Slot+"_backfill"); attempt++ {
			if attempt > 12 {
				t.Fatalf("the standby took none of the slots: %s", p.next.Server.Log())
			}
			first.Terminate(t)
			first.Wait(t)
			first = p.Exec(t, append(slowly, "--restart")...)
			p.sends(t, first, 300*attempt)
		}
		p.write(t, 60_001, 60_100, "0s") // the slot's
		p.failOver(t)
		if code := first.Wait(t); code != 1 && code != 3 { // 3: it saw first that the slot is gone
			t.Errorf("it ended with %d: %s", code, first.Output())
		}
		p.write(t, 60_101, 60_200, "0s")
		again := []string{"backfill", "--all", "--yes", "--order", "id"}
		if synced || guarantee == "guarantee: exactly_once" {
			p.ends(t, 3, again...)
			p.ends(t, 3, "run")
			if n := harness.Query[int64](t, p.DB, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", p.Slot); n != 0 {
				t.Fatal("a relay can stream before the old rows are sent")
			}
			again = append(again, "--restart")
		}
		p.ends(t, 0, again...)
		p.write(t, 60_201, 60_300, "0s")
		p.streams(t)
		t.Logf("%d duplicates", p.complete(t, 60_300))
	})
}

var wayOut = regexp.MustCompile(`backfill --where \\?"(created_at >= '[^']+')\\?"`)

// A standby is promoted in a cutover, between the cut and the publisher's last row. With the slot it
// goes on. Without it nobody has the rows after the cut: it says so, and the backfill that it names
// sends them. Each row comes once, and the rows of a key in order.
func TestCutover_PromotedStandbyLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	eachStandby(t, func(t *testing.T, version, guarantee string, synced bool) {
		p := newPromotable(t, version, guarantee, synced, "", "")
		var frozen, rests atomic.Bool // rests follows frozen, once what was begun is done
		stop := p.polls(t, &frozen, &rests)
		defer stop()
		p.write(t, 1, 50, "1h")
		unpublished := func(n int64) {
			t.Helper()
			relaytest.Eventually(t, fmt.Sprintf("%d rows have no mark", n), func() (bool, string) {
				got := harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox WHERE published_at IS NULL")
				return got == n, strconv.FormatInt(got, 10)
			})
		}
		unpublished(0)
		frozen.Store(true)
		relaytest.Eventually(t, "the publisher rests", func() (bool, string) { return rests.Load(), "" })
		p.write(t, 51, 60, "1h")
		p.lags(t)
		cutover := []string{"cutover", "--mark-new", "--settle", "300ms", "--watch", "100ms", "--yes"}
		first := p.Exec(t, cutover...)
		relaytest.Eventually(t, "the cut is made", func() (bool, string) {
			return harness.Query[bool](t, p.old, "SELECT count(*) = 1 FROM pg_trigger WHERE tgrelid = 'outbox'::regclass AND NOT tgisinternal"), first.Output()
		})
		p.write(t, 61, 100, "0s")
		p.awaitHeld(t, p.Slot+"_cutover")
		p.failOver(t)
		if code := first.Wait(t); code != 1 {
			t.Errorf("it ended with %d: %s", code, first.Output())
		}
		p.write(t, 101, 120, "0s")
		unpublished(10)
		frozen.Store(false)
		if synced {
			p.ends(t, 0, cutover...)
		} else {
			unpublished(0)
			says := p.ends(t, 3, cutover...)
			where := wayOut.FindStringSubmatch(says)
			if where == nil {
				t.Fatalf("it does not say what sends the rows after the cut: %s", says)
			}
			p.ends(t, 3, "run")
			p.ends(t, 0, "backfill", "--where", where[1], "--order", "id", "--yes")
		}
		p.write(t, 121, 140, "0s")
		p.streams(t)
		if duplicates := p.complete(t, 140); duplicates > 0 {
			t.Errorf("%d records came twice", duplicates)
		}
		if _, published := p.arrived(t); published != 60 {
			t.Errorf("the publisher sent %d rows, and its own were 60", published)
		}
	})
}

// polls has a publisher send what has no mark, through a failover, until it is stopped.
func (p *promotable) polls(t *testing.T, frozen, rests *atomic.Bool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client, err := kgo.NewClient(kgo.SeedBrokers(p.Brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	url, ended := p.DB.URL, make(chan struct{})
	go func() {
		defer close(ended)
		defer client.Close()
		for ctx.Err() == nil {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				continue // the primary is being replaced
			}
			for err == nil && ctx.Err() == nil {
				if rests.Store(frozen.Load()); rests.Load() {
					_, err = conn.Exec(ctx, "SELECT pg_sleep(0.02)")
					continue
				}
				err = publish(context.WithoutCancel(ctx), conn, client)
			}
			_ = conn.Close(context.WithoutCancel(ctx)) // it may be broken
		}
	}()
	return func() { cancel(); <-ended }
}

// publish sends some rows, and marks them in the same transaction.
func publish(ctx context.Context, conn *pgx.Conn, client *kgo.Client) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT id, aggregate_id, payload::text FROM outbox WHERE published_at IS NULL ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED")
		if err != nil {
			return err
		}
		var ids []int64
		var records []*kgo.Record
		var id int64
		var key, value string
		if _, err := pgx.ForEachRow(rows, []any{&id, &key, &value}, func() error {
			ids = append(ids, id)
			records = append(records, &kgo.Record{Topic: "order-events", Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "by", Value: []byte("publisher")}}})
			return nil
		}); err != nil {
			return err
		}
		if len(ids) == 0 {
			_, err = tx.Exec(ctx, "SELECT pg_sleep(0.02)")
			return err
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE outbox SET published_at = now() WHERE id = ANY ($1)", ids)
		return err
	})
}
