package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// The kinds of this file have a table with rows from before its slot, or with a publisher that
// polls it, while a writer goes on. Commands of the relay bring its rows over, and are killed at
// named steps, or their servers fail. The commands are called again until they are done, and
// what arrived is compared with the table.

var onAllServers = []string{"postgres", "pgnet", "kafka", "kafkanet"}

var oldKinds = []*kind{
	{name: "backfill_kill", about: "kill -9 of backfill at three named steps, called again until it is done", takes: onAllServers, run: func(ctx context.Context, w *world, d *Done) error {
		steps := backfillSteps(w.plan.ExactlyOnce)
		return playOld(ctx, w, d, &oldTable{command: backfillCommand, kills: someSteps(steps, d.N, 3)})
	}},
	{name: "backfill_online_kill", about: "kill -9 of backfill --online at three named steps, called again until it is done", takes: onAllServers, run: func(ctx context.Context, w *world, d *Done) error {
		return playOld(ctx, w, d, &oldTable{command: onlineCommand, kills: someSteps(onlineSteps(w.plan.ExactlyOnce), d.N, 3)})
	}},
	{name: "cutover_kill", about: "kill -9 of cutover at three named steps while a publisher polls, called again until it is done", takes: onAllServers, run: func(ctx context.Context, w *world, d *Done) error {
		return playOld(ctx, w, d, &oldTable{command: cutoverCommand, polled: true, kills: someSteps(cutoverSteps, d.N, 3)})
	}},
	{name: "backfill_steps", about: "kill -9 of backfill at each named step", takes: onAllServers, special: true, run: func(ctx context.Context, w *world, d *Done) error {
		return playOld(ctx, w, d, &oldTable{command: backfillCommand, kills: backfillSteps(w.plan.ExactlyOnce), strict: true})
	}},
	{name: "backfill_online_steps", about: "kill -9 of backfill --online at each named step", takes: onAllServers, special: true, run: func(ctx context.Context, w *world, d *Done) error {
		return playOld(ctx, w, d, &oldTable{command: onlineCommand, kills: onlineSteps(w.plan.ExactlyOnce), strict: true})
	}},
	{name: "cutover_steps", about: "kill -9 of cutover at each named step", takes: onAllServers, special: true, run: func(ctx context.Context, w *world, d *Done) error {
		return playOld(ctx, w, d, &oldTable{command: cutoverCommand, polled: true, kills: cutoverSteps, strict: true})
	}},
}

var (
	backfillCommand = []string{"backfill", "--all", "--yes", "--max-rate", "3000"} // some transactions, where there are any
	onlineCommand   = []string{"backfill", "--online", "--all", "--rows-are-kept", "--buckets", "4", "--yes", "--max-rate", "3000"}
	cutoverCommand  = []string{"cutover", "--mark-new", "--settle", "1s", "--watch", "100ms", "--yes"}
)

// backfillSteps are where backfill dies, in an order in which one call after the other gets there:
// NAME:N is the Nth time.
func backfillSteps(once bool) []string {
	steps := []string{"old_slot_made:1", "old_snapshot_taken:1", "old_begun:1", "old_snapshot_taken:1", "old_page_read:1", "old_page_read:3"}
	if once {
		steps = append(steps, "old_position_set:2", "before_end:1", "after_end:1", "old_position_set:1")
	} else {
		steps = append(steps, "before_produce:1", "in_promise:700", "old_done_written:1")
	}
	return append(steps, "old_sent:1", "old_finished:1", "old_copied:1", "old_written:1", "old_dropped:1")
}

// onlineSteps are those of backfill --online with four buckets, of which three are sent on the way.
func onlineSteps(once bool) []string {
	steps := []string{"old_slot_made:1", "old_snapshot_taken:1", "old_begun:1", "old_snapshot_taken:1", "old_page_read:1"}
	if once {
		steps = append(steps, "old_position_set:1", "before_end:1", "after_end:1")
	} else {
		steps = append(steps, "before_produce:1", "old_done_written:2")
	}
	return append(steps, "old_sent:1", "old_bucket_done:1", "old_caught_up:1", "old_bucket_done:1", "old_caught_up:2", "old_finished:1", "old_copied:1", "old_written:1", "old_dropped:1")
}

var cutoverSteps = []string{"old_slot_made:1", "old_trigger_made:1", "old_drained:1", "old_settled:1", "old_advanced:1", "old_copied:1", "old_written:1", "old_dropped:1"}

// someSteps takes n of the steps, which keep their order.
func someSteps(steps []string, from uint64, n int) (some []string) {
	taken := make([]bool, len(steps))
	for i := range uint64(n) {
		taken[(from+i*(from%7+1))%uint64(len(steps))] = true
	}
	for i, is := range taken {
		if is {
			some = append(some, steps[i])
		}
	}
	return some
}

// oldFailpoints are steps of commands beside the relay's own. The relay does not come there.
var oldFailpoints = []failpoint{
	{name: "old_", about: "a step of backfill is done", patch: patch{"backfill/backfill.go", "b.OnStep = func(string) {}", "b.OnStep = func(step string) { failpoint(\"old_\" + step) }"}},
	{name: "old_", about: "a step of cutover is done", patch: patch{"cutover/cutover.go", "c.OnStep = func(string) {}", "c.OnStep = func(step string) { failpoint(\"old_\" + step) }"}},
	ahead("old_page_read", "a page of old rows was read, and is not handed on", "backfill/source.go", "p.r.w.track.Fly(p.spot)"),
	{name: "old_done_written", about: "the progress was written", patch: patch{"backfill/work.go", "return w.ledger.Write(ctx, w.key(p), p.Encode())",
		"err := w.ledger.Write(ctx, w.key(p), p.Encode())\n\tfailpoint(\"old_done_written\")\n\treturn err"}},
	onlyWith(exactlyOnce, ahead("old_position_set", "a place is about to join a Kafka transaction", "backfill/transactional.go", "m.Value = t.w.progress.At(place).Encode()")),
}

const (
	oldRows   = 3000 // before the slot
	oldKeys   = 7
	callLimit = 90 * sec // for one call of a command
	calls     = 40       // until it is done
)

// oldTable is a table with rows that no slot has.
type oldTable struct {
	command []string
	polled  bool                                       // by a publisher
	kills   []string                                   // failpoints, one for each call
	strict  bool                                       // it has to come to each of them
	halfway func(context.Context, *world, *Done) error // made once the first call is in the middle

	w      *world
	name   string // of table, publication and slot
	topic  string
	args   []string
	binary string
}

// playOld plays one table to its end, and takes it away.
func playOld(ctx context.Context, w *world, d *Done, o *oldTable) error {
	o.w, o.name = w, fmt.Sprintf("%s_o%d", w.slot, d.N%1e6)
	o.topic = o.name + "-events"
	var err error
	if o.binary, err = w.servers.stepsBinary(ctx, w.dir); err != nil {
		return err
	}
	err = o.play(ctx, d)
	return errors.Join(err, o.end(context.WithoutCancel(ctx)))
}

func (o *oldTable) play(ctx context.Context, d *Done) error {
	if err := o.build(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { o.write(working) })
	if o.polled {
		work.Go(func() { o.poll(working) })
	}
	end := func() { stop(); work.Wait() }
	defer end()
	killed, err := o.bring(ctx, d)
	if len(o.kills) > 0 {
		d.Detail = fmt.Sprintf("%d of %d kills", killed, len(o.kills))
	}
	if err != nil || ctx.Err() != nil {
		return err
	}
	if o.strict && killed < len(o.kills) || len(o.kills) > 0 && killed == 0 {
		o.w.problem("old rows: %s came to %d of the %d steps at which it was to die: %s", o.command[0], killed, len(o.kills), strings.Join(o.kills, " "))
	}
	rest(ctx, 300*ms)
	end() // what was written is the stream's
	if err := o.stream(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return o.compare(ctx)
}

// build makes table, rows, topic and configuration.
func (o *oldTable) build(ctx context.Context) error {
	w := o.w
	if err := w.createTopic(ctx, o.topic); err != nil {
		return err
	}
	config := filepath.Join(w.dir, o.name+".yaml")
	relay := "detect_moved_slot: true"
	if w.plan.ExactlyOnce {
		relay = "guarantee: exactly_once"
	}
	text := fmt.Sprintf("postgres: {url: %q, slot: %s, publication: %s, wal_sender_timeout: %s}\noutbox:\n  - {table: public.%s, preset: outbox}\nkafka:\n  brokers: [%s]\nlog: {level: info, format: text}\nrelay: {%s, checkpoint_topic: %s}\n",
		proxied(w.pg.URL(w.database), w.pgProxy.Addr()), o.name, o.name, senderTimeout, o.name, join(w.kafka.Addrs()), relay, o.name+"-positions")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	o.args = []string{"--config", config}
	if err := w.sql(ctx, fmt.Sprintf(`CREATE TABLE %s (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
		event_type text NOT NULL, payload jsonb NOT NULL, created_at timestamptz DEFAULT now(), published_at timestamptz)`, o.name)); err != nil {
		return err
	}
	n := oldRows
	if o.polled {
		n = 200 // a publisher has sent the others
	}
	return w.sql(ctx, fmt.Sprintf(`INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload) SELECT '%s', n %% %d, 'Old', '{}' FROM generate_series(1, %d) n`, o.name, o.name, oldKeys, n))
}

// write inserts one row after the other, so that the order of their ids is that of their commits.
func (o *oldTable) write(ctx context.Context) {
	sql := fmt.Sprintf(`INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', ($1::int %% %d)::text, 'New', '{}')`, o.name, o.name, oldKeys)
	n := 0
	o.connected(ctx, func(conn *pgx.Conn) error {
		n++
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTime)
		defer cancel()
		_, err := conn.Exec(limit, sql, n)
		rest(ctx, 4*ms)
		return err
	})
}

// poll is a publisher: it sends rows without a mark, and marks them.
func (o *oldTable) poll(ctx context.Context) {
	client, err := kgo.NewClient(kgo.SeedBrokers(o.w.kafka.Addrs()...), o.w.kafka.Direct())
	if err != nil {
		o.w.problem("old rows: %v", err)
		return
	}
	defer client.Close()
	o.connected(ctx, func(conn *pgx.Conn) error {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTime)
		defer cancel()
		rows, err := conn.Query(limit, "SELECT id, aggregate_id, payload::text FROM "+o.name+" WHERE published_at IS NULL ORDER BY id LIMIT 20")
		if err != nil {
			return err
		}
		var ids []int64
		var records []*kgo.Record
		var id int64
		var key, value string
		if _, err := pgx.ForEachRow(rows, []any{&id, &key, &value}, func() error {
			ids = append(ids, id)
			records = append(records, &kgo.Record{Topic: o.topic, Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Append(nil, id)}, {Key: "by", Value: []byte("publisher")}}})
			return nil
		}); err != nil {
			return err
		}
		if len(ids) == 0 {
			rest(ctx, 20*ms)
			return nil
		}
		if err := client.ProduceSync(limit, records...).FirstErr(); err != nil {
			return err
		}
		_, err = conn.Exec(limit, "UPDATE "+o.name+" SET published_at = now() WHERE id = ANY ($1)", ids)
		return err
	})
}

func (o *oldTable) connected(ctx context.Context, step func(*pgx.Conn) error) {
	(&workload{url: proxied(o.w.pg.URL(o.w.database), o.w.inProxy.Addr())}).connected(ctx, step)
}

// bring calls the command until it is done, and kills it at the next step each time.
func (o *oldTable) bring(ctx context.Context, d *Done) (killed int, err error) {
	next, said := 0, ""
	for call := 0; call < calls && ctx.Err() == nil; call++ {
		var env []string
		if next < len(o.kills) {
			env = []string{failpointVariable + "=" + o.kills[next]}
		}
		out, code, died, err := o.call(ctx, env, o.command, func() error {
			if o.halfway == nil || call > 0 {
				return nil
			}
			return o.fails(ctx, d)
		})
		switch {
		case err != nil || ctx.Err() != nil:
			return killed, err
		case died:
			next++
			killed++
		case code == 0:
			return killed, nil
		case code != 1: // 1: not finished, run it again
			o.w.problem("old rows: %s ended with %d: %s", o.command[0], code, out)
			return killed, nil
		default:
			said = out
			rest(ctx, 500*ms)
		}
	}
	if ctx.Err() == nil {
		o.w.problem("old rows: %s was not done after %d calls, of which the last one said: %s", o.command[0], calls, said)
	}
	return killed, nil
}

// call runs a command; died: by kill -9, at its failpoint.
func (o *oldTable) call(ctx context.Context, env, command []string, beside func() error) (out string, code int, died bool, err error) {
	process, err := o.begin(o.name, env, command)
	if err != nil {
		return "", 0, false, err
	}
	outcome := make(chan error, 1)
	if beside == nil {
		outcome <- nil
	} else {
		go func() { outcome <- beside() }()
	}
	select {
	case <-process.Done():
	case <-time.After(callLimit):
		o.w.problem("old rows: %s took longer than %s", command[0], callLimit)
		process.Kill()
	case <-ctx.Done():
		process.Kill()
	}
	err = <-outcome
	text, _ := os.ReadFile(filepath.Join(o.w.dir, o.name+".log"))
	code = process.ExitCode()
	return strings.TrimSpace(string(text[max(0, len(text)-800):])), code, code == -1, err
}

// begin starts a command. What it says is in the file of that name.
func (o *oldTable) begin(name string, env, command []string) (*sandbox.Process, error) {
	log, err := os.Create(filepath.Join(o.w.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(o.binary, append(slices.Clone(command), o.args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	cmd.Stdout, cmd.Stderr = log, log
	return sandbox.Run(cmd)
}

// stream runs a relay until the slot has all that was written.
func (o *oldTable) stream(ctx context.Context) error {
	tip, err := o.w.lsn(ctx, "SELECT pg_current_wal_insert_lsn()::text")
	if err != nil {
		return err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	streaming, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		o.w.await(streaming, callLimit-10*sec, func() bool {
			at, err := o.w.lsn(streaming, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", o.name)
			return err == nil && at >= tip
		})
		stop()
	}()
	_, _, _, err = o.call(streaming, nil, []string{"run", "--set", fmt.Sprintf("http.listen=127.0.0.1:%d", port)}, nil)
	if ctx.Err() != nil {
		return nil
	}
	at, asked := o.w.lsn(ctx, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", o.name)
	if asked == nil && at < tip {
		text, _ := os.ReadFile(filepath.Join(o.w.dir, o.name+".log"))
		o.w.problem("old rows: the relay came to %s of %s: %s", showLSN(at), showLSN(tip), text[max(0, len(text)-600):])
	}
	return errors.Join(err, asked)
}

// compare holds what arrived against the table.
func (o *oldTable) compare(ctx context.Context) error {
	w := o.w
	records, err := sandbox.ReadTopics(ctx, w.kafka.Addrs(), []string{o.topic}, w.reads()...)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, w.pg.URL(w.database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT t.id::text, t.aggregate_id FROM "+o.name+" t ORDER BY t.id")
	if err != nil {
		return err
	}
	var truth []oldRow
	var row oldRow
	if _, err := pgx.ForEachRow(rows, []any{&row.id, &row.key}, func() error { truth = append(truth, row); return nil }); err != nil {
		return err
	}
	for _, text := range judgeOld(truth, records, w.plan.ExactlyOnce) {
		w.problem("old rows: %s: %s", strings.Join(o.command, " "), text)
	}
	return nil
}

// oldRow is a row of the table, in the order of writing.
type oldRow struct{ id, key string }

// oldPlace is where a record of a row lies.
type oldPlace struct {
	partition int32
	offset    int64
	publisher bool
}

// placesOf are the records by the ids of their events.
func placesOf(records []*kgo.Record) map[string][]oldPlace {
	of := map[string][]oldPlace{}
	for _, r := range records {
		id, publisher := "", false
		for _, h := range r.Headers {
			switch h.Key {
			case "id":
				id = string(h.Value)
			case "by":
				publisher = true
			}
		}
		of[id] = append(of[id], oldPlace{r.Partition, r.Offset, publisher})
	}
	return of
}

// wrongOld are ids of rows, by what is wrong with their records.
type wrongOld struct{ missing, order, ends, twice, both []string }

// judgeOld says what is wrong with the records of a table's rows: each row is there, nothing else
// is, the first records of a key are in the order of its rows, and the last is of its last row.
// No row is the publisher's and the relay's. Once: the relay sent none twice.
func judgeOld(rows []oldRow, records []*kgo.Record, once bool) (wrong []string) {
	of := placesOf(records)
	var w wrongOld
	before, last := map[string]oldPlace{}, map[string]oldPlace{} // by key: the row before's first record, and the last one
	final := map[string]oldRow{}
	for _, row := range rows {
		found := of[row.id]
		delete(of, row.id)
		final[row.key] = row
		if len(found) == 0 {
			w.missing = append(w.missing, row.id)
			continue
		}
		first, latest := w.row(row.id, found, once)
		if was, had := before[row.key]; had && (first.partition != was.partition || first.offset < was.offset) {
			w.order = append(w.order, row.id)
		}
		before[row.key] = first
		if was, had := last[row.key]; had && latest.offset < was.offset {
			w.ends = append(w.ends, row.id)
			continue
		}
		last[row.key] = latest
	}
	w.ends = slices.DeleteFunc(w.ends, func(id string) bool { // only the end counts: repetitions jump back, and go on from there
		return !slices.ContainsFunc(rows, func(r oldRow) bool { return r.id == id && final[r.key].id == id })
	})
	for id := range of {
		wrong = append(wrong, fmt.Sprintf("P2: a record of %q, which no row is", id))
	}
	return append(wrong, w.lines()...)
}

// row looks at the records of one row, and returns the first and the last.
func (w *wrongOld) row(id string, found []oldPlace, once bool) (first, latest oldPlace) {
	first, latest = found[0], found[0]
	sent, published := 0, 0
	for _, p := range found {
		if p.offset < first.offset {
			first = p
		}
		if p.offset > latest.offset {
			latest = p
		}
		if p.publisher {
			published++
		} else {
			sent++
		}
	}
	if once && sent > 1 {
		w.twice = append(w.twice, id)
	}
	if sent > 0 && published > 0 {
		w.both = append(w.both, id)
	}
	return first, latest
}

func (w *wrongOld) lines() (lines []string) {
	for _, each := range []struct {
		what string
		ids  []string
	}{
		{"P1: %d rows were never delivered, such as %s", w.missing}, {"P4: %d rows come first before an older one of their key, such as %s", w.order},
		{"P5: %d keys do not end with their last row, such as %s", w.ends}, {"P10: %d rows were sent twice, such as %s", w.twice}, {"%d rows are the publisher's and the relay's, such as %s", w.both},
	} {
		if len(each.ids) > 0 {
			lines = append(lines, fmt.Sprintf(each.what, len(each.ids), each.ids[0]))
		}
	}
	return lines
}

// end leaves nothing but topics.
func (o *oldTable) end(ctx context.Context) error {
	for _, sql := range []string{
		"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name LIKE '%s%%' AND active",
		"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE '%s%%'",
		"DROP PUBLICATION IF EXISTS %s", "DROP TABLE IF EXISTS %s",
	} {
		if err := o.w.sql(ctx, fmt.Sprintf(sql, o.name)); err != nil {
			return err
		}
	}
	return nil
}

// stepsBinary is a relay that dies where it is told to, built once.
func (s *servers) stepsBinary(ctx context.Context, dir string) (string, error) {
	s.building.Lock()
	defer s.building.Unlock()
	if s.steps != "" {
		if _, err := os.Stat(s.steps); err == nil {
			return s.steps, nil
		}
	}
	path, err := buildFailpoints(ctx, filepath.Join(filepath.Dir(dir), "steps"))
	if err != nil {
		return "", err
	}
	if s.steps, err = filepath.Abs(path); err != nil {
		return "", err
	}
	return s.steps, nil
}
