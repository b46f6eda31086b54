package backfill

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

// hanging is a server of which commits wait for a synchronous standby that is away: they are in the
// WAL, and no snapshot of SQL sees them.
type hanging struct {
	s     *scene
	ended []chan error
}

// hangs has commits wait from now on, and makes one with a row.
func (s *scene) hangs(t *testing.T, insert string) *hanging {
	t.Helper()
	h := &hanging{s: s}
	s.db.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	s.db.Exec(t, "SELECT pg_reload_conf()")
	h.commit(t, func(c *pgconn.PgConn) error { // until one waits: the server heeds the setting some time later
		for {
			if _, err := c.Exec(t.Context(), "SELECT pg_logical_emit_message(true, 'test', '')").ReadAll(); err != nil {
				return err
			}
			shown, err := c.Exec(t.Context(), "SHOW synchronous_standby_names").ReadAll()
			if err != nil || len(shown[0].Rows[0][0]) == 0 { // commits go on
				return err
			}
		}
	})
	h.commit(t, func(c *pgconn.PgConn) error {
		_, err := c.Exec(t.Context(), insert).ReadAll()
		return err
	})
	return h
}

// commit runs something until its commit waits.
func (h *hanging) commit(t *testing.T, do func(*pgconn.PgConn) error) {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), h.s.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	ended := make(chan error, 1)
	h.ended = append(h.ended, ended)
	go func() { ended <- do(c) }()
	wait(t.Context(), func() bool {
		return harness.Query[int](t, h.s.db, "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'SyncRep'") >= len(h.ended)
	})
}

// goOn has the commits become visible.
func (h *hanging) goOn(t *testing.T) {
	t.Helper()
	h.s.db.Exec(t, "ALTER SYSTEM RESET synchronous_standby_names")
	h.s.db.Exec(t, "SELECT pg_reload_conf()")
	for _, ended := range h.ended {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// during makes a call, and has the commits become visible when it waits for them, or is over.
func (h *hanging) during(t *testing.T, call func() (string, error)) (text string, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		text, err = call()
	}()
	wait(t.Context(), func() bool {
		select {
		case <-done:
			return true
		default:
			return harness.Query[bool](t, h.s.db, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'cdc-relay %' AND query LIKE '%pg_locks%transactionid%')")
		}
	})
	h.goOn(t)
	<-done
	return text, err
}

// numbered opens a transaction that has a number.
func (s *scene) numbered(t *testing.T) (c *pgconn.PgConn, number string) {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), s.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	results, err := c.Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id()").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return c, string(results[1].Rows[0][0])
}

// ownScene is a scene on a server of its own.
func ownScene(t *testing.T) *scene {
	t.Helper()
	return play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
}

// The slot's snapshot has a commit that waits for a standby, the slot does not, and no snapshot of SQL
// has it: the call that goes on waits for it.
func TestBackfill_ResumedHasACommitThatWaitedForAStandby(t *testing.T) {
	t.Parallel()
	s := ownScene(t)
	s.write(t, 1, 49)
	s.write(t, 51, 100)
	waitedFor := func(number string) {
		wait(t.Context(), func() bool {
			return harness.Query[bool](t, s.db, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid::text = $1)", number)
		})
	}
	end := func(c *pgconn.PgConn) {
		if _, err := c.Exec(t.Context(), "ROLLBACK").ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	// The slot's creation waits for one, and then for what is open at the end of that, the other.
	one, first := s.numbered(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var text string
	var err error
	done := make(chan struct{})
	byID := Options{All: true, Yes: true, Order: []string{"id"}}
	go func() {
		defer close(done)
		text, err = s.attempt(ctx, byID, func(at string) {
			if at == "begun" {
				cancel()
			}
		})
	}()
	waitedFor(first)
	other, second := s.numbered(t)
	end(one)
	waitedFor(second)
	h := s.hangs(t, "INSERT INTO outbox VALUES (50, 'a', '0', 'e', '50')")
	end(other)
	<-done
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the first call: %v\n%s", err, text)
	}
	text, err = h.during(t, func() (string, error) { return s.attempt(t.Context(), byID, nil) })
	if err != nil {
		t.Fatalf("the second call: %v\n%s", err, text)
	}
	s.write(t, 101, 110)
	s.stream(t)
	complete(t, s.committed(t), 110, false)
}

// A row from before the slot may become visible long after the slot was made.
func TestBeside_HasACommitThatWaitedForAStandby(t *testing.T) {
	t.Parallel()
	s := ownScene(t)
	s.write(t, 1, 10)
	s.must(t, all)
	h := s.hangs(t, "INSERT INTO outbox VALUES (50, 'a', 'late', 'e', '50')")
	var out bytes.Buffer
	text, err := h.during(t, func() (string, error) {
		b := &Beside{Settings: s.settings, Options: BesideOptions{Where: "id > 10", Yes: true}, Out: Output{Result: &out, Meanwhile: &out}, Log: zerolog.Nop()}
		err := b.Run(t.Context())
		return out.String(), err
	})
	if err != nil || !slices.Contains(s.committed(t), 50) {
		t.Errorf("the row that was in the WAL before the call is not sent: %v\n%s", err, text)
	}
}

// The relay has sent a row that is not visible yet, and does not send it again.
func TestReplay_KnowsOfACommitThatWaitedForAStandby(t *testing.T) {
	t.Parallel()
	for _, completes := range []bool{true, false} {
		t.Run(map[bool]string{true: "complete keys", false: "no newer rows"}[completes], func(t *testing.T) {
			t.Parallel()
			s := ownScene(t)
			s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', 'one', 'e', n::text FROM generate_series(1, 30) n`)
			s.must(t, all)
			s.stream(t)
			h := s.hangs(t, "INSERT INTO outbox VALUES (3001, 'a', 'one', 'e', '3001')")
			s.stream(t)
			if list := s.committed(t); list[len(list)-1] != 3001 {
				t.Fatalf("the relay has sent %v", list)
			}
			var out bytes.Buffer
			text, err := h.during(t, func() (string, error) {
				r := &Replay{
					Settings: s.settings, Options: ReplayOptions{Where: "id = 30", CompleteKeys: completes, MaxRows: 100, Yes: true},
					Out: Output{Result: &out, Meanwhile: &out}, Log: zerolog.Nop(), Every: 100 * time.Millisecond,
				}
				err := r.Run(t.Context())
				return out.String(), err
			})
			if completes && err != nil || !completes && (err == nil || !strings.Contains(err.Error(), "the records would land after newer ones of their keys")) {
				t.Errorf("%v\n%s", err, text)
			}
			s.stream(t)
			list := s.committed(t)
			if last := list[len(list)-1]; last != 3001 {
				t.Errorf("the key ends with row %d, and its newest is 3001", last)
			}
		})
	}
}
