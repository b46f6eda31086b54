package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var online = []string{"backfill", "--online", "--all", "--rows-are-kept", "--buckets", "4", "--yes"}

// A row comes from its bucket, from the stream between buckets, or from run: once, and the rows of a key in order.
// A role with the grants that sql prints is enough.
func TestBackfillOnline_HasEachRowOnce(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		for name, how := range keeping {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				k := newOld(t, version, how)
				k.write(t, 1, 3000)
				role := harness.Unique(t, "least")
				defer func() {
					k.db.Exec(t, "DROP OWNED BY "+role)
					k.db.Exec(t, "DROP ROLE "+role)
				}()
				printed := invoke(t, k.env, "sql", "--for", "backfill", "--role", role)
				printed.want(t, exitOK, "GRANT SELECT", "")
				k.db.Exec(t, strings.ReplaceAll(printed.stdout, `\set ON_ERROR_STOP on`, ""))
				env := append(slices.Clone(k.env), "CDC_RELAY_POSTGRES_URL="+strings.Replace(k.db.URL, "postgres@", role+"@", 1))
				k.db.Exec(t, `CREATE INDEX ON outbox ((coalesce(get_byte(decode(md5(aggregate_id::text), 'hex'), 0), 0)))`)
				invoke(t, env, "backfill", "--online", "--all").want(t, exitOK, "each bucket reads its own rows by an index", "")
				k.sendsOnline(t, env)
			})
		}
	}
	t.Run("shards", func(t *testing.T) {
		t.Parallel()
		k := newOld(t, "18", keeping["exactly_once"], "CDC_RELAY_POSTGRES_SHARDS=2")
		k.write(t, 1, 3000)
		k.sendsOnline(t, k.env)
	})
}

// sendsOnline sends 3000 rows, beside a writer, and has run send what comes afterwards.
func (k *keeper) sendsOnline(t *testing.T, env []string) {
	t.Helper()
	invoke(t, env, "backfill", "--online", "--all", "--buckets", "4").want(t, exitOK, "nothing was changed", "")
	if slots := k.slots(t); slots != "" {
		t.Fatalf("a plan made %s", slots)
	}
	written, stop := k.writesOn(t, 3001)
	done := invoke(t, env, online...)
	done.want(t, exitOK, "rows of the tables sent in 4 buckets", "")
	if strings.Contains(done.stderr, "row filter") {
		t.Errorf("it warns of the filter that makes a shard:\n%s", done.stderr)
	}
	stop()
	last := <-written
	if slots := k.slots(t); slots == "" || strings.Contains(slots, "backfill") {
		t.Fatalf("there is %q", slots)
	}
	k.write(t, last+1, last+500)
	k.runsUntil(t, "order-events", last+500)
	eachOnce(t, k.brokers.Read(t, "order-events"), last+500)
}

// Killed while it sends buckets or streams, it goes on with the next call.
func TestBackfillOnline_KilledGoesOn(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newOld(t, "18", how)
			k.write(t, 1, 6000)
			seen := func() int {
				all := make(map[int]bool)
				for _, list := range numbers(t, k.committed(t, "order-events")) {
					for _, n := range list {
						all[n] = true
					}
				}
				return len(all)
			}
			for kill := range 3 {
				program := exec.CommandContext(t.Context(), executable, slices.Concat(online, []string{"--max-rate", "500"})...) // far from done when it is killed
				program.Env = append(slices.Clone(k.env), "HOME=/nonexistent", asProgram+"=1")
				before := seen()
				if err := program.Start(); err != nil {
					t.Fatal(err)
				}
				k.await(t, "more records", func() bool { return seen() >= before+500 })
				_ = program.Process.Kill()
				_ = program.Wait() // it was killed
				released(t, k.db)
				unlocked(t, k.db)
				if slots := k.slots(t); slots != k.slot+"_backfill" {
					t.Fatalf("there is %q: the backfill ended before it was killed", slots)
				}
				invoke(t, k.env, "run").want(t, exitRefused, "", "cdc-relay backfill --yes")
				k.write(t, 6000+100*kill+1, 6000+100*(kill+1))
			}
			invoke(t, k.env, "backfill", "--yes").want(t, exitOK, "in 4 buckets", "")
			k.write(t, 6301, 6400)
			_, stop := k.start(t, nil)
			k.await(t, "everything is there", func() bool { return seen() == 6400 })
			invoke(t, k.env, "audit").want(t, exitOK, "proven 6400 of 6400", "")
			if code := stop(); code != exitOK {
				t.Errorf("run ended with %d", code)
			}
			if how == keeping["exactly_once"] {
				eachOnce(t, k.committed(t, "order-events"), 6400)
			}
		})
	}
}

// While the brokers are away, the plan names the next step.
func TestBackfillOnline_SaysThatTheBrokersAreAway(t *testing.T) {
	t.Parallel()
	k := newOld(t, "18", keeping["detect_moved_slot"], "CDC_RELAY_KAFKA_BROKERS=127.0.0.1:1")
	invoke(t, k.env, "backfill", "--online", "--all").want(t, exitFailed, "", "start the brokers, or correct kafka.brokers")
}

// With --json a progress line tells which bucket is at work, and how long the rows still take.
func TestBackfillOnline_TellsItsProgressAsJSON(t *testing.T) {
	t.Parallel()
	k := newOld(t, "18", keeping["detect_moved_slot"])
	k.write(t, 1, 280)
	said := invoke(t, k.env, slices.Concat(online, []string{"--max-rate", "20", "--json"})...) // a line comes after 10 s
	said.want(t, exitOK, `"what":"result"`, "")
	found := false
	for line := range strings.Lines(said.stderr) {
		var l struct {
			What, State, Text         string
			Bucket, Buckets, Rows, Of int
			ETA                       int     `json:"eta_seconds"`
			Rate                      float64 `json:"rows_per_second"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if l.What != "progress" {
			continue
		}
		found = true
		if l.State != "sending" && l.State != "streaming" || l.Bucket < 1 || l.Bucket > 4 || l.Buckets != 4 || l.Rows < 100 || l.Of != 280 || l.ETA < 1 || l.ETA > 15 || l.State == "sending" && l.Rate < 10 {
			t.Errorf("%s", line)
		}
	}
	if !found {
		t.Error(said.stderr)
	}
}
