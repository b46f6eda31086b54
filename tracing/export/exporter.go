package export

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/rs/zerolog"
)

// Limits of what waits for the collector.
const (
	maxQueued = 2048 // spans
	maxBatch  = 512  // spans of a request
	maxWait   = 2 * time.Second
	atEnd     = 2 * time.Second // how long Close goes on sending
	logEvery  = time.Minute
)

// Config says where spans go.
type Config struct {
	Endpoint string // of traces, with its path

	// Headers are asked for each request; nil: none. Its errors hold no value.
	Headers func() (map[string]string, error)

	// TLS is asked for each connection; nil: the usual verification.
	TLS func() (*tls.Config, error)

	Plain    bool          // requests are not compressed
	Timeout  time.Duration // of a request; defaults to 10s
	Resource tracing.Resource
}

// Exporter sends what it is given in batches, one after another. Its methods are safe from any
// goroutine.
type Exporter struct {
	cfg    Config
	client *http.Client
	log    zerolog.Logger
	tracer *tracing.Tracer // counts

	queue chan *tracing.Span // each makes PerRow spans
	close context.CancelFunc // ends Add
	ended context.Context    // Add takes nothing any more
	stop  context.CancelFunc // ends Run
	life  context.Context
	done  chan struct{}
	begin sync.Once

	// Of run's goroutine.
	quiet   time.Time // nothing is logged before
	lost    int       // spans since the last line
	dropped int64     // spans when it was looked last
}

// New returns an exporter, and the tracer whose spans it sends. Nothing is sent before Run.
func New(cfg Config, of tracing.Config, log zerolog.Logger) (*Exporter, *tracing.Tracer) {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	e := &Exporter{cfg: cfg, log: log, client: newClient(cfg), queue: make(chan *tracing.Span, maxQueued/tracing.PerRow), done: make(chan struct{})}
	e.ended, e.close = context.WithCancel(context.Background())
	e.life, e.stop = context.WithCancel(context.Background())
	e.tracer = tracing.New(of, e)
	return e, e.tracer
}

// Add takes an ended span, unless the queue is full.
func (e *Exporter) Add(s *tracing.Span) bool {
	if e.ended.Err() != nil {
		return false
	}
	select {
	case e.queue <- s:
		return true
	default:
		return false
	}
}

// Start begins to send.
func (e *Exporter) Start() { e.begin.Do(func() { go e.run() }) }

// Close takes no more spans, and sends what waits, for two seconds at most and not beyond hurry.
func (e *Exporter) Close(hurry <-chan struct{}) {
	e.close()
	e.begin.Do(func() { close(e.done) }) // it never began
	over := time.NewTimer(atEnd)
	defer over.Stop()
	select {
	case <-e.done:
	case <-over.C:
	case <-hurry:
	}
	e.stop()
	<-e.done
	e.client.CloseIdleConnections()
}

// run sends batches until Close, and then what is left.
func (e *Exporter) run() {
	defer close(e.done)
	for e.ended.Err() == nil {
		if batch := e.gather(); len(batch) > 0 {
			e.send(batch)
			e.sayDropped()
		}
	}
	for {
		batch := e.rest()
		if len(batch) == 0 {
			return
		}
		e.send(batch)
	}
}

// gather waits for a full batch, at most maxWait from its first span on.
func (e *Exporter) gather() (batch []*tracing.Span) {
	var over <-chan time.Time
	for len(batch) < maxBatch/tracing.PerRow {
		select {
		case s := <-e.queue:
			if len(batch) == 0 {
				t := time.NewTimer(maxWait)
				defer t.Stop()
				over = t.C
			}
			batch = append(batch, s)
		case <-over:
			return batch
		case <-e.ended.Done():
			return batch
		}
	}
	return batch
}

// rest is what waits, up to a batch.
func (e *Exporter) rest() (batch []*tracing.Span) {
	for len(batch) < maxBatch/tracing.PerRow {
		select {
		case s := <-e.queue:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

// sayDropped says once a minute that spans come faster than the collector takes them.
func (e *Exporter) sayDropped() {
	now := e.tracer.Counts()[tracing.DroppedQueue]
	lost := int(now - e.dropped)
	if e.dropped = now; lost > 0 {
		e.say(lost, errFull)
	}
}

var errFull = fmt.Errorf("the collector takes spans more slowly than they come, and %d wait; lower tracing.max_spans_per_second, or give it more room", maxQueued)

// failed counts spans that the collector did not take, and says why once a minute.
func (e *Exporter) failed(spans int, err error) {
	e.tracer.Count(tracing.Failed, spans)
	e.say(spans, err)
}

func (e *Exporter) say(spans int, err error) {
	e.lost += spans
	if now := time.Now(); now.After(e.quiet) {
		e.quiet = now.Add(logEvery)
		e.log.Warn().Err(err).Int("spans", e.lost).Msg("spans were not sent; rows are delivered all the same")
		e.lost = 0
	}
}
