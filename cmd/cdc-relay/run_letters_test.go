package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// Keys were parked, and the relay that starts does not park them: it says so.
func TestRun_WarnsOfDeadLettersThatItOvertakes(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	parks := []string{"CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_PARK_KEY=true", "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=16KiB", "CDC_RELAY_KAFKA_COMPRESSION=none"}
	plain := l.env
	l.env = append(plain[:len(plain):len(plain)], parks...)
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "created slot", "")
	url, stop := l.start(t, nil)
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', '00000000-0000-0000-0000-00000000000a', 'x', jsonb_build_object('fill', repeat('x', n)) FROM unnest(ARRAY[50000, 1]) n`)
	l.published(t, url, 2)
	stop()
	released(t, l.db)
	invoke(t, l.env, "check").want(t, exitOK, "no row is sent past a dead letter of a parked key", "")
	const seen = "2 dead letters of 1 key wait in topic cdc-relay.dead-letters, and later rows of these keys are sent past them: "
	l.env = plain
	invoke(t, l.env, "check").want(t, exitOK, seen+"relay.on_reject and relay.park_key do not hold them back", "")
	l.logs(t, seen)

	invoke(t, append(l.env, "CDC_RELAY_POSTGRES_SLOT=renamed"), "setup").want(t, exitOK, "created slot", "")
	l.env = append(l.env, parks...)
	slot := strings.TrimPrefix(plain[1], "CDC_RELAY_POSTGRES_SLOT=")
	l.db.Exec(t, "SELECT pg_drop_replication_slot($1)", slot)
	l.env = append(l.env, "CDC_RELAY_POSTGRES_SLOT=renamed")
	l.logs(t, seen+"they are of slot "+slot+", which does not exist; send them with `cdc-relay deadletter redrive --source ")
}

// logs runs the relay until its log has a text.
func (l *life) logs(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	lines, out := io.Pipe()
	go func() {
		run(ctx, []string{"run"}, process{stdout: io.Discard, stderr: out, env: l.env})
		out.Close()
	}()
	all, found := "", false
	buffer := make([]byte, 1<<16)
	for {
		n, err := lines.Read(buffer)
		all += string(buffer[:n])
		if !found && strings.Contains(all, text) {
			found = true
			cancel()
		}
		if err != nil {
			break
		}
	}
	if !found {
		t.Errorf("the log has no %q:\n%s", text, all)
	}
}
