package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A publisher that still polls marks rows that the job has found without a mark: `check` warns of it.
// A row that somebody changes in another column has no mark of theirs.
func TestCheck_WarnsOfMarksThatSomebodyElseSets(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ setting, unmarked, theirs string }{
		"time":        {"column: published_at", "published_at IS NULL", "published_at = now()"},
		"boolean":     {"column: sent", "NOT sent", "sent = true"},
		"status":      {"column: state, value: sent", "state = 'new'", "state = 'sent'"},
		"partitioned": {"column: published_at", "published_at IS NULL", "published_at = now()"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var k *keeper
			if name == "partitioned" {
				k = partitioned(t, harness.Postgres(t, "18"), "drop_partition", "")
			} else {
				k = newKeeper(t, keeping["detect_moved_slot"])
				k.marks(t, "column: published_at", "")
			}
			k.db.Exec(t, "ALTER TABLE outbox ADD sent boolean NOT NULL DEFAULT false, ADD state text NOT NULL DEFAULT 'new'")
			k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, mark: {%s}}]\nmaintenance: {wait: 5s}\n", tt.setting))
			url, stop := k.streams(t)
			defer stop()
			shown := func() string {
				return strings.ReplaceAll(invoke(t, nil, "status", "--url", url, "--json").stdout, ": ", ":")
			}
			up := func() checked { return checkUp(t, k.env, "--set", "http.listen="+strings.TrimPrefix(url, "http://")) }
			// Like a publisher that locks rows: they are its own until it has committed.
			during := func(set string) {
				t.Helper()
				tx := begin(t, k.db)
				for locked := int64(0); locked == 0; { // again, where the job was first
					tx.exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', gen_random_uuid(), 'x', '{}'); COMMIT; BEGIN")
					tag, err := tx.conn.Exec(t.Context(), "UPDATE outbox SET "+set+" WHERE "+tt.unmarked)
					if err != nil {
						t.Fatal(err)
					}
					locked = tag.RowsAffected()
				}
				k.await(t, "the job meets the row while it is locked", func() bool { return strings.Contains(shown(), `"changed":1`) })
				tx.exec(t, "COMMIT")
				k.await(t, "the row has a mark", func() bool { return queryText(t, k.db, "SELECT count(*)::text FROM outbox WHERE "+tt.unmarked) == "0" })
			}
			during("event_type = 'y'")
			if text := shown(); strings.Contains(text, "marked_by_others") {
				t.Errorf("a change of another column is taken for a mark: %s", text)
			}
			up().want(t, "table.mark", advice.OK, "delivered rows of public.outbox are marked")
			during(tt.theirs)
			k.await(t, "the job says that somebody else marked it", func() bool { return strings.Contains(shown(), `"marked_by_others":1,`) })
			up().want(t, "table.mark", advice.Warn, "somebody else marks rows of public.outbox", "1 row since")
		})
	}
}
