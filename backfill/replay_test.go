package backfill

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

// replay is one call that may be ended, about the first 3000 rows and the newer ones of their keys.
func (s *scene) replay(ctx context.Context, options ReplayOptions) (string, error) {
	var text bytes.Buffer
	var mu sync.Mutex
	out := lockedWriter{&mu, &text}
	options.Where, options.CompleteKeys, options.MaxRows, options.Yes = "id <= 3000", true, 100_000, true
	r := &Replay{Settings: s.settings, Options: options, Out: Output{Result: out, Meanwhile: out}, Log: zerolog.Nop(), Every: 100 * time.Millisecond}
	err := r.Run(ctx)
	mu.Lock()
	defer mu.Unlock()
	return text.String(), err
}

// The relay streams between a replay that was interrupted and the one that goes on: each key ends
// with its newest row all the same.
func TestReplay_ResumedAfterTheRelayEndsKeysWithTheirNewestRow(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', 'one', 'e', n::text FROM generate_series(1, 3000) n`)
	s.must(t, all)
	s.stream(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := len(s.committed(t))
	go func() {
		wait(ctx, func() bool { return len(s.committed(t)) >= before+some })
		cancel()
	}()
	text, err := s.replay(ctx, ReplayOptions{MaxRate: slowly})
	run := regexp.MustCompile(`run ([A-Z0-9]+)`).FindStringSubmatch(text)
	if err == nil || run == nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s.db.Exec(t, `INSERT INTO outbox VALUES (3001, 'a', 'one', 'e', '3001')`)
	s.stream(t) // whoever needs the events does not wait
	text, err = s.replay(t.Context(), ReplayOptions{Resume: run[1]})
	list := s.committed(t)
	if last := list[len(list)-1]; err != nil || last != 3001 {
		t.Errorf("%v: the key ends with row %d\n%s", err, last, text)
	}
}

// What the interrupted call left out is left out by the run.
func TestReplay_ResumedNamesTheRowsThatTheCallBeforeLeftOut(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, guarantee), "kafka.max_message_bytes=100KiB")...)
			s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', 'one', 'e', n::text FROM generate_series(1, 3000) n`)
			s.must(t, all)
			s.stream(t)
			s.db.Exec(t, `UPDATE outbox SET payload = repeat('x', 200000) WHERE id = 5`)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before := len(s.committed(t))
			go func() {
				wait(ctx, func() bool { return len(s.committed(t)) >= before+2*slowly }) // for longer than from one write of the progress to the next
				cancel()
			}()
			text, err := s.replay(ctx, ReplayOptions{MaxRate: slowly})
			run := regexp.MustCompile(`run ([A-Z0-9]+)`).FindStringSubmatch(text)
			if err == nil || run == nil {
				t.Fatalf("%v\n%s", err, text)
			}
			s.free(t)
			if text, err = s.replay(t.Context(), ReplayOptions{Resume: run[1]}); err == nil || !strings.Contains(err.Error(), "1 row could not be sent and left out, the first: row of table public.outbox at created_at = ") {
				t.Errorf("row 5 is in no topic, and it ended with %v\n%s", err, text)
			}
		})
	}
}

// A table that is written anew shows no rows to an older snapshot.
func TestReplay_ARewrittenTableIsNoEmptyOne(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 1000)
	s.must(t, all)
	var text bytes.Buffer
	r := &Replay{
		Settings: s.settings, Options: ReplayOptions{Where: "true", CompleteKeys: true, MaxRows: 100_000, Yes: true}, Out: Output{Result: &text, Meanwhile: &text}, Log: zerolog.Nop(),
		OnStep: func(at string) {
			if at == "snapshot_taken" {
				_, _ = s.db.Connect(t).Exec(t.Context(), "SET lock_timeout = '300ms'; ALTER TABLE outbox ALTER COLUMN payload TYPE text USING payload || ''")
			}
		},
	}
	before := len(s.committed(t))
	if err := r.Run(t.Context()); err == nil && len(s.committed(t)) != before+1000 {
		t.Errorf("no error, and %d of 1000 rows were sent\n%s", len(s.committed(t))-before, text.String())
	}
}
