package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// kind is one named fault. run makes it, waits as long as the action says, and
// heals it, so that it never outlives its action.
type kind struct {
	name        string
	about       string
	takes       []string // what no other fault may touch meanwhile
	brokers     string   // where it can be had: kfake, apache (either number), apache3; empty: everywhere
	not         string   // where it cannot be had although brokers would allow it
	relays      int      // how many it needs at least
	jobs        bool     // the relay works on delivered rows
	then        string   // with jobs: what becomes of rows, where the fault needs that
	registry    bool     // rows are encoded by schemas
	letters     bool     // rows are rejected and set aside
	link        bool     // the relays reach their servers over a network device
	special     bool     // not drawn: only for plans that name it
	unsettles   bool     // takes records away in the middle of Kafka transactions: what of them was committed cannot be told
	least, most time.Duration
	run         func(ctx context.Context, w *world, d *Done) error
}

func (k *kind) fits(broker string) bool {
	return !k.special && k.not != broker && (k.brokers == "" || k.brokers == broker || k.brokers == "apache" && broker == "apache3")
}

func kindNamed(name string) *kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

var kinds []*kind

func init() { // not a literal: kinds are looked up by what they run
	kinds = slices.Concat(relayKinds, postgresKinds, networkKinds, lostKinds, brokerKinds, codeKinds(), letterKinds, oldKinds, halfwayKinds, upkeepKinds, registryKinds, stepKinds(),
		[]*kind{{name: "failpoint", about: "kill -9 at a named step of the relay", takes: onRelay, special: true, run: stepFails}})
}

// hold waits as long as the fault is to last.
func (d *Done) hold(ctx context.Context) { rest(ctx, time.Duration(d.For)) }

var (
	onRelay    = []string{"relay"}
	onPostgres = []string{"postgres"}
	onPgNet    = []string{"pgnet"}
	onKafka    = []string{"kafka"}
	onKafkaNet = []string{"kafkanet"}
)

var relayKinds = []*kind{
	{name: "relay_kill", about: "kill -9 of the relay that holds the slot", takes: onRelay, most: 300 * ms, run: func(ctx context.Context, w *world, d *Done) error {
		n := w.relays.leader()
		w.relays.hold(n, true)
		defer w.relays.hold(n, false)
		w.relays.signal(n, syscall.SIGKILL, true)
		w.relays.ended(n, 5*sec)
		d.hold(ctx)
		return nil
	}},
	{name: "relay_kill_again", about: "kill -9, and again while the next one starts", takes: onRelay, most: 400 * ms, run: func(ctx context.Context, w *world, d *Done) error {
		n := w.relays.leader()
		for range 3 {
			w.relays.signal(n, syscall.SIGKILL, true)
			w.relays.ended(n, 5*sec)
			d.hold(ctx)
		}
		return nil
	}},
	{name: "relay_term", about: "SIGTERM under load, then a new start", takes: onRelay, most: 300 * ms, run: terminate},
	{name: "relay_term_twice", about: "a second SIGTERM cuts the drain that still goes on, as the brokers take nothing", takes: []string{"relay", "kafkanet"}, most: 30 * ms, run: terminateTwice},
	{name: "relay_freeze", about: "SIGSTOP for less than wal_sender_timeout", takes: onRelay, least: 300 * ms, most: 2 * sec, run: freeze},
	{name: "relay_freeze_long", about: "SIGSTOP beyond wal_sender_timeout", takes: onRelay, least: senderTimeout + sec, most: senderTimeout + 3*sec, run: freeze},
	{name: "standby_takes_over_kill", about: "two relays, the leader is killed", takes: onRelay, relays: 2, least: sec, most: 2 * sec, run: takeover(syscall.SIGKILL)},
	{name: "standby_takes_over_term", about: "two relays, the leader is stopped", takes: onRelay, relays: 2, least: sec, most: 2 * sec, run: takeover(syscall.SIGTERM)},
	{name: "standby_takes_over_freeze", about: "two relays, the leader is frozen beyond wal_sender_timeout and thawed", takes: onRelay, relays: 2, most: sec, run: func(ctx context.Context, w *world, d *Done) error {
		n, ok := w.ready(ctx)
		if !ok {
			d.Detail = "no standby was ready"
			return nil
		}
		before, _ := w.samples.latest()
		w.relays.signal(n, syscall.SIGSTOP, false)
		defer w.relays.signal(n, syscall.SIGCONT, false)
		w.handover(ctx, d, before.PID, false)
		d.hold(ctx)
		return nil
	}},
	{name: "standby_kill", about: "the relay that stands by is killed", takes: onRelay, relays: 2, most: 300 * ms, run: func(ctx context.Context, w *world, d *Done) error {
		n := (w.relays.leader() + 1) % w.plan.Relays
		w.relays.signal(n, syscall.SIGKILL, true)
		w.relays.ended(n, 5*sec)
		return nil
	}},
	{name: "relay_replaced", about: "the binary is replaced: old stopped, new started while the old one drains", takes: onRelay, relays: 2, run: func(ctx context.Context, w *world, d *Done) error {
		for range w.plan.Relays {
			if err := terminate(ctx, w, d); err != nil {
				return err
			}
			rest(ctx, 300*ms)
		}
		return nil
	}},
}

func terminate(ctx context.Context, w *world, d *Done) error {
	n := w.relays.leader()
	w.relays.hold(n, true)
	defer w.relays.hold(n, false)
	d.Detail = w.relays.state(n)
	began := time.Now()
	if !w.relays.signal(n, syscall.SIGTERM, true) {
		return nil
	}
	if !w.relays.ended(n, 25*sec) {
		w.problem("a relay went on for 25s after SIGTERM, with a drain_timeout of 15s")
		w.relays.signal(n, syscall.SIGKILL, true)
	}
	d.Took = Span(time.Since(began))
	d.hold(ctx)
	return nil
}

// notAnEcho is longer than the half second in which the relay takes a second signal for the
// first.
const notAnEcho = 600 * ms

// cutLimit is how long a stop may go on after a second SIGTERM. The relay gives up what the
// brokers did not answer (5 s at most) and then closes the stream (5 s more); a busy machine
// has the rest. A relay that ignores the signal, or takes it for the first, goes on until its
// drain_timeout of 15 s.
const cutLimit = 12 * sec

// terminateTwice holds the way to the brokers, so that rows are in flight and the
// drain lasts. A relay without rows, or one that just started, may still be gone
// before the second signal; the detail says so.
func terminateTwice(ctx context.Context, w *world, d *Done) error {
	w.await(ctx, 3*sec, func() bool { return w.relays.state(w.relays.leader()) == "streaming" }) // the fault before may have been of a relay, too
	n := w.relays.leader()
	w.relays.hold(n, true) // the second one is not for the next relay
	defer w.relays.hold(n, false)
	each(w.kafka.Proxies(), (*sandbox.Proxy).Stall)
	defer heal(w.kafka.Proxies())
	rest(ctx, 300*ms) // writers pause for less
	w.relays.signal(n, syscall.SIGTERM, true)
	rest(ctx, notAnEcho)
	d.hold(ctx)
	if !w.relays.signal(n, syscall.SIGTERM, true) {
		d.Detail = secondIsLate
		return nil
	}
	d.Detail = secondMeetsDrain
	if !w.relays.ended(n, cutLimit) {
		w.problem("a relay went on for %s after a second SIGTERM", cutLimit)
	}
	return nil
}

// What the second signal of relay_term_twice found.
const (
	secondMeetsDrain = "the second signal met a drain"
	secondIsLate     = "the relay was gone before the second signal"
)

func freeze(ctx context.Context, w *world, d *Done) error {
	n := w.relays.leader()
	w.relays.signal(n, syscall.SIGSTOP, false)
	defer w.relays.signal(n, syscall.SIGCONT, false)
	d.hold(ctx)
	return nil
}

// takeover ends the leader and measures until somebody else's walsender is there.
func takeover(by syscall.Signal) func(context.Context, *world, *Done) error {
	return func(ctx context.Context, w *world, d *Done) error {
		n, ok := w.ready(ctx)
		if !ok {
			d.Detail = "no standby was ready"
			return nil
		}
		before, _ := w.samples.latest()
		w.relays.hold(n, true)
		defer w.relays.hold(n, false)
		w.relays.signal(n, by, true)
		w.handover(ctx, d, before.PID, by == syscall.SIGTERM)
		d.hold(ctx)
		return nil
	}
}

// ready waits until a relay streams and the next one stands by, and says which.
func (w *world) ready(ctx context.Context) (leader int, ok bool) {
	ok = w.await(ctx, 10*sec, func() bool {
		leader = w.relays.leader()
		return w.relays.state(leader) == "streaming" && w.relays.state((leader+1)%w.plan.Relays) == "standby"
	})
	return leader, ok
}

// handover measures from the fault, or from the slot's release after a drain,
// until another walsender has the slot.
func (w *world) handover(ctx context.Context, d *Done, old int, drains bool) {
	began := time.Now()
	for ctx.Err() == nil && time.Since(d.Began) < 40*sec {
		s, ok := w.samples.latest()
		if ok && s.PID == old && drains {
			began = s.At
		}
		if ok && s.PID != 0 && s.PID != old {
			d.Took = Span(s.At.Sub(began))
			return
		}
		rest(ctx, 10*ms)
	}
}

var postgresKinds = []*kind{
	{name: "pg_fast", about: "fast stop and start", takes: onPostgres, run: fastStop},
	{name: "pg_fast_blocked", about: "fast stop while no record can be delivered", takes: []string{"postgres", "kafkanet"}, least: 500 * ms, most: sec, run: func(ctx context.Context, w *world, d *Done) error {
		each(w.kafka.Proxies(), (*sandbox.Proxy).Stall)
		defer heal(w.kafka.Proxies())
		d.hold(ctx)
		return fastStop(ctx, w, d)
	}},
	{name: "pg_immediate", about: "immediate stop, then recovery", takes: onPostgres, run: func(ctx context.Context, w *world, _ *Done) error {
		return w.pg.Restart(context.WithoutCancel(ctx), sandbox.Immediate)
	}},
	{name: "pg_kill", about: "kill -9 of all of the server, then recovery", takes: onPostgres, run: func(ctx context.Context, w *world, _ *Done) error {
		return errors.Join(w.pg.Kill(), w.pg.Start(context.WithoutCancel(ctx)))
	}},
	{name: "pg_freeze", about: "SIGSTOP of all of the server", takes: onPostgres, least: 500 * ms, most: 5 * sec, run: func(ctx context.Context, w *world, d *Done) error {
		defer w.pg.Continue()
		if err := w.pg.Pause(); err != nil {
			return err
		}
		d.hold(ctx)
		return nil
	}},
	{name: "pg_terminate_walsender", about: "pg_terminate_backend of the walsender", takes: onPostgres, run: func(ctx context.Context, w *world, _ *Done) error {
		return w.sql(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", w.slot)
	}},
	{name: "pg_terminate_writers", about: "pg_terminate_backend of every writer: commits of unknown outcome", takes: onPostgres, run: func(ctx context.Context, w *world, _ *Done) error {
		return w.sql(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()")
	}},
	{name: "pg_checkpoint", about: "checkpoint and WAL switch", takes: onPostgres, run: func(ctx context.Context, w *world, _ *Done) error {
		return errors.Join(w.sql(ctx, "CHECKPOINT"), w.sql(ctx, "SELECT pg_switch_wal()"), w.sql(ctx, "CHECKPOINT"))
	}},
	{name: "pg_ddl", about: "DDL that leaves the mapped columns alone", takes: onPostgres, run: func(ctx context.Context, w *world, d *Done) error {
		n := d.N % 1000
		for _, sql := range []string{
			fmt.Sprintf("ALTER TABLE outbox ADD COLUMN extra_%d text DEFAULT 'x'", n),
			fmt.Sprintf("ALTER TABLE outbox ALTER extra_%d TYPE varchar(80)", n),
			fmt.Sprintf("CREATE INDEX index_%d ON outbox (extra_%d)", n, n),
			fmt.Sprintf("ALTER TABLE outbox RENAME extra_%d TO other_%d", n, n),
			"ANALYZE outbox",
			fmt.Sprintf("ALTER TABLE outbox DROP COLUMN other_%d", n),
		} {
			if err := w.sql(ctx, sql); err != nil {
				return err
			}
			rest(ctx, 30*ms)
		}
		return nil
	}},
	{name: "pg_rewrite", about: "VACUUM FULL of the outbox under load", takes: onPostgres, run: func(ctx context.Context, w *world, _ *Done) error {
		return w.sql(ctx, "VACUUM FULL outbox")
	}},
	{name: "pg_foreign_wal", about: "a burst of WAL of another table", takes: onPostgres, run: func(ctx context.Context, w *world, d *Done) error {
		return errors.Join(
			w.sql(ctx, "CREATE TABLE IF NOT EXISTS busy (filler text)"),
			w.sql(ctx, "INSERT INTO busy SELECT repeat('x', 2000) FROM generate_series(1, 10000)"),
			w.sql(ctx, "TRUNCATE busy"))
	}},
	{name: "slot_taken", about: "another consumer has the slot when the relay starts, and gives it back", takes: []string{"relay", "postgres", "pgnet"}, least: 500 * ms, most: 2 * sec, run: takeSlot},
	{name: "publication_drift", about: "the table is taken out of the publication while the relay runs, nothing is written, and it is put back", takes: []string{"relay", "postgres", "pgnet", "writers", "kafka", "kafkanet"}, run: drift},
	{name: "pg_roll_back_large", about: "a large transaction that rolls back, and one prepared savepoint storm", takes: onPostgres, run: func(ctx context.Context, w *world, d *Done) error {
		return w.sql(ctx, fmt.Sprintf(`DO $$ BEGIN
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) SELECT gen_random_uuid(), '%s', gen_random_uuid(), 'Never', '{}' FROM generate_series(1, 3000);
			RAISE 'rolled back' USING ERRCODE = 'P0001'; EXCEPTION WHEN raise_exception THEN NULL; END $$`, w.aggregates[0]))
	}},
}

// takeSlot streams from the slot and confirms nothing. Relays wait for it.
func takeSlot(ctx context.Context, w *world, d *Done) error {
	for n := range w.plan.Relays {
		w.relays.hold(n, true)
		defer w.relays.hold(n, false)
		w.relays.signal(n, syscall.SIGKILL, true)
		w.relays.ended(n, 5*sec)
	}
	var thief *pgconn.PgConn
	err := persist(ctx, func(ctx context.Context) (err error) {
		config, err := pgconn.ParseConfig(w.pg.URL(w.database))
		if err != nil {
			return err
		}
		config.RuntimeParams["replication"] = "database"
		if thief, err = pgconn.ConnectConfig(ctx, config); err != nil {
			return err
		}
		thief.Frontend().SendQuery(&pgproto3.Query{String: fmt.Sprintf(`START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '"%s"')`, w.slot, w.slot)})
		if err := thief.Frontend().Flush(); err != nil {
			return errors.Join(err, thief.Close(ctx))
		}
		for {
			switch msg, err := thief.ReceiveMessage(ctx); msg.(type) {
			case *pgproto3.CopyBothResponse:
				return nil
			case *pgproto3.ErrorResponse, nil:
				return errors.Join(fmt.Errorf("the slot could not be taken: %v", msg), err, thief.Close(ctx))
			}
		}
	})
	if err != nil {
		return err
	}
	for n := range w.plan.Relays {
		w.relays.hold(n, false)
	}
	d.hold(ctx)
	for n := range w.plan.Relays {
		if state := w.relays.state(n); state == "streaming" {
			w.problem("P11: a relay says %q while somebody else has the slot", state)
		}
	}
	return thief.Conn().Close()
}

// drift waits until no writer is at work: what is written meanwhile would be in no
// stream, neither the relay's nor the witness's.
func drift(ctx context.Context, w *world, d *Done) error {
	streams := func() bool { return w.relays.state(w.relays.leader()) == "streaming" }
	if !w.await(ctx, 20*sec, streams) {
		d.Detail = "no relay streamed"
		return nil
	}
	w.load.gate.Lock()
	defer w.load.gate.Unlock()
	if err := w.sql(ctx, "ALTER PUBLICATION "+w.slot+" DROP TABLE outbox"); err != nil {
		return err
	}
	if w.await(ctx, 30*sec, func() bool { return w.relays.state(w.relays.leader()) == "blocked" }) {
		w.relays.mu.Lock()
		d.Detail = w.relays.states[len(w.relays.states)-1].Reason
		w.relays.mu.Unlock()
	} else if ctx.Err() == nil {
		w.problem("P11: 30s after the table left the publication the relay is %q, not blocked", w.relays.state(w.relays.leader()))
	}
	d.Took = Span(time.Since(d.Began))
	err := w.sql(context.WithoutCancel(ctx), "ALTER PUBLICATION "+w.slot+" ADD TABLE outbox")
	for n := range w.plan.Relays { // it blocks until a restart
		w.relays.signal(n, syscall.SIGTERM, true)
		if !w.relays.ended(n, 25*sec) {
			w.problem("P11: a blocked relay went on for 25s after SIGTERM")
		}
	}
	return err
}

// fastStop measures how long the relay holds the server up; the oracle judges.
func fastStop(ctx context.Context, w *world, d *Done) error {
	ctx = context.WithoutCancel(ctx)
	limit, cancel := context.WithTimeout(ctx, 60*sec)
	defer cancel()
	began := time.Now()
	err := w.pg.Stop(limit, sandbox.Fast)
	d.Took = Span(time.Since(began))
	if err != nil {
		w.problem("P8: PostgreSQL did not stop within 60s: %v", err)
		_ = w.pg.Kill()
	}
	return w.pg.Start(ctx)
}

func each(proxies []*sandbox.Proxy, do func(*sandbox.Proxy)) {
	for _, p := range proxies {
		do(p)
	}
}

// heal ends the faults of proxies. Streams with a hole in them are cut: no network
// would deliver what follows.
func heal(proxies []*sandbox.Proxy) {
	each(proxies, func(p *sandbox.Proxy) {
		p.Cut()
		p.Heal()
	})
}

// networkKinds are each there twice: before PostgreSQL and before the brokers.
var networkKinds = slices.Concat(network("net_pg", onPgNet, func(w *world) []*sandbox.Proxy { return []*sandbox.Proxy{w.pgProxy} }),
	network("net_kafka", onKafkaNet, func(w *world) []*sandbox.Proxy { return w.kafka.Proxies() }),
	[]*kind{
		{name: "net_writers_cut", about: "the writers' connections are reset: commits of unknown outcome", takes: []string{"writers"}, run: func(ctx context.Context, w *world, d *Done) error {
			for range 5 {
				w.inProxy.CutAfter(sandbox.Direction(d.N%2), int64(1+d.N%997))
				rest(ctx, 100*ms)
			}
			w.inProxy.Heal()
			return nil
		}},
		{name: "net_kafka_one_away", about: "one broker cannot be reached", takes: onKafkaNet, least: 500 * ms, most: 3 * sec, run: func(ctx context.Context, w *world, d *Done) error {
			proxies := w.kafka.Proxies()
			one := proxies[int(d.N%uint64(len(proxies)))]
			one.Refuse()
			one.Cut()
			defer one.Heal()
			d.hold(ctx)
			return nil
		}},
		{name: "net_kafka_lost_answers", about: "requests arrive, answers do not, then the connection breaks", takes: onKafkaNet, least: 50 * ms, most: 800 * ms, run: func(ctx context.Context, w *world, d *Done) error {
			each(w.kafka.Proxies(), func(p *sandbox.Proxy) { p.Blackhole(sandbox.ToClient) })
			defer heal(w.kafka.Proxies())
			d.hold(ctx)
			return nil
		}},
	})

func network(name string, takes []string, of func(*world) []*sandbox.Proxy) []*kind {
	lasting := func(suffix, about string, least, most time.Duration, do func(p *sandbox.Proxy, n uint64)) *kind {
		return &kind{name: name + suffix, about: about, takes: takes, least: least, most: most, run: func(ctx context.Context, w *world, d *Done) error {
			each(of(w), func(p *sandbox.Proxy) { do(p, d.N) })
			defer heal(of(w))
			d.hold(ctx)
			return nil
		}}
	}
	return []*kind{
		lasting("_cut", "every connection is reset", 0, 0, func(*sandbox.Proxy, uint64) {}),
		lasting("_cut_after_in", "reset in mid-message, after n bytes to the relay", sec, 2*sec, func(p *sandbox.Proxy, n uint64) { p.CutAfter(sandbox.ToClient, int64(1+n%60_000)) }),
		lasting("_cut_after_out", "reset in mid-message, after n bytes from the relay", sec, 2*sec, func(p *sandbox.Proxy, n uint64) { p.CutAfter(sandbox.ToServer, int64(1+n%6_000)) }),
		lasting("_blackhole_in", "what is sent to the relay vanishes", sec, 5*sec, func(p *sandbox.Proxy, _ uint64) { p.Blackhole(sandbox.ToClient) }),
		lasting("_blackhole_out", "what the relay sends vanishes", sec, 5*sec, func(p *sandbox.Proxy, _ uint64) { p.Blackhole(sandbox.ToServer) }),
		lasting("_blackhole", "everything vanishes, both ways", sec, 5*sec, func(p *sandbox.Proxy, _ uint64) {
			p.Blackhole(sandbox.ToClient)
			p.Blackhole(sandbox.ToServer)
		}),
		lasting("_stall", "nothing moves, nothing is lost", 500*ms, 4*sec, func(p *sandbox.Proxy, _ uint64) { p.Stall() }),
		lasting("_slow", "a few kilobytes a second", sec, 3*sec, func(p *sandbox.Proxy, n uint64) {
			p.Slow(sandbox.ToClient, 8<<10)
			p.Slow(sandbox.ToServer, 8<<10)
		}),
		lasting("_delay", "each piece takes long", sec, 3*sec, func(p *sandbox.Proxy, n uint64) {
			p.Delay(sandbox.ToClient, time.Duration(20+n%100)*ms)
			p.Delay(sandbox.ToServer, time.Duration(20+n%100)*ms)
		}),
		lasting("_away", "connections are refused", 500*ms, 3*sec, func(p *sandbox.Proxy, _ uint64) {
			p.Refuse()
			p.Cut()
		}),
	}
}
