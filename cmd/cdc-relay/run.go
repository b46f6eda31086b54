package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/metrics"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/shards"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/tail"
	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/cdc-relay/cdc-relay/tracing/export"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (a *app) runCommand() *cobra.Command {
	var until string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stream until stopped",
		Long: `run streams the outbox tables until SIGTERM, SIGINT or SIGHUP. Then it delivers the rows
that it has read and exits. A second signal, half a second or more after the first, cuts
this short: the next start sends unconfirmed rows again. Table, publication and slot must
exist: see setup.

With --until it ends by itself, with code 0, once everything that commits before that
position is delivered and confirmed. Nothing that commits at or after it is sent.

Exit codes: 0 clean stop, 1 failed or cut short (start again), 2 configuration,
3 the environment refuses, 4 blocked with relay.on_blocked: exit. A crash ends with
SIGABRT (start again).`,
		Args:        cobra.NoArgs,
		Annotations: logs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			settings := cfg.Relay()
			if cmd.Flags().Changed("until") {
				if settings.Stream.Until, err = wal.ParseLSN(until); err == nil && settings.Stream.Until == 0 {
					err = errors.New("0/0 is no position")
				}
				if err != nil {
					return &advice.Usage{Err: fmt.Errorf("--until: %w", err)}
				}
			}
			return a.streamWith(cmd.Context(), cfg, settings)
		},
	}
	cmd.Flags().StringVar(&until, "until", "", "end at this `LSN`, such as 0/16B3748")
	return cmd
}

// checkSettings asks the packages for what the file alone cannot show: whether regular
// expressions compile, templates parse and certificates load. It touches no server.
func checkSettings(cfg *config.Config) error {
	r, err := relay.Open(cfg.Relay(), relay.Events{}, zerolog.Nop())
	if err != nil {
		return err
	}
	r.Discard()
	return nil
}

// streamWith is the daemon, with settings that may not be quite those of the file. Whatever it
// starts has ended when it returns.
func (a *app) streamWith(ctx context.Context, cfg *config.Config, settings relay.Config) error {
	d, err := a.newDaemon(cfg, settings)
	if err != nil {
		return err
	}
	for _, warning := range cfg.Warnings {
		d.log.Warn().Msg(warning)
	}
	d.jobs = d.besides()
	server, err := listen(cfg.HTTP(), d.log)
	if err != nil {
		return err
	}
	if server != nil {
		handler := admin.HandlerWithConsole(cfg.HTTP(), d.status, d.metrics, d.console)
		d.serve = func(ctx context.Context) error { return server.Serve(ctx, handler) }
	}
	return d.run(ctx)
}

// newExporter makes what sends the spans of the relays, and the tracer that they share; nil: no row
// is traced.
func newExporter(cfg *config.Config, settings relay.Config, log zerolog.Logger) (*export.Exporter, *tracing.Tracer) {
	to, of := cfg.Tracing()
	if to == nil {
		return nil, nil
	}
	to.Resource.Version = settings.Version
	return export.New(*to, of, log.With().Str("component", "tracing").Logger())
}

func listen(cfg admin.Config, log zerolog.Logger) (*admin.Server, error) {
	if cfg.Listen == "" {
		return nil, nil
	}
	return admin.Listen(cfg, log.With().Str("component", "admin").Logger())
}

// pipeline is what a daemon needs of a relay.Relay.
type pipeline interface {
	Run(context.Context) error
	Abort()
	Status() status.Status
	AlreadySentRows() int64
	TryNow() bool
}

// openPipeline makes the relay of the configuration, or those of the shards that this
// process runs, and what serves their metrics. jobs are those of the process.
func openPipeline(settings relay.Config, own []int, jobs func() []status.Maintenance, feed *consoleFeed, log zerolog.Logger) (pipeline, *served, error) {
	options := metrics.Options{Pipeline: settings.Pipeline, Version: settings.Version, Commit: build().Commit}
	if !settings.Replication.Shard.Divided() {
		m := metrics.New(options)
		r, err := relay.Open(settings, feed.hears(m.Events()), log, m.Hook)
		if err != nil {
			return nil, nil, err
		}
		m.WatchMaintenance(jobs)
		m.WatchTracing(settings.Router.Tracer)
		return r, &served{m.Handler(r.Status), m.Timings}, nil
	}
	all := metrics.NewShards(options, own)
	running, err := shards.Open(settings, own, log, func(i int) (relay.Events, []func() kgo.Hook) {
		return feed.hears(all[i].Events()), []func() kgo.Hook{all[i].Hook}
	})
	if err != nil {
		return nil, nil, err
	}
	for i, m := range all {
		m.Watch(func() status.Status { return running.StatusOf(i) })
	}
	all[0].WatchMaintenance(jobs)
	all[0].WatchTracing(settings.Router.Tracer)
	return running, &served{all[0].Registry(), func() (ages, produce figures.Buckets) {
		for _, m := range all {
			a, p := m.Timings()
			ages.Add(a)
			produce.Add(p)
		}
		return ages, produce
	}}, nil
}

// consoleFeed is what a console hears of the stream; nil: there is none.
type consoleFeed struct {
	passed *tail.Tail
	waker  *admin.Waker
}

// hears has the console hear events, beside whoever has them.
func (f *consoleFeed) hears(events relay.Events) relay.Events {
	if f == nil {
		return events
	}
	delivered, received, changed := events.BatchDelivered, events.BatchReceived, events.StateChanged
	events.BatchDelivered = func(b *wal.Batch, records []record.Record, took time.Duration) {
		delivered(b, records, took)
		f.passed.Delivered(records)
	}
	events.BatchReceived = func(b *wal.Batch) {
		received(b)
		if len(b.Rows) > 0 {
			f.waker.Wake()
		}
	}
	events.StateChanged = func(from, to status.State, reason string) {
		changed(from, to, reason)
		f.waker.Wake()
	}
	return events
}

// served is what of the metrics is shown.
type served struct {
	metrics http.Handler
	timings func() (ages, produce figures.Buckets)
}

// daemon is the relay and what accompanies it.
type daemon struct {
	app     *app
	cfg     *config.Config
	relay   pipeline
	metrics http.Handler
	console *admin.Console              // nil: none
	serve   func(context.Context) error // nil: no HTTP
	until   func(status.Status) bool    // the relay is stopped once that is so; nil: never
	jobs    []*upkeep.Loop              // on delivered rows, while the slot is held
	spans   *export.Exporter            // of traced rows; nil: none are
	log     zerolog.Logger
	notify  notifier

	reached bool // until said so; to be read when run has returned
}

func (a *app) newDaemon(cfg *config.Config, settings relay.Config) (*daemon, error) {
	settings.Version = build().Version
	pages, keep := cfg.Console()
	if pages {
		a.logTail = admin.NewLogTail(time.Now())
	}
	log := a.newLogger(cfg.Log, settings.Pipeline)
	if !a.textLog(cfg.Log) {
		a.jsonLog = &log
	}
	collectForRun()
	if a.memoryLimit > 0 {
		log.Debug().Str("limit", fmt.Sprintf("%d MiB", a.memoryLimit>>20)).Msg("memory limit taken from the cgroup")
	}
	d := &daemon{app: a, cfg: cfg, log: log, notify: a.notifier()}
	var feed *consoleFeed
	if pages {
		feed = &consoleFeed{new(tail.Tail), admin.NewWaker()}
	}
	d.spans, settings.Router.Tracer = newExporter(cfg, settings, log)
	r, shown, err := openPipeline(settings, cfg.OwnShards(), d.maintenance, feed, log)
	if err != nil {
		return nil, err
	}
	log.Info().Str("version", settings.Version).Str("slot", settings.Replication.Shard.Slot).Int("shards", settings.Replication.Shard.Count).
		Str("publication", settings.Replication.Shard.Publication).Strs("brokers", settings.Kafka.Brokers).Msg("cdc-relay starts")
	d.relay, d.metrics = r, shown.metrics
	if pages {
		tools := a.consoleTools(cfg, settings, shown.timings)
		tools.Audit, tools.Retry, tools.Tail, tools.Waker = log.With().Str("component", "admin").Logger(), r.TryNow, feed.passed, feed.waker
		d.console = admin.NewConsole(d.status, tools, keep)
	}
	return d, nil
}

// run gives what the mapping has wrong its place in the file.
func (d *daemon) run(ctx context.Context) error {
	err := d.stream(ctx)
	if mapping, ok := errors.AsType[*relay.ConfigError](err); ok {
		return &relay.ConfigError{Err: d.cfg.Locate(mapping.Err)}
	}
	return err
}

// stream ends with the relay, or shortly after a second signal without it: companions
// outlive it, so that a drain can be watched.
func (d *daemon) stream(ctx context.Context) error {
	intake, stop := context.WithCancel(ctx)
	defer stop()
	companions, release := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	defer group.Wait()
	defer release()

	var serveErr error // read after group.Wait
	if d.serve != nil {
		group.Go(func() {
			if serveErr = d.serve(companions); serveErr != nil {
				stop() // a relay that nobody can watch is not what was asked for
			}
		})
	}
	working, endJobs := context.WithCancel(intake)
	defer endJobs()
	group.Go(func() { d.notify.feedWatchdog(companions, d.relay.Status) })
	group.Go(func() { d.notify.tellStatus(companions, d.relay.Status) })
	group.Go(func() { d.summarise(companions) })
	group.Go(func() { d.warnOfLetters(working) })
	if d.console != nil {
		group.Go(func() { d.console.Run(companions) })
	}
	for _, job := range d.jobs {
		group.Go(func() { job.Run(working) })
	}
	over := make(chan struct{})
	group.Go(func() { d.followSignals(intake, companions, over) })
	if d.until != nil {
		group.Go(func() { d.await(companions, stop) })
	}

	defer limitProcessors(len(d.cfg.OwnShards()))()
	if d.spans != nil {
		d.spans.Start()
	}
	d.notify.send("READY=1")
	err := d.runUntil(intake, over)
	endJobs() // also when the relay ended by itself
	release()
	group.Wait()
	if d.spans != nil {
		d.spans.Close(d.app.hurry)
	}
	if err = errors.Join(err, serveErr); err == nil {
		d.sayStopped(d.relay.Status())
	}
	return err
}

// runUntil is the relay's run. Once over is closed it is left behind, as a kill would
// leave it: what it still asks of servers that do not answer changes nothing about
// rows, and the process ends.
func (d *daemon) runUntil(intake context.Context, over <-chan struct{}) error {
	ended := make(chan error, 1)
	go func() { ended <- d.relay.Run(intake) }()
	select {
	case err := <-ended:
		return err
	case <-over:
		return errLeftBehind
	}
}

var errLeftBehind = errors.New("stopped by the second signal while PostgreSQL or the brokers did not answer; the next start sends unconfirmed rows again")

// sayStopped says what a stop that went well leaves to the next start.
func (d *daemon) sayStopped(s status.Status) {
	line, what := d.log.Info(), "stopped; all acknowledged rows are confirmed to PostgreSQL"
	switch n := s.EventsToRepeat; {
	case n > 0:
		line = d.log.Warn().Int("events_to_repeat", n)
		what = "stopped; " + wording.Count(n, "row") + " that the brokers acknowledged will be sent again by the next start: " +
			cmp.Or(rowInTheWay(&s), "an earlier row, or one of the same transaction") + ", is not delivered, so the position stays before it"
	case s.LagSeconds != nil: // a row is known that waits
		what = "stopped; the next start continues at the first unconfirmed row"
		if row := rowInTheWay(&s); row != "" {
			what = "stopped; the next start continues at " + row + ", which is not delivered"
		}
	}
	line.Int64("events_published_total", s.EventsPublished).Msg(what)
}

// rowInTheWay names the row that keeps the position back, and why; empty: it is not known.
func rowInTheWay(s *status.Status) string {
	for _, one := range append([]status.Status{*s}, s.Shards...) {
		if o := one.Obstacle; o != nil && o.Row != nil {
			return o.Row.Name() + ", " + o.Reason
		}
	}
	return ""
}

// cutGrace is how long after the second signal the relay may take to tell PostgreSQL
// what is acknowledged.
const cutGrace = 500 * time.Millisecond

// followSignals announces the drain and cuts it short at the second signal. It closes
// over when the relay takes longer than cutGrace from there.
func (d *daemon) followSignals(intake, companions context.Context, over chan<- struct{}) {
	select {
	case <-companions.Done():
		return
	case <-intake.Done():
	}
	d.notify.send("STOPPING=1")
	d.log.Info().Int("rows", d.relay.Status().InFlightEvents).Msg("stopping; a second signal, half a second or more after the first, cuts the drain short")
	select {
	case <-companions.Done():
		return
	case <-d.app.hurry:
		d.log.Warn().Msg("drain cut short; the next start sends unconfirmed rows again")
		d.relay.Abort()
	}
	select {
	case <-companions.Done():
	case <-time.After(cutGrace):
		close(over)
	}
}

// await stops the relay once until says so.
func (d *daemon) await(ctx context.Context, stop context.CancelFunc) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if d.until(d.relay.Status()) {
			d.reached = true
			stop()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// summaryInterval is how often a busy relay says what it did. An idle one says
// nothing.
const summaryInterval = 30 * time.Second

func (d *daemon) summarise(ctx context.Context) {
	ticker := time.NewTicker(summaryInterval)
	defer ticker.Stop()
	var before int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s := d.relay.Status()
		if s.EventsPublished == before {
			continue
		}
		d.summary(s, s.EventsPublished-before)
		before = s.EventsPublished
	}
}

// summary says what was published since the last one, and in which state the relay is now.
func (d *daemon) summary(s status.Status, published int64) {
	confirmed, _ := s.LSN.Confirmed.MarshalText()
	line := d.log.Info().Str("state", string(s.State))
	if s.State != status.Streaming && s.Reason != "" {
		line = line.Str("reason", s.Reason)
	}
	line = line.Int64("published", published).Float64("per_second", perSecond(published, summaryInterval)).
		Str("lsn", string(confirmed))
	if s.LagBytes != nil {
		line = line.Int64("lag_bytes", *s.LagBytes)
	}
	if s.LagSeconds != nil {
		line = line.Float64("lag_seconds", math.Round(*s.LagSeconds*1000)/1000)
	}
	line.Int("in_flight", s.InFlightEvents).Msg("summary")
}

// perSecond is a rate with as many digits as it is worth.
func perSecond(n int64, d time.Duration) float64 {
	rate := float64(n) / d.Seconds()
	if rate < 100 {
		return math.Round(rate*10) / 10
	}
	return math.Round(rate)
}
