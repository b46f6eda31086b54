package backfill

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A preset may take the key from a second column where the first one is NULL or empty. Rows of one key are then
// found by either.
func TestReplay_KnowsAKeyOfTwoColumns(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, "at_least_once"), "outbox.preset=outboxd")...)
	s.db.Exec(t, `DROP TABLE outbox`)
	s.db.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, topic text NOT NULL, partition_key text, aggregate_id text, payload text, created_at timestamptz DEFAULT now())`)
	s.must(t, all)
	for i, keys := range []string{"NULL, 'one'", "'', 'one'", "'one', 'other'", "NULL, 'two'", "'two', 'one'"} {
		s.db.Exec(t, fmt.Sprintf(`INSERT INTO outbox VALUES (%d, 'any', %s, '%[1]d')`, i+1, keys))
	}
	s.stream(t)
	text, err := s.again(t, ReplayOptions{IDs: []string{"1"}, Yes: true})
	if !isRefused(err) || !strings.Contains(text, "2 further rows of 1 key newer") {
		t.Errorf("rows 2 and 3 are newer ones of its key, and it ended with %v\n%s", err, text)
	}
	if text, err = s.again(t, ReplayOptions{IDs: []string{"1"}, CompleteKeys: true, Yes: true}); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if text, err = s.again(t, ReplayOptions{Keys: []string{"two"}, Yes: true}); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got := fmt.Sprint(s.committed(t)); got != "[1 2 3 4 5 1 2 3 4 5]" {
		t.Errorf("there are %s", got)
	}
}
