//go:build engine

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// takenOver is how soon the shards of a relay that is gone go on with another one.
const takenOver = 5 * time.Second

// relay starts one of several relays; own is empty for the one that stands by for all shards.
func (w *world) relay(t *testing.T, name string, shards int, own string) {
	t.Helper()
	options := append(confined("64m"), "--restart", "on-failure", "--stop-timeout", "40", "--health-interval", "1s")
	options = append(options, w.environment()...)
	// A relay that is frozen, or cut off, has its slots until the server gives up on it.
	options = append(options, "-e", "CDC_RELAY_POSTGRES_WAL_SENDER_TIMEOUT=3s")
	options = append(options, "-e", fmt.Sprintf("CDC_RELAY_POSTGRES_SHARDS=%d", shards), "-e", "CDC_RELAY_POSTGRES_OWN_SHARDS="+own)
	w.run(t, name, options, image)
	w.awaitHealth(t, name, "healthy")
}

// owners are the addresses of who holds each slot, by the server.
func (w *world) owners(t *testing.T) map[string]string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), `SELECT slot_name, coalesce(host(client_addr), '') FROM pg_replication_slots
		LEFT JOIN pg_stat_replication ON pid = active_pid ORDER BY slot_name`)
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	var slot, address string
	if _, err := pgx.ForEachRow(rows, []any{&slot, &address}, func() error { owners[slot] = address; return nil }); err != nil {
		t.Fatal(err)
	}
	return owners
}

func (w *world) address(t *testing.T, name string) string {
	t.Helper()
	return docker(t, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", w.container(name))
}

// awaitOwner is how long it took from since until a slot is another's than before.
func (w *world) awaitOwner(t *testing.T, slot, address string, since time.Time) time.Duration {
	t.Helper()
	relaytest.Eventually(t, slot+" is held by "+address, func() (bool, string) {
		owners := w.owners(t)
		return owners[slot] == address, fmt.Sprint(owners)
	})
	return time.Since(since)
}

// Three relays: one for each of two shards, and one that stands by for both. Whoever is
// killed, frozen or cut off, its shard goes on elsewhere, in order and without loss.
func TestShards_GoOnWhenTheirRelayIsGone(t *testing.T) {
	build(t)
	w := newWorld(t)
	w.setupShards(t, 2)
	load := w.workload(t, "order")
	w.relay(t, "shard-0", 2, "0")
	w.relay(t, "shard-1", 2, "1")
	w.relay(t, "standby", 2, "")
	slots := make([]string, 0, 2)
	for slot := range w.owners(t) {
		slots = append(slots, slot)
	}
	slices.Sort(slots)
	if len(slots) != 2 {
		t.Fatalf("slots: %q", slots)
	}
	standby := w.address(t, "standby")
	for i, slot := range slots {
		w.awaitOwner(t, slot, w.address(t, fmt.Sprintf("shard-%d", i)), time.Now())
	}
	load.Start(t, 2, 10*time.Millisecond)

	for _, loss := range []struct {
		what, name, slot string
		limit            time.Duration
		lose, back       func()
	}{
		{"killed", "shard-0", slots[0], takenOver,
			func() { docker(t, "kill", w.container("shard-0")) },
			func() { docker(t, "start", w.container("shard-0")) }},
		{"frozen", "shard-1", slots[1], takenOver + 3*time.Second,
			func() { docker(t, "pause", w.container("shard-1")) },
			func() { docker(t, "unpause", w.container("shard-1")) }},
		{"cut off", "shard-0", slots[0], takenOver + 3*time.Second,
			func() { docker(t, "network", "disconnect", w.name, w.container("shard-0")) },
			func() { docker(t, "network", "connect", w.name, w.container("shard-0")) }},
	} {
		<-time.After(2 * time.Second) // rows flow
		start := time.Now()
		loss.lose()
		asked := time.Since(start)
		took := w.awaitOwner(t, loss.slot, standby, start)
		t.Logf("%s: its shard goes on after %.1f s, %.1f s of them docker's", loss.what, took.Seconds(), asked.Seconds())
		if took-asked > loss.limit {
			t.Errorf("%s: the shard stood still for %s", loss.what, took)
		}
		loss.back()
		w.caughtUp(t)

		// What stands in for a shard gives it back when it is restarted.
		docker(t, "stop", "-t", "40", w.container("standby"))
		w.awaitOwner(t, loss.slot, w.address(t, loss.name), time.Now())
		docker(t, "start", w.container("standby"))
		w.awaitHealth(t, "standby", "healthy")
		standby = w.address(t, "standby")
	}
	load.Stop(t)
	w.caughtUp(t)
	t.Logf("%d duplicates", load.Verify(t))
}

func (w *world) setupShards(t *testing.T, shards int, more ...string) {
	t.Helper()
	command := append([]string{"run", "--rm", "--network", w.name, "-e", fmt.Sprintf("CDC_RELAY_POSTGRES_SHARDS=%d", shards)}, w.environment()...)
	docker(t, append(append(command, image, "setup", "--create-table"), more...)...)
}

// From two shards to four while services write: the relays stop for seconds, and nothing is lost.
func TestShards_TwoBecomeFourUnderLoad(t *testing.T) {
	build(t)
	w := newWorld(t)
	w.setupShards(t, 2)
	load := w.workload(t, "order")
	for i := range 2 {
		w.relay(t, fmt.Sprintf("shard-%d", i), 2, fmt.Sprint(i))
	}
	load.Start(t, 2, 10*time.Millisecond)
	<-time.After(3 * time.Second)

	// It waits until nobody streams, and goes on by itself then.
	options := append(w.environment(), "-e", "CDC_RELAY_POSTGRES_SHARDS=4")
	w.run(t, "reshard", options, image, "setup", "--reshard-from", "2")
	w.awaitLog(t, "reshard", "stop every relay")
	start := time.Now()
	docker(t, "stop", "-t", "40", w.container("shard-0"), w.container("shard-1"))
	if code := docker(t, "wait", w.container("reshard")); code != "0" {
		t.Fatalf("setup --reshard-from ended with %s", code)
	}
	for i := range 4 {
		w.relay(t, fmt.Sprintf("new-%d", i), 4, fmt.Sprint(i))
	}
	t.Logf("from the stop of two relays until four are healthy: %.1f s", time.Since(start).Seconds())
	for slot, address := range w.owners(t) {
		shard, _ := strings.CutPrefix(slot, "cdc_relay_4_")
		if want := w.address(t, "new-"+shard); address != want {
			t.Errorf("%s is held by %s, not by %s", slot, address, want)
		}
	}
	<-time.After(3 * time.Second)
	load.Stop(t)
	w.caughtUp(t)
	t.Logf("%d duplicates", load.Verify(t))
}
