package cutover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Once the rows are the publisher's, nobody parks a key: what waits in the dead-letter topic is said.
func TestCutover_BackWarnsOfDeadLettersThatWait(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime, append(keeps(t, "at_least_once"), "kafka.max_message_bytes=100KiB",
		"relay.on_reject=dead_letter", "relay.park_key=true", "relay.dead_letter_topic="+harness.Unique(t, "letters"))...)
	options := markNew
	options.Settle = 0
	s.must(t, options)
	if text := s.must(t, Options{Mode: Back}); strings.Contains(text, "dead letter") {
		t.Errorf("none waits: %s", text)
	}
	for _, payload := range []string{"repeat('secret', 100000)", "'2'"} {
		s.db.Exec(t, fmt.Sprintf("INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'k', 'e', %s)", s.table, payload))
	}
	text := s.must(t, Options{Mode: Back, Yes: true})
	if !strings.Contains(text, "2 waiting dead letters: consumers do not have these rows, and the publisher sends later rows of their keys ahead of them") || strings.Contains(text, "secret") {
		t.Errorf("it says %s", text)
	}
	if n := len(s.committed(t)); n != 0 {
		t.Errorf("%d records of a parked key", n)
	}
}
