package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// besides configures retention beside the stream.
func (k *keeper) besides(t *testing.T, more string) {
	t.Helper()
	k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, retention: {keep: 1h, then: delete}}]\nmaintenance: {interval: 1s, wait: 2s%s}\n", more))
}

// job is what a relay shows of its first one.
func job(t *testing.T, url string) (m status.Maintenance, state status.State) {
	t.Helper()
	var s status.Status
	if err := json.Unmarshal([]byte(invoke(t, nil, "status", "--url", url, "--json").stdout), &s); err != nil || len(s.Maintenance) == 0 {
		return m, s.State
	}
	return s.Maintenance[0], s.State
}

// The relay that holds the slot deletes what is delivered and old; one that stands by does not,
// and takes it over with the slot.
func TestRun_DeletesDeliveredRowsBesideTheStream(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.besides(t, "")
		k.setUp(t, "")
		first, stopFirst := k.streams(t)
		k.insert(t, 30)
		k.published(t, first, 30)
		second, stopSecond := k.start(t, nil)
		k.await(t, "the other one stands by", func() bool { _, state := job(t, second); return state == status.Standby })
		k.age(t, "2h")
		k.insert(t, 5)
		k.await(t, "old rows are gone", func() bool { return k.rows(t) == 5 })
		k.await(t, "the job shows it", func() bool {
			m, state := job(t, first)
			return state == status.Streaming && m.Table == "public.outbox" && m.Job == "retention" && m.State == status.JobIdle && m.Rows == 30 && m.OldestRow != nil
		})
		k.await(t, "so does the text", func() bool { // between two passes
			got := invoke(t, nil, "status", "--url", first)
			return got.code == exitOK && strings.Contains(got.stdout, "retention     public.outbox idle, 30 rows since start, last pass ")
		})
		if m, state := job(t, second); state != status.Standby || m.State != status.JobWaiting || m.Rows != 0 {
			t.Errorf("the other one is %s: %+v", state, m)
		}
		stopFirst()
		k.await(t, "the other one streams", func() bool { return invoke(t, nil, "status", "--url", second).code == exitOK })
		k.age(t, "2h")
		k.await(t, "all rows are gone", func() bool { return k.rows(t) == 0 })
		if code := stopSecond(); code != exitOK {
			t.Errorf("run ended with %d", code)
		}
	})
}

// What is in the way of a job is shown, and the relay streams on.
func TestRun_StreamsWhateverBecomesOfItsJobs(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.besides(t, "")
	k.setUp(t, "")
	url, stop := k.streams(t)
	k.insert(t, 3)
	k.published(t, url, 3)
	k.db.Exec(t, "ALTER TABLE outbox RENAME COLUMN created_at TO made")
	k.await(t, "the job is paused", func() bool {
		m, state := job(t, url)
		return state == status.Streaming && m.State == status.JobPaused && m.Reason == "configuration" && strings.Contains(m.Message, `has no column "created_at"`)
	})
	checkUp(t, k.env).want(t, "table.retention", advice.Fail, `has no column "created_at"`)
	k.db.Exec(t, "ALTER TABLE outbox RENAME COLUMN made TO created_at; UPDATE outbox SET created_at = created_at - interval '2h'")
	checkUp(t, k.env).want(t, "table.retention", advice.OK, "delivered rows of public.outbox go after 1h: delete")
	k.await(t, "it goes on by itself", func() bool { return k.rows(t) == 0 })
	stop()
}

func TestRun_LeavesJobsToTheClock(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.keepsHouse(t, "delete", "")
	k.setUp(t, "")
	url, stop := k.streams(t)
	k.insert(t, 3)
	k.published(t, url, 3)
	k.age(t, "2h")
	if out := invoke(t, nil, "status", "--url", url, "--json").stdout; strings.Contains(out, "maintenance") {
		t.Errorf("it has jobs: %s", out)
	}
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 3 rows", "")
	stop()
}
