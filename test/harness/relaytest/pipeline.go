// Package relaytest runs a relay between a test's database and its brokers:
// inside the test's process, or as the real binary that can be killed.
package relaytest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Patience is how long a test waits for what has to happen. It is that of a busy
// machine: nobody promises it, and a test that passes does not spend it.
const Patience = 2 * time.Minute

// Pipeline is a slot, a publication and a configuration of one test.
type Pipeline struct {
	DB      *harness.Database
	Brokers *harness.Brokers
	Slot    string
	YAML    string // as a user would write it
	Config  *config.Config
}

// New writes the configuration for outbox tables; each is the text of one list
// entry, such as `{table: public.outbox}`. Further lines of YAML may follow in
// more, those of the section kafka first, indented by two. Nothing is set up yet.
//
// Records are not compressed: unpacking thousands of batches of one record takes
// a reader minutes under the race detector. A test that is about the binary as
// users run it sets kafka.compression itself.
func New(t testing.TB, db *harness.Database, brokers *harness.Brokers, outbox []string, more ...string) *Pipeline {
	t.Helper()
	p := &Pipeline{DB: db, Brokers: brokers, Slot: harness.Unique(t, "slot")}
	p.YAML = fmt.Sprintf("postgres: {url: %q, slot: %s, publication: %s}\noutbox:\n  - %s\nhttp: {listen: \"\"}\nkafka:\n  brokers: [%s]\n  compression: none\n%s\n",
		db.URL, p.Slot, p.Slot, strings.Join(outbox, "\n  - "), strings.Join(brokers.Addrs, ", "), strings.Join(more, "\n"))
	p.Config = load(t, p.YAML)
	return p
}

func load(t testing.TB, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Options{
		Path:    "test.yaml",
		Environ: []string{},
		ReadFile: func(name string) ([]byte, error) {
			if name == "test.yaml" {
				return []byte(yaml), nil
			}
			return os.ReadFile(name)
		},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	return cfg
}

// Reconfigure has the next start take another configuration.
func (p *Pipeline) Reconfigure(t testing.TB, yaml string) {
	t.Helper()
	p.YAML, p.Config = yaml, load(t, yaml)
}

// Setup creates what is missing; missing tables get our own shape.
func (p *Pipeline) Setup(t testing.TB) {
	t.Helper()
	_, err := provision.Setup(t.Context(), p.Config.Relay().Replication, provision.SetupOptions{
		CreateTable: func(table wal.Table) (string, error) {
			return migrations.Table(migrations.DefaultPreset, table.Schema, table.Name)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Settings is the relay's configuration, with delays as short as a test wants
// them, and time for a drain on a busy machine.
func (p *Pipeline) Settings() relay.Config {
	cfg := p.Config.Relay()
	cfg.RetryMin, cfg.RetryMax = 20*time.Millisecond, 300*time.Millisecond
	cfg.ProbeInterval = 200 * time.Millisecond
	cfg.DrainTimeout = Patience / 2
	cfg.Version = "test"
	return cfg
}

// Running is a relay inside the test's process. A test that ends stops it.
type Running struct {
	*relay.Relay
	pipeline *Pipeline
	cancel   context.CancelFunc
	done     chan struct{}
	err      error // after done
}

// Start runs a relay in process.
func (p *Pipeline) Start(t testing.TB) *Running { return p.StartWith(t, p.Settings(), relay.Events{}) }

// StartWith runs a relay in process with settings of its own.
func (p *Pipeline) StartWith(t testing.TB, settings relay.Config, events relay.Events) *Running {
	t.Helper()
	log := zerolog.New(zerolog.ConsoleWriter{Out: testOutput{t}, NoColor: true}).Level(zerolog.WarnLevel)
	r, err := relay.Open(settings, events, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	running := &Running{Relay: r, pipeline: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(running.done)
		running.err = r.Run(ctx)
	}()
	t.Cleanup(func() {
		r.Abort()
		cancel()
		<-running.done
	})
	return running
}

// testOutput is quiet once the test is over: the relay may log until it is gone.
type testOutput struct{ t testing.TB }

func (o testOutput) Write(p []byte) (int, error) {
	if o.t.Context().Err() == nil {
		o.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// Stop lets the relay drain and fails the test unless that went well.
func (r *Running) Stop(t testing.TB) {
	t.Helper()
	r.cancel()
	if err := r.Wait(t); err != nil {
		t.Fatalf("stop relay: %v", err)
	}
}

// Wait returns what Run returned.
func (r *Running) Wait(t testing.TB) error {
	t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(Patience):
		t.Fatalf("the relay did not end within %s; status %+v", Patience, r.Status())
		return nil
	}
}

// Await waits until the status is as wanted.
func (r *Running) Await(t testing.TB, what string, holds func(status.Status) bool) status.Status {
	t.Helper()
	var status status.Status
	Eventually(t, what, func() (bool, string) {
		select {
		case <-r.done:
			t.Fatalf("wait until %s: the relay ended: %v", what, r.err)
		default:
		}
		status = r.Status()
		return holds(status), fmt.Sprintf("status %+v", status)
	})
	return status
}

// AwaitStreaming waits until the relay streams.
func (r *Running) AwaitStreaming(t testing.TB) {
	t.Helper()
	r.Await(t, "it streams", func(s status.Status) bool { return s.State == status.Streaming })
}

// AwaitBlocked waits until the relay is blocked for a reason.
func (r *Running) AwaitBlocked(t testing.TB, reason string) status.Status {
	t.Helper()
	return r.Await(t, "it is blocked: "+reason, func(s status.Status) bool { return s.State == status.Blocked && s.Reason == reason })
}

// Confirmed is the slot's confirmed position in the catalog.
func (p *Pipeline) Confirmed(t testing.TB) wal.LSN {
	t.Helper()
	return LSN(t, p.DB, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
}

// WALEnd is the position behind everything that is written so far.
func (p *Pipeline) WALEnd(t testing.TB) wal.LSN {
	t.Helper()
	return LSN(t, p.DB, "SELECT pg_current_wal_insert_lsn()::text")
}

// LSN is the position that a query returns.
func LSN(t testing.TB, db *harness.Database, sql string, args ...any) wal.LSN {
	t.Helper()
	lsn, err := wal.ParseLSN(harness.Query[string](t, db, sql, args...))
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}

// AwaitCaughtUp waits until everything that is written now is confirmed.
func (p *Pipeline) AwaitCaughtUp(t testing.TB) {
	t.Helper()
	end := p.WALEnd(t)
	Eventually(t, "everything is confirmed", func() (bool, string) {
		confirmed := p.Confirmed(t)
		return confirmed >= end, fmt.Sprintf("confirmed %s of %s", confirmed, end)
	})
}

// AwaitReleased waits until nobody streams from the slot: a walsender ends a moment after
// its client.
func (p *Pipeline) AwaitReleased(t testing.TB) {
	t.Helper()
	Eventually(t, "the slot is released", func() (bool, string) {
		return !harness.Query[bool](t, p.DB, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", p.Slot), "it is active"
	})
}

// Eventually waits until a condition holds; it says what it saw last when it does
// not.
func Eventually(t testing.TB, what string, holds func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		ok, saw := holds()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s; %s", Patience, what, saw)
		}
		<-time.After(20 * time.Millisecond)
	}
}
