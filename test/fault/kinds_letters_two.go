package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// neighbour is another pipeline with the same dead-letter topic: a table, publication,
// slot, topic and relay of its own.
type neighbour struct {
	w     *world
	name  string // of table, publication and slot
	topic string
	args  []string

	process *sandbox.Process
}

// twoPipelines has a neighbour's rows refused, re-drives each of both and sees that the
// other's letters go on waiting, then both at once, killed halfway, and in the end looks
// whether the neighbour's rows are there.
func twoPipelines(ctx context.Context, w *world, d *Done) error {
	b := &neighbour{w: w, name: fmt.Sprintf("%s_%d", w.slot, d.N%1e6)}
	err := b.play(ctx, d)
	return errors.Join(err, b.end(context.WithoutCancel(ctx)))
}

func (b *neighbour) play(ctx context.Context, d *Done) error {
	w := b.w
	if err := b.build(ctx); err != nil {
		return err
	}
	if err := errors.Join(w.refuse(ctx, d), b.write(ctx)); err != nil {
		return err
	}
	narrowed, err := w.widen(ctx, append([]string{b.topic}, w.topics...)...)
	if err == nil {
		err = b.apart(ctx)
	}
	if err = errors.Join(err, narrowed()); err != nil {
		return err
	}
	if err := b.write(ctx); err != nil {
		return err
	}
	if narrowed, err = w.widen(ctx, append([]string{b.topic}, w.topics...)...); err == nil {
		err = b.together(ctx, d)
	}
	return errors.Join(err, narrowed())
}

// apart re-drives one of both, then the other.
func (b *neighbour) apart(ctx context.Context) error {
	w := b.w
	for _, each := range []struct {
		what, other string
		args        []string
	}{{"the relay's", b.name, w.relays.args}, {"the neighbour's", w.slot, b.args}} {
		before, err := w.readLetters(ctx, each.other)
		if err != nil {
			return err
		}
		if _, err := w.redrive(ctx, each.args, 0, everyLetter...); err != nil {
			return err
		}
		after, err := w.readLetters(ctx, each.other)
		if err != nil {
			return err
		}
		for i, l := range before { // letters are in the order of partitions, so more may lie between them
			now := same(after, l)
			if now == nil || now.Outcome != l.Outcome {
				w.problem("P13: %s redrive did something to letter %d of %d of slot %s, at %d/%d", each.what, i, len(before), each.other, l.Partition, l.Offset)
				return nil
			}
		}
	}
	return nil
}

func same(letters []*Letter, l *Letter) *Letter {
	for _, each := range letters {
		if each.Partition == l.Partition && each.Offset == l.Offset {
			return each
		}
	}
	return nil
}

// together re-drives both at once, kills both, and re-drives the neighbour to the end.
func (b *neighbour) together(ctx context.Context, d *Done) error {
	w := b.w
	outcome := make(chan error, 1)
	go func() {
		_, err := w.redrive(ctx, w.relays.args, killAfter(d.N, 1), everyLetter...)
		outcome <- err
	}()
	_, err := w.redrive(ctx, b.args, killAfter(d.N, 2), everyLetter...)
	if err = errors.Join(err, <-outcome); err != nil {
		return err
	}
	if err := b.caughtUp(ctx); err != nil {
		return err
	}
	r, err := w.redrive(ctx, b.args, 0, everyLetter...)
	if err != nil || r.Code != 0 {
		return errors.Join(err, fmt.Errorf("the neighbour's last redrive ended with code %d", r.Code))
	}
	return b.judge(ctx)
}

// judge holds the neighbour's topic against its table.
func (b *neighbour) judge(ctx context.Context) error {
	records, err := sandbox.ReadTopics(ctx, b.w.kafka.Addrs(), []string{b.topic}, b.w.kafka.Direct())
	if err != nil {
		return err
	}
	letters, err := b.w.readLetters(ctx, b.name)
	if err != nil {
		return err
	}
	for _, l := range letters {
		if l.Outcome != "sent" {
			b.w.problem("P13: a letter of the neighbour at %d/%d is %q after everything was re-driven", l.Partition, l.Offset, l.Outcome)
		}
	}
	conn, err := pgx.Connect(ctx, b.w.pg.URL(b.w.database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT id::text, aggregate_id::text, payload::text FROM "+b.name+" ORDER BY created_at, aggregate_id, (payload->>'s')::int")
	if err != nil {
		return err
	}
	next := map[string]int{} // by key, the place in the topic behind its last row
	var id, key, value string
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &value}, func() error {
		place := firstOf(records, id, value)
		if place < next[key] {
			b.w.problem("P13: row %s of the neighbour is at place %d of its topic, its key was at %d before (-1: not there)", id, place, next[key])
		}
		next[key] = place + 1
		return nil
	})
	return err
}

// firstOf is the place of the first record with an id and a value; -1: there is none.
func firstOf(records []*kgo.Record, id, value string) int {
	for i, r := range records {
		for _, h := range r.Headers {
			if h.Key == "id" && string(h.Value) == id && string(r.Value) == value {
				return i
			}
		}
	}
	return -1
}

// write writes rows of the neighbour, some of them too large, and waits until they are
// letters or in their topic.
func (b *neighbour) write(ctx context.Context) error {
	if err := b.w.sql(ctx, fmt.Sprintf(refusedRows, b.name, b.name, 6)); err != nil {
		return err
	}
	return b.caughtUp(ctx)
}

func (b *neighbour) caughtUp(ctx context.Context) error {
	tip, err := b.w.lsn(ctx, "SELECT pg_current_wal_insert_lsn()::text")
	if err != nil {
		return err
	}
	if !b.w.await(ctx, 30*sec, func() bool {
		at, err := b.w.lsn(ctx, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", b.name)
		return err == nil && at >= tip
	}) && ctx.Err() == nil {
		return errors.New("the neighbour did not confirm its rows within 30s")
	}
	return nil
}

// build makes the neighbour and starts its relay.
func (b *neighbour) build(ctx context.Context) error {
	w := b.w
	b.topic = b.name + "-events"
	if err := w.createTopic(ctx, b.topic); err != nil {
		return err
	}
	if err := w.limit(ctx, narrow, b.topic); err != nil {
		return err
	}
	config := filepath.Join(w.dir, b.name+".yaml")
	text := fmt.Sprintf("postgres: {url: %q, slot: %s, publication: %s}\noutbox:\n  - {table: public.%s, preset: outbox}\nkafka:\n  brokers: [%s]\nlog: {level: info, format: text}\nrelay: {on_reject: dead_letter, dead_letter_topic: %s, park_key: true}\n",
		proxied(w.pg.URL(w.database), w.pgProxy.Addr()), b.name, b.name, b.name, join(w.kafka.Addrs()), w.letterTopic())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	b.args = []string{"--config", config}
	if code, out, err := w.command(ctx, 0, "setup", "--config", config, "--create-table=polling"); err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("set the neighbour up: code %d: %s", code, out))
	}
	return b.start(ctx)
}

func (b *neighbour) start(ctx context.Context) error {
	port, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(b.w.dir, b.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(b.w.relays.binary, append(append([]string{"run"}, b.args...), "--set", "http.listen=127.0.0.1:"+strconv.Itoa(port))...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.Stdout, cmd.Stderr = log, log
	if b.process, err = sandbox.Run(cmd); err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Second}
	if !b.w.await(ctx, 30*sec, func() bool {
		status, err := ask(client, fmt.Sprintf("http://127.0.0.1:%d", port))
		return err == nil && status.State == "streaming"
	}) && ctx.Err() == nil {
		return errors.New("the neighbour does not stream")
	}
	return nil
}

// end leaves nothing of the neighbour but its topic and its letters.
func (b *neighbour) end(ctx context.Context) error {
	if b.process != nil {
		_ = b.process.Signal(syscall.SIGTERM)
		select {
		case <-b.process.Done():
		case <-time.After(25 * sec):
			b.process.Kill()
			b.w.problem("the neighbour went on for 25s after SIGTERM")
		}
	}
	for _, sql := range []string{
		"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '%s'",
		"DROP PUBLICATION IF EXISTS %s", "DROP TABLE IF EXISTS %s",
	} {
		if err := b.w.sql(ctx, strings.ReplaceAll(sql, "%s", b.name)); err != nil {
			return err
		}
	}
	return nil
}
