package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// readySink builds the sink, and asks whether the brokers answer until they did once, and again
// after the dead-letter topic did not keep every letter. Otherwise the client reconnects by itself.
func (r *Relay) readySink(ctx context.Context) error {
	if r.sink == nil {
		s, err := r.parts.Sink()
		if err != nil {
			return &ConfigError{Err: err}
		}
		r.sink = s
		r.monitor.SetSink(s)
	}
	if r.monitor.SinkReached() && !r.lettersLost.Load() {
		return nil
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.sink.Ready(ready); err != nil {
		return err
	}
	r.monitor.Reached(false, true)
	r.lettersLost.Store(false)
	return nil
}

// abandon gives up the records that the sink still holds, and keeps the sink if it can continue:
// brokers refuse an abandoned request of the same producer id that comes after the next
// session's records; of another producer id they would take it.
func (r *Relay) abandon() {
	a, able := r.sink.(sink.Abandoner)
	if able {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		fenced, err := a.Abandon(ctx)
		if err == nil {
			r.waitForPredecessor = r.waitForPredecessor || !fenced
			return
		}
		r.log.Warn().Err(err).Msg("could not abandon unanswered requests to the brokers; continuing with a new client")
	}
	r.waitForPredecessor = true
	r.dropSink()
}

// dropSink closes a sink that still holds records, so that none of them is written after the
// next holder of the slot begins.
func (r *Relay) dropSink() {
	if r.sink == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.sink.Close(ctx); err != nil {
		r.log.Warn().Err(err).Msg("could not close the client of the brokers")
	}
	r.sink = nil
	r.monitor.SetSink(nil)
}
