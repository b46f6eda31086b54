package backfill

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Two tables may have rows of one key in one topic. The stream has them in the order of their commits, and a row that is
// sent again lands behind a newer one of the other table.
func TestReplay_KnowsOfRowsOfAnotherTable(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.addSecond(t)
	s.must(t, all)
	s.db.Exec(t, `INSERT INTO outbox VALUES (1, 'a', 'one', 'e', '1'), (2, 'a', 'two', 'e', '2')`)
	s.db.Exec(t, `INSERT INTO second VALUES (1, 'a', 'one', 'e', '3'), (2, 'a', 'three', 'e', '4')`)
	s.stream(t)
	const says = "table public.second has rows with the same keys in the same topics"
	for name, options := range map[string]ReplayOptions{"ids": {IDs: []string{"1"}}, "complete keys": {Keys: []string{"one"}, CompleteKeys: true}} {
		options.Table, options.Yes = "public.outbox", true
		if text, err := s.again(t, options); !isRefused(err) || !strings.Contains(err.Error(), says) || !strings.Contains(text, says) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if text, err := s.beside(t.Context(), BesideOptions{Table: "public.outbox", Where: "id = 1", Yes: true}, nil); !isRefused(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("--late: %v\n%s", err, text)
	}
	for _, options := range []ReplayOptions{{IDs: []string{"2"}}, {IDs: []string{"1"}, AcceptOrder: true}} {
		options.Table, options.Yes = "public.outbox", true
		if text, err := s.again(t, options); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if got := fmt.Sprint(s.committed(t)); got != "[1 2 3 4 2 1]" {
		t.Errorf("there are %s", got)
	}
}
