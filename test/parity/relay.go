// Package parity runs the golden cases of a real Debezium through the relay, from
// the connector's own configuration, and compares every byte.
//
// PARITY_CASES=DIR has the test run the cases of another folder.
package parity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/parity/golden"
	"github.com/cdc-relay/cdc-relay/test/parity/stage"
)

// Outcome is what a case came to.
type Outcome struct {
	Records []golden.Record
	Refused error  // why it did not start, or stopped; nil: it did not
	Loading bool   // it was refused before the first row
	YAML    []byte // of the relay, imported
}

// RelayWith is how a case runs through the relay.
type RelayWith struct {
	Log io.Writer // the relay's log; nil: none

	// Adjust, when set, changes the imported configuration.
	Adjust func(yaml []byte) []byte
}

// Relay runs a case through the relay, from the connector's own configuration.
// An error is the stage's, not the relay's: that one is in the outcome.
func Relay(ctx context.Context, l *stage.Lane, c *golden.Case, with RelayWith) (*Outcome, error) {
	if err := l.Reset(ctx, topicsOf(c)); err != nil {
		return nil, err
	}
	s := stage.NewScript(l.URL())
	defer s.Close()
	if err := s.Play(ctx, c.Schema, nil); err != nil {
		return nil, fmt.Errorf("schema.sql: %w", err)
	}
	out := &Outcome{}
	p := &player{lane: l, c: c, with: with, out: out}
	defer p.kill()
	if err := p.prepare(ctx); err != nil {
		out.Refused, out.Loading = p.refusal(err), true
		return out, nil
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	if err := s.Play(ctx, c.Script, p); err != nil {
		return nil, fmt.Errorf("dml.sql: %w", err)
	}
	if err := p.finish(ctx); err != nil {
		return nil, err
	}
	out.Refused, out.Loading = p.refusal(p.err), !p.streamed || p.err == nil
	records, err := l.Records(ctx)
	out.Records = p.withoutDeadLetters(records)
	return out, err
}

// topicsOf are the topics that a case names, and those of its records: the relay
// does not make topics unless it is told to.
func topicsOf(c *golden.Case) map[string]golden.Topic {
	topics := map[string]golden.Topic{}
	for _, r := range c.Records {
		topics[r.Topic] = golden.Topic{Partitions: int32(r.Partitions)}
	}
	maps.Copy(topics, c.Topics)
	return topics
}

// player is a relay that a script stops and starts.
type player struct {
	lane *stage.Lane
	c    *golden.Case
	with RelayWith
	out  *Outcome

	settings relay.Config
	refused  []string // what the import says that Debezium refuses

	relay    *relay.Relay
	cancel   context.CancelFunc
	done     chan struct{}
	ended    error // after done
	err      error // the relay ended by itself
	streamed bool
}

// prepare imports, loads and sets up. Its error is a refusal.
func (p *player) prepare(ctx context.Context) error {
	cfg, err := p.load(ctx)
	if err != nil {
		return err
	}
	p.settings = cfg.Relay()
	p.settings.OnBlocked = relay.ExitWhenBlocked
	p.settings.RetryMin, p.settings.RetryMax = 20*time.Millisecond, 300*time.Millisecond
	p.settings.ProbeInterval = time.Second
	p.settings.Version = "parity"
	if _, err := relay.Open(p.settings, relay.Events{}, zerolog.Nop()); err != nil {
		return cfg.Locate(err)
	}
	return p.setup(ctx)
}

func (p *player) load(ctx context.Context) (*config.Config, error) {
	connector, err := p.lane.Connector(p.c, "")
	if err != nil {
		return nil, err
	}
	tables, err := catalog(ctx, p.lane)
	if err != nil {
		return nil, err
	}
	imported, err := importer.Convert(connector, importer.Options{
		Name: "connector.json", Worker: worker(p.lane, p.c), WorkerName: "worker.properties", Catalog: tables,
	})
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	for _, remark := range imported.Remarks {
		if remark.Fate == importer.Refused {
			p.refused = append(p.refused, remark.String())
		}
	}
	yaml := imported.YAML
	if p.with.Adjust != nil {
		yaml = p.with.Adjust(yaml)
	}
	p.out.YAML = yaml
	return config.Load(config.Options{
		Path:    "imported.yaml",
		Environ: environment(imported),
		ReadFile: func(name string) ([]byte, error) {
			if name == "imported.yaml" {
				return yaml, nil
			}
			return os.ReadFile(name)
		},
	})
}

// environment holds the secrets that an imported file asks for.
func environment(imported *importer.Result) []string {
	var environ []string
	for _, name := range slices.Sorted(maps.Keys(imported.Source.Placeholders)) {
		environ = append(environ, name+"="+stage.Password)
	}
	return environ
}

// worker is the worker's configuration: the case's, or the usual one.
func worker(l *stage.Lane, c *golden.Case) []byte {
	text := c.Worker
	if text == nil {
		text = []byte(usualWorker)
	}
	return slices.Concat([]byte("bootstrap.servers="+strings.Join(l.Brokers(), ",")+"\n"), bytes.TrimSpace(text), []byte("\n"))
}

// usualWorker are the converters of a worker that a case says nothing of.
const usualWorker = `key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
`

// catalog is what an import that looks at the database finds.
func catalog(ctx context.Context, l *stage.Lane) ([]importer.Table, error) {
	conn, err := pgx.Connect(ctx, l.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `
		SELECT n.nspname, c.relname, c.relkind = 'p',
		       array(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_%'
		ORDER BY 1, 2`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (importer.Table, error) {
		var t importer.Table
		err := row.Scan(&t.Schema, &t.Name, &t.Partitioned, &t.Columns)
		return t, err
	})
}

// setup makes publication and slot, unless the connector is told to find them.
func (p *player) setup(ctx context.Context) error {
	cfg, err := p.c.Config()
	if err != nil {
		return err
	}
	if cfg["publication.autocreate.mode"] == "disabled" {
		return p.createSlot(ctx)
	}
	_, err = provision.Setup(ctx, p.settings.Replication, provision.SetupOptions{})
	return err
}

func (p *player) createSlot(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.lane.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", p.settings.Replication.Slot)
	return err
}

// start runs the relay and waits until it streams or has ended.
func (p *player) start(ctx context.Context) error {
	if p.err != nil {
		return nil //nolint:nilerr // the relay has ended: judged by what it ended with
	}
	log := zerolog.Nop()
	if p.with.Log != nil {
		log = zerolog.New(zerolog.ConsoleWriter{Out: zerolog.SyncWriter(p.with.Log), NoColor: true})
	}
	r, err := relay.Open(p.settings, relay.Events{}, log)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.relay, p.cancel, p.done = r, cancel, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		p.ended = r.Run(running)
	}(p.done)
	for r.Status().State != status.Streaming {
		if p.over() {
			return nil
		}
		if err := stage.Wait(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("start relay: %w; status %+v", err, r.Status())
		}
	}
	p.streamed = true
	return nil
}

// over reports whether the relay ended by itself, and keeps why.
func (p *player) over() bool {
	if p.relay == nil {
		return true
	}
	select {
	case <-p.done:
		p.err = p.ended
		if p.err == nil {
			p.err = errors.New("the relay ended without an error")
		}
		p.relay = nil
		return true
	default:
		return false
	}
}

// refusal is why the relay ended, with what the import had to say: an operator
// reads that first.
func (p *player) refusal(err error) error {
	if len(p.refused) == 0 {
		return err
	}
	return errors.Join(errors.New("import: "+strings.Join(p.refused, "; ")), err)
}

// withoutDeadLetters leaves out what Debezium has no topic for.
func (p *player) withoutDeadLetters(records []golden.Record) []golden.Record {
	return slices.DeleteFunc(records, func(r golden.Record) bool { return r.Topic == p.settings.DeadLetterTopic })
}

func (p *player) Settle(ctx context.Context) error {
	if p.over() {
		return nil
	}
	conn, err := pgx.Connect(ctx, p.lane.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// Inserted, not written: nobody waits for a message outside of a transaction.
	var end wal.LSN
	if err := scanLSN(ctx, conn, &end, "SELECT pg_current_wal_insert_lsn()::text"); err != nil {
		return err
	}
	for !p.over() {
		var confirmed wal.LSN
		err := scanLSN(ctx, conn, &confirmed, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", p.settings.Replication.Slot)
		if err != nil {
			return err
		}
		if confirmed >= end {
			return nil
		}
		if err := stage.Wait(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("settle: %w; confirmed %s of %s, status %+v", err, confirmed, end, p.relay.Status())
		}
	}
	return nil
}

func scanLSN(ctx context.Context, conn *pgx.Conn, into *wal.LSN, sql string, args ...any) error {
	var text string
	err := conn.QueryRow(ctx, sql, args...).Scan(&text)
	if err == nil {
		*into, err = wal.ParseLSN(text)
	}
	return err
}

// Sleep waits for what the pause is there for, which takes less.
func (p *player) Sleep(ctx context.Context, _ time.Duration) error { return p.Settle(ctx) }

func (p *player) Direct(ctx context.Context, word, _ string) error {
	switch word {
	case "note", "rename-connector":
		return nil
	case "kill-worker":
		p.kill()
		return nil
	case "stop-connector", "delete-connector", "term-worker":
		return p.stop(ctx)
	case "start-connector", "create-connector", "start-worker":
		return p.start(ctx)
	}
	return fmt.Errorf("--@ %s: not known here", word)
}

func (p *player) stop(ctx context.Context) error {
	if p.over() {
		return nil
	}
	p.cancel()
	select {
	case <-p.done:
		p.relay = nil
		return p.ended
	case <-ctx.Done():
		return fmt.Errorf("stop relay: %w", context.Cause(ctx))
	}
}

// kill ends the relay without letting it deliver what it has.
func (p *player) kill() {
	if p.over() {
		return
	}
	p.relay.Abort()
	p.cancel()
	<-p.done
	p.relay = nil
}

// finish waits for everything and stops the relay.
func (p *player) finish(ctx context.Context) error {
	if err := p.Settle(ctx); err != nil {
		return err
	}
	if err := p.awaitRegular(ctx); err != nil {
		return err
	}
	return p.stop(ctx)
}

// awaitRegular waits for the first record of topics that are written to by the
// clock and not by rows.
func (p *player) awaitRegular(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, r := range p.c.Records {
		for p.c.Hints.Collapse.Matches(r.Topic) && !p.over() {
			n, err := p.lane.Count(ctx, r.Topic)
			if n > 0 || ctx.Err() != nil {
				break // without one the comparison says so
			}
			if err != nil {
				return err
			}
			if stage.Wait(ctx, 20*time.Millisecond) != nil {
				break
			}
		}
	}
	return nil
}
