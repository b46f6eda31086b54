package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sandbox/objects"
)

// The kinds of this file have a table whose delivered rows a command removes, exports, marks,
// compares or sends again, while a writer and a relay go on. The command is killed at one named
// step after the other; then it is called until it is done. What became of the rows is compared
// with what was written and with what the brokers had by then.

// stepCase is a command with the table that it works on.
type stepCase struct {
	name, about string
	command     []string
	entry       func(*stepTable) string // of the table in the configuration
	steps       []string                // of each round
	first       []string                // of the first round, before them; with again: of each

	archive    bool // rows go to a table
	files      bool // rows go to files
	bucket     bool // files are objects
	partitions bool // whole ones go
	rejects    bool // each round has rows that are rejected
	proves     bool // the result says how many rows are proven
	again      bool // rows are sent again
	toTopic    bool // and to another topic
	alone      bool // no relay streams meanwhile
}

// removes reports whether rows go.
func (c *stepCase) removes() bool { return !c.again && !c.proves && !c.marks() }

func (c *stepCase) marks() bool { return len(c.command) > 0 && c.command[0] == markCommand[0] }

// stepTable is the table of one case.
type stepTable struct {
	oldTable
	c *stepCase

	store    *objects.Store
	storeURL string
	relay    *sandbox.Process // nil: none runs
	first    int64            // rows up to this id are sent again
	history  stepHistory
	days     int          // partitions that were made
	newest   atomic.Int64 // of them
}

func (o *stepTable) folder() string { return filepath.Join(o.w.dir, o.name+"-export") }

func playSteps(ctx context.Context, w *world, d *Done, c *stepCase) error {
	o := &stepTable{c: c, oldTable: oldTable{w: w, name: fmt.Sprintf("%s_s%d", w.slot, d.N%1e6)}}
	o.topic = o.name + "-events"
	var err error
	if o.binary, err = w.servers.stepsBinary(ctx, w.dir); err != nil {
		return err
	}
	err = o.play(ctx, d)
	return errors.Join(err, o.end(context.WithoutCancel(ctx)))
}

func (o *stepTable) play(ctx context.Context, d *Done) error {
	defer func() {
		if o.relay != nil {
			o.relay.Kill()
		}
	}()
	if o.c.bucket {
		store, address, end, err := startStore()
		if err != nil {
			return err
		}
		defer end()
		o.store, o.storeURL = store, address
	}
	if err := o.build(ctx); err != nil {
		return err
	}
	if !o.c.alone {
		if err := o.start(); err != nil {
			return err
		}
	}
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { o.write(working) })
	end := func() { stop(); work.Wait() }
	defer end()
	killed, err := o.kill(ctx, int(max(1, d.N/1000)))
	d.Detail = fmt.Sprintf("%d kills", killed)
	if err != nil || ctx.Err() != nil {
		return err
	}
	end() // what was written is there now
	if err := o.finish(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return o.judge(ctx)
}

const upkeepLine = "maintenance: {in_run: false, wait: 20s, batch_rows: 5, max_rows_per_second: 0}\n"

const (
	stepRows = 160      // that a round writes beside the writer
	badTopic = "no way" // for a row that is rejected: it is no name of a topic
	stepKeys = 3
)

// build makes table, topics and configuration, and the slot before any row.
func (o *stepTable) build(ctx context.Context) error {
	w := o.w
	topics := []string{o.topic, o.letters()}
	if o.c.toTopic {
		topics = append(topics, o.topic+"-again")
	}
	for _, topic := range topics {
		if err := w.createTopic(ctx, topic); err != nil {
			return err
		}
	}
	relay := "detect_moved_slot: true"
	if w.plan.ExactlyOnce {
		relay = "guarantee: exactly_once"
	}
	config := filepath.Join(w.dir, o.name+".yaml")
	text := fmt.Sprintf("postgres: {url: %q, slot: %s, publication: %s, wal_sender_timeout: %s}\noutbox:\n  - {table: public.%s, preset: outbox, %s}\nkafka:\n  brokers: [%s]\nlog: {level: info, format: text}\n%srelay: {%s, checkpoint_topic: %s, on_reject: dead_letter, dead_letter_topic: %s}\n",
		proxied(w.pg.URL(w.database), w.pgProxy.Addr()), o.name, o.name, senderTimeout, o.name, o.c.entry(o), join(w.kafka.Addrs()), upkeepLine, relay, o.name+"-positions", o.letters())
	if o.c.entry(o) == "" { // nothing is to be maintained, and such keys would be refused
		text = strings.ReplaceAll(text, "preset: outbox, }", "preset: outbox}")
		text = strings.ReplaceAll(text, upkeepLine, "")
	}
	if err := errors.Join(os.WriteFile(config, []byte(text), 0o600), os.MkdirAll(o.folder(), 0o755), w.sql(ctx, o.schema())); err != nil {
		return err
	}
	o.args = []string{"--config", config}
	if out, code, _, err := o.call(ctx, nil, []string{"setup"}, nil); err != nil || code != 0 {
		return fmt.Errorf("setup: %d: %s: %w", code, out, err)
	}
	if err := o.refill(ctx, oldRows/3); err != nil {
		return err
	}
	if o.c.again {
		return w.session(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT max(id) FROM "+o.name).Scan(&o.first)
		})
	}
	return nil
}

func (o *stepTable) letters() string { return o.name + "-letters" }

// schema notes in the same transactions what is written, and what becomes of rows.
func (o *stepTable) schema() string {
	key, parts := "id", ""
	if o.c.partitions {
		key = "id, created_at"
		parts = " PARTITION BY RANGE (created_at); CREATE TABLE %[1]s_now PARTITION OF %[1]s FOR VALUES FROM (current_date - 1) TO (current_date + 1)"
	}
	sql := `CREATE TABLE %[1]s (id bigint GENERATED ALWAYS AS IDENTITY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
			created_at timestamptz NOT NULL DEFAULT now() - interval '3 hours', published_at timestamptz, retry_count int NOT NULL DEFAULT 0, last_error text, PRIMARY KEY (` + key + `))` + parts + `;
		CREATE TABLE %[1]s_written (id bigint, key text, bad bool, part text);
		CREATE TABLE %[1]s_gone (id bigint, how text, at timestamptz DEFAULT clock_timestamp());
		CREATE TABLE %[1]s_archive (LIKE %[1]s INCLUDING DEFAULTS);
		CREATE FUNCTION %[1]s_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF TG_OP = 'INSERT' THEN
				INSERT INTO public.%[1]s_written VALUES (NEW.id, NEW.aggregate_id, NEW.aggregate_type = '` + badTopic + `', TG_TABLE_NAME);
			ELSE
				INSERT INTO public.%[1]s_gone VALUES (OLD.id, TG_OP);
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER note AFTER INSERT OR DELETE OR UPDATE OF published_at ON %[1]s FOR EACH ROW EXECUTE FUNCTION %[1]s_note()`
	if o.c.partitions {
		sql += `;
		CREATE FUNCTION %[1]s_dropped() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO public.%[1]s_gone SELECT w.id, 'DROP' FROM public.%[1]s_written w JOIN pg_event_trigger_dropped_objects() d ON d.object_type = 'table' AND d.object_name = w.part
				WHERE NOT EXISTS (SELECT FROM public.%[1]s_gone g WHERE g.id = w.id);
		END $$;
		CREATE EVENT TRIGGER %[1]s_dropped ON sql_drop EXECUTE FUNCTION %[1]s_dropped()`
	}
	return fmt.Sprintf(sql, o.name)
}

// refill writes rows for the next call, with keys of their own, unless enough are left of before.
func (o *stepTable) refill(ctx context.Context, n int) error {
	left := 0
	if err := o.w.session(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT count(*) FROM "+o.name+" WHERE published_at IS NULL").Scan(&left)
	}); err != nil || left > 2*stepRows && !o.c.partitions && !o.c.rejects {
		return err
	}
	insert := "INSERT INTO %[1]s (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT '%[2]s', '%[3]s' || n %% %[4]d, 'Filled', jsonb_build_object('n', n), %[5]s FROM generate_series(1, %[6]d) n"
	add := func(kind, key, at string, n int) error {
		return o.w.sql(ctx, fmt.Sprintf(insert, o.name, kind, key, stepKeys, at, n))
	}
	if !o.c.partitions {
		if o.c.rejects {
			n = min(n, 20) // its transactions are the smallest
		}
		err := add(o.name, "f", "now() - interval '3 hours'", n)
		if err == nil && (o.c.rejects || o.days == 0 && !o.c.again && !o.c.proves) {
			err = add(badTopic, "bad", "now() - interval '3 hours'", 7)
		}
		o.days++
		return err
	}
	if err := o.w.session(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND starts_with(relname, $1)", o.name+"_old_").Scan(&left)
	}); err != nil || left > 6 { // each takes seconds beside a writer that stands still
		return err
	}
	for range 2 {
		o.days++
		day := fmt.Sprintf("'2020-01-01'::date + %d", o.days)
		err := o.w.sql(ctx, fmt.Sprintf("CREATE TABLE %[1]s_old_%[2]d PARTITION OF %[1]s FOR VALUES FROM (%[3]s) TO (%[3]s + 1)", o.name, o.days, day))
		if err == nil {
			err = add(o.name, "f", "("+day+")::timestamptz + interval '1 hour'", n/4)
		}
		if err == nil && o.days == 3 { // a partition that stays
			err = add(badTopic, "bad", "("+day+")::timestamptz + interval '1 hour'", 2)
		}
		if err != nil {
			return err
		}
		o.newest.Store(int64(o.days))
	}
	return nil
}

// write inserts one row after the other, so that the order of their ids is that of their commits.
// Where partitions go, some of its rows are back-dated.
func (o *stepTable) write(ctx context.Context) {
	sql := fmt.Sprintf("INSERT INTO %[1]s (aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('%[1]s', 'w' || $1 %% %[2]d, 'New', '{}', $2::timestamptz)", o.name, stepKeys)
	n, pause := 0, 20*ms
	if o.c.marks() {
		pause = 100 * ms // slower than small transactions with a look at the table before each
	}
	o.connected(ctx, func(conn *pgx.Conn) error {
		n++
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTime)
		defer cancel()
		at := time.Now().Add(-3 * time.Hour)
		if o.c.partitions && n%3 == 0 {
			_, err := conn.Exec(limit, sql, n, time.Date(2020, 1, 1+int(o.newest.Load()), 3, 0, 0, 0, time.UTC))
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "23514" { // no partition takes it, or no longer
				rest(ctx, pause)
				return err
			}
		}
		_, err := conn.Exec(limit, sql, n, at)
		rest(ctx, pause)
		return err
	})
}

// start starts a relay, if one is to run now.
func (o *stepTable) start() error {
	port, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	o.relay, err = o.begin(o.name+"-relay", nil, []string{"run", "--set", fmt.Sprintf("http.listen=127.0.0.1:%d", port)})
	return err
}

// kill calls the command, and kills it at its next step each time, so often in all.
func (o *stepTable) kill(ctx context.Context, times int) (killed int, err error) {
	for round := 0; killed < times && ctx.Err() == nil; round++ {
		steps := o.c.killsIn(round, o.w.plan.ExactlyOnce)
		steps = steps[:min(len(steps), times-killed)]
		run := ""
		for _, step := range steps {
			if err := o.refill(ctx, stepRows); err != nil {
				return killed, err
			}
			died, err := o.until(ctx, step, killed%3 == 1, &run)
			if err != nil || ctx.Err() != nil {
				return killed, err
			}
			if !died {
				o.w.problem("steps: %s did not come to step %s", o.c.name, step)
				continue
			}
			killed++
		}
		if o.c.again {
			if _, err := o.until(ctx, "", false, &run); err != nil {
				return killed, err
			}
			o.history.runs = append(o.history.runs, run)
		}
	}
	return killed, nil
}

var runID = regexp.MustCompile(`(?:run|--resume) ([A-Z2-7]{26})`)

// until calls the command until it dies at a step, or is done where there is none. behind: the
// relay stands still for the first second.
func (o *stepTable) until(ctx context.Context, step string, behind bool, run *string) (died bool, err error) {
	env := slices.Clone(storeEnv)
	if step != "" {
		env = append(env, failpointVariable+"="+step)
	}
	for call := 0; call < calls && ctx.Err() == nil; call++ {
		var beside func() error
		if behind && call == 0 && o.relay != nil {
			if err := o.relay.Signal(syscall.SIGSTOP); err != nil {
				return false, err
			}
			if err := o.refill(ctx, stepRows/2); err != nil {
				return false, err
			}
			beside = func() error { return o.relay.Signal(syscall.SIGCONT) }
		}
		out, code, died, err := o.call(ctx, env, o.words(*run), beside)
		whole, _ := os.ReadFile(filepath.Join(o.w.dir, o.name+".log"))
		if found := runID.FindSubmatch(whole); found != nil {
			*run = string(found[1])
		}
		switch {
		case err != nil || ctx.Err() != nil || died:
			return died, err
		case code == 0:
			o.history.proven = provenOf(string(whole))
			return false, nil
		case code == 3 && o.c.alone && strings.Contains(out, "the slot is in use"): // the server has not noticed yet that the one before was killed
		case code != 1: // 1: not finished, run it again
			o.w.problem("steps: %s at %q ended with %d: %s", o.c.name, step, code, out)
			return false, nil
		}
		rest(ctx, 300*ms)
	}
	if ctx.Err() == nil {
		text, _ := os.ReadFile(filepath.Join(o.w.dir, o.name+".log"))
		o.w.problem("steps: %s was not done, and did not come to %q, after %d calls: %s", o.c.name, step, calls, text[max(0, len(text)-800):])
	}
	return false, nil
}

// words are the command and its flags.
func (o *stepTable) words(run string) []string {
	if !o.c.again {
		return o.c.command
	}
	words := []string{"replay", "--yes", "--max-rate", "800", "--where", fmt.Sprintf("id <= %d", o.first)}
	if o.c.toTopic {
		words = append(words, "--to-topic", o.topic+"-again")
	}
	if run != "" && !slices.Contains(o.history.runs, run) {
		words = append(words, "--resume", run)
	}
	return append(words, o.c.command...)
}

// finish has the relay deliver everything, and the command do what is left.
func (o *stepTable) finish(ctx context.Context) error {
	if o.relay == nil {
		if err := o.start(); err != nil {
			return err
		}
	}
	tip, err := o.w.lsn(ctx, "SELECT pg_current_wal_insert_lsn()::text")
	if err != nil {
		return err
	}
	if !o.w.await(ctx, callLimit, func() bool {
		at, err := o.w.lsn(ctx, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", o.name)
		return err == nil && at >= tip
	}) && ctx.Err() == nil {
		text, _ := os.ReadFile(filepath.Join(o.w.dir, o.name+"-relay.log"))
		o.w.problem("steps: %s: the relay did not come to %s: %s", o.c.name, showLSN(tip), text[max(0, len(text)-600):])
	}
	if !o.c.again {
		run := ""
		if _, err := o.until(ctx, "", false, &run); err != nil || ctx.Err() != nil {
			return err
		}
	}
	if err := o.relay.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("the relay is gone: %w", err)
	}
	if code := o.relay.ExitCode(); code != 0 {
		text, _ := os.ReadFile(filepath.Join(o.w.dir, o.name+"-relay.log"))
		o.w.problem("steps: %s: the relay ended with %d: %s", o.c.name, code, text[max(0, len(text)-600):])
	}
	return nil
}

// end leaves nothing but topics.
func (o *stepTable) end(ctx context.Context) error {
	err := o.w.sql(ctx, fmt.Sprintf("DROP EVENT TRIGGER IF EXISTS %s_dropped", o.name))
	err = errors.Join(err, o.oldTable.end(ctx))
	return errors.Join(err, o.w.sql(ctx, fmt.Sprintf("DROP TABLE IF EXISTS %[1]s_written, %[1]s_gone, %[1]s_archive; DROP FUNCTION IF EXISTS %[1]s_note, %[1]s_dropped", o.name)))
}
