package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// tries is how often a record is sent whose failure may heal by itself, such as that
// of a topic which is just being made.
const tries = 5

// send returns how many of the records are durable, from the first on. The client fails a record
// together with its neighbours, so failed ones are tried again alone.
func (r *Redriver) send(ctx context.Context, records []record.Record) (int, error) {
	n, err := r.try(ctx, records)
	for failed := 0; err != nil; {
		if _, halted := errors.AsType[*haltedError](err); halted {
			return n, err
		}
		if alone := len(records) == 1 || failed > 0; alone && (!passing(err) || failed >= tries) {
			r.remember(records[n].Topic, err)
			return n, err
		}
		select {
		case <-time.After(time.Duration(failed) * 200 * time.Millisecond):
		case <-ctx.Done():
			return n, &haltedError{context.Cause(ctx)}
		}
		var one int
		if one, err = r.try(ctx, records[n:n+1]); err != nil {
			failed++
			continue
		}
		failed = 0
		n, err = r.rest(ctx, records, n+one)
	}
	return n, err
}

// rest sends what is after the n-th record.
func (r *Redriver) rest(ctx context.Context, records []record.Record, n int) (int, error) {
	more, err := r.try(ctx, records[n:])
	return n + more, err
}

// passing reports whether nothing was wrong with the record.
func passing(err error) bool {
	partial, ok := errors.AsType[*sink.FailedError](err)
	return ok && partial.Failures[0].Class == sink.Retry
}

// remember notes a topic for which the brokers refuse every record until somebody corrects it. The
// client asks for a missing topic for seconds, which a redrive would wait again for each key.
func (r *Redriver) remember(topic string, err error) {
	partial, ok := errors.AsType[*sink.FailedError](err)
	if !ok || partial.Failures[0].Class != sink.Blocked || partial.Failures[0].Reason == fault.ReasonKafkaError {
		return // or nobody knows what the answer means
	}
	if r.refused == nil {
		r.refused = make(map[string]bool)
	}
	r.refused[topic] = true
}

func notTried(topic string) error {
	return fmt.Errorf("not tried, because the brokers refused an earlier record for topic %q; correct what they refused, and run the redrive again", topic)
}

// haltedError is why sending ended, though nothing was wrong with the record.
type haltedError struct{ why error }

func (e *haltedError) Error() string { return e.why.Error() }
func (e *haltedError) Unwrap() error { return e.why }

// How long what was written waits for its answer when it is time to stop, and how long the
// brokers may be away before it is.
const (
	stopGrace = 5 * time.Second
	mostAway  = time.Minute
)

// How long records have no answer when Waiting is called for the first time, and between its calls.
const (
	tellAfter = 2 * time.Second
	tellAgain = 15 * time.Second
)

// Wait is what a redrive waits for.
type Wait struct {
	Topic       string // of the first record
	Records     int
	For         time.Duration
	Unreachable error // why no broker can be reached; nil: one can
}

// try sends once and waits for the outcome.
func (r *Redriver) try(ctx context.Context, records []record.Record) (int, error) {
	if len(records) == 0 {
		return 0, nil
	}
	if ctx.Err() != nil {
		return 0, &haltedError{context.Cause(ctx)}
	}
	ctx, release := r.whileReachable(ctx, records)
	defer release()
	outcome := make(chan error, 1)
	r.Sink.Send(ctx, records, func(err error) { outcome <- err }) // it may wait for the brokers too
	err, why := r.await(ctx, outcome)
	if err == nil && why == nil {
		return len(records), nil
	}
	if err == nil {
		return 0, &haltedError{why}
	}
	r.Sink.Resume(context.WithoutCancel(ctx)) // markers are sent yet
	n := 0
	if partial, ok := errors.AsType[*sink.FailedError](err); ok {
		n = partial.Failures[0].Index
	}
	if why != nil {
		err = &haltedError{why}
	}
	return n, err
}

// whileReachable gives a context that ends with ctx, or when the brokers were away for too
// long. It has Waiting told of what the records wait for. release is to be called.
func (r *Redriver) whileReachable(ctx context.Context, records []record.Record) (reachable context.Context, release func()) {
	reachable, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		look := time.NewTicker(time.Second)
		defer look.Stop()
		waited, tell := time.Duration(0), tellAfter
		for away := time.Duration(0); ; {
			select {
			case <-reachable.Done():
				return
			case <-look.C:
			}
			if waited += time.Second; waited >= tell && r.Waiting != nil {
				tell += tellAgain
				r.Waiting(Wait{records[0].Topic, len(records), waited, r.Sink.Reachable()})
			}
			var why error
			if away, why = r.away(away + time.Second); why != nil {
				cancel(why)
			}
		}
	}()
	return reachable, func() {
		cancel(nil)
		<-ended
	}
}

// await returns the outcome of records that were handed over, and why it stopped waiting. After
// that no marker is written. Without any outcome it is unknown what was delivered.
func (r *Redriver) await(ctx context.Context, outcome <-chan error) (err, why error) {
	select {
	case err = <-outcome:
	case <-ctx.Done():
		r.Sink.Halt()
		select {
		case err = <-outcome:
		case <-time.After(stopGrace):
			return nil, context.Cause(ctx)
		}
	}
	if err == nil {
		return nil, nil
	}
	return err, context.Cause(ctx)
}

// away is for how long the brokers are not reachable by now, and why that is too long.
func (r *Redriver) away(since time.Duration) (time.Duration, error) {
	err := r.Sink.Reachable()
	if err == nil {
		return 0, nil
	}
	if _, final := errors.AsType[*sink.Error](err); final || since >= mostAway {
		return since, err
	}
	return since, nil
}

// withStopGrace gives a context that ends stopGrace after ctx.
func withStopGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(stopGrace, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() { stop(); cancel(nil) }
}

// stopping is why nothing more is to be sent after a piece that ended with err, or nil.
func stopping(ctx context.Context, err error) error {
	if halted, ok := errors.AsType[*haltedError](err); ok {
		return halted.why
	}
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}
