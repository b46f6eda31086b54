package schemas

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/retry"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/rs/zerolog"
)

// Config says how a Keeper looks.
type Config struct {
	Refresh            time.Duration // between two looks at a subject; defaults to 5m
	RetryMin, RetryMax time.Duration // between two tries while a row waits

	// Asked, when set, counts look-ups: ok, or the reason of a failure.
	Asked func(outcome string)
}

// How long things take.
const (
	defaultRefresh = 5 * time.Minute
	patience       = 10 * time.Second       // a row waits unnoticed for so long
	freshness      = 10 * time.Second       // after an answer a row that does not fit it is a reason to ask again
	warnEvery      = time.Minute            // between two warnings that Run could not look
	apart          = 100 * time.Millisecond // between two questions because rows do not fit
)

// Session is what a wait needs of the session that a row belongs to: see delivery.Session.
type Session interface {
	Wait(deliveryCtx context.Context, signal <-chan struct{}) error
	Block(ctx, deliveryCtx context.Context, reason string, cause error, needsPerson bool, d time.Duration) error
}

// Keeper keeps what a relay knows of schemas. A nil Keeper is that of a relay without any.
//
// Learn, Again and Await are the deliverer's; Run is a goroutine of its own.
type Keeper struct {
	registry schemas.Registry
	cfg      Config
	log      zerolog.Logger

	warned time.Time // of a look by Run that failed

	mu     sync.Mutex
	looked map[any]*look // of subjects whose latest version counts: the answers that the router has
	fresh  map[any]*look // the answers that it gets next, the newest of each subject
	news   atomic.Bool   // fresh has some; read without mu
}

// look is a question and its answer. Of two looks at a subject the one that was asked later knows the
// latest version, whichever was answered first.
type look struct {
	need     *schemas.Need
	asked    time.Time
	answered time.Time
	answer   *schemas.Answer
}

// New returns nil without a registry.
func New(registry schemas.Registry, cfg Config, log zerolog.Logger) *Keeper {
	if registry == nil {
		return nil
	}
	if cfg.Refresh <= 0 {
		cfg.Refresh = defaultRefresh
	}
	return &Keeper{registry: registry, cfg: cfg, log: log, looked: make(map[any]*look), fresh: make(map[any]*look)}
}

// Run looks at known subjects until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	if k == nil {
		return
	}
	t := time.NewTicker(k.cfg.Refresh)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			k.refresh(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// refresh looks at each subject once. Where that fails, what is known stays in use.
func (k *Keeper) refresh(ctx context.Context) {
	k.mu.Lock()
	var all []*schemas.Need
	for _, l := range k.looked {
		all = append(all, l.need)
	}
	k.mu.Unlock()
	failed := false
	for _, need := range all {
		if ctx.Err() != nil {
			return
		}
		found, err := k.ask(ctx, need)
		if err != nil {
			if !failed && ctx.Err() == nil && time.Since(k.warned) >= warnEvery {
				k.log.Warn().Err(err).Msg("could not look up schemas again; continuing with the known versions")
				k.warned = time.Now()
			}
			failed = true
			continue
		}
		k.mu.Lock()
		k.fresh[need.Key()] = found
		k.news.Store(true)
		k.mu.Unlock()
	}
}

// Learn hands the router what Run found.
func (k *Keeper) Learn() {
	if k == nil || !k.news.Load() {
		return
	}
	k.mu.Lock()
	fresh := k.fresh
	k.fresh = make(map[any]*look)
	k.news.Store(false)
	k.mu.Unlock()
	for _, found := range fresh {
		k.learn(found)
	}
}

// learn hands the router an answer, unless it has that of a later question.
func (k *Keeper) learn(found *look) {
	if found.need.Latest() {
		k.mu.Lock()
		have := k.looked[found.need.Key()]
		late := have != nil && found.asked.Before(have.asked)
		if !late {
			k.looked[found.need.Key()] = found
		}
		k.mu.Unlock()
		if late {
			return
		}
	}
	if found.answer.Learn() {
		k.log.Info().Str("schema", found.answer.Schema()).Msg("encoding by schema")
	}
}

// last says when the answer that the router has was asked for, and when it came.
func (k *Keeper) last(need *schemas.Need) (asked, answered time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if have := k.looked[need.Key()]; have != nil {
		asked, answered = have.asked, have.answered
	}
	return asked, answered
}

// Again is the error of a row that was read at some time, or a *schemas.Need where the registry may
// have a version by now that the row fits: whoever wrote it registered the version before.
func (k *Keeper) Again(err error, read time.Time) error {
	misfit, ok := errors.AsType[*schemas.Misfit](err)
	if !ok || k == nil {
		return err
	}
	if asked, answered := k.last(misfit.Need); !asked.Before(read) && time.Since(answered) < freshness {
		return err
	}
	return misfit.Need
}

func (k *Keeper) ask(ctx context.Context, need *schemas.Need) (*look, error) {
	found := &look{need: need, asked: time.Now()}
	answer, err := need.Ask(ctx, k.registry)
	if k.cfg.Asked != nil && ctx.Err() == nil {
		outcome := "ok"
		if err != nil {
			outcome = reasonOf(err)
		}
		k.cfg.Asked(outcome)
	}
	found.answer, found.answered = answer, time.Now()
	return found, err
}

// Await holds a row back until what it needs is known, or the session has to end. settle makes
// durable what lies before the row; it runs after each try that failed. describe adds the row to an
// error.
func (k *Keeper) Await(ctx, deliveryCtx context.Context, s Session, need *schemas.Need, settle func() error, describe func(error) error) error {
	if k == nil {
		return describe(need)
	}
	if err := k.keepApart(ctx, deliveryCtx, s, need); err != nil {
		return err
	}
	wait := retry.Backoff{Min: k.cfg.RetryMin, Max: k.cfg.RetryMax}
	for began := time.Now(); ; {
		var found *look
		var failed error // both are written before done is closed
		done := make(chan struct{})
		go func() {
			defer close(done)
			found, failed = k.ask(deliveryCtx, need)
		}()
		if err := s.Wait(deliveryCtx, done); err != nil {
			return err
		}
		if failed == nil {
			k.learn(found)
			return nil
		}
		if err := settle(); err != nil {
			return err
		}
		if err := k.pause(ctx, deliveryCtx, s, describe(failed), time.Since(began), wait.Delay()); err != nil {
			return err
		}
	}
}

// keepApart spares the registry a question for each batch of rows that do not fit. A stop ends the wait.
func (k *Keeper) keepApart(ctx, deliveryCtx context.Context, s Session, need *schemas.Need) error {
	asked, _ := k.last(need)
	d := apart - time.Since(asked)
	if d <= 0 {
		return nil
	}
	over, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return s.Wait(deliveryCtx, over.Done())
}

// pause waits before the next try. What passes by itself is shown when it takes long. Nothing is in
// flight: settle made durable what lies before the row, so a stop ends the wait.
func (k *Keeper) pause(ctx, deliveryCtx context.Context, s Session, failed error, since, d time.Duration) error {
	passes := fault.ReasonRegistryUnreachable == reasonOf(failed)
	if !passes || since >= patience {
		return s.Block(ctx, deliveryCtx, reasonOf(failed), failed, !passes, d)
	}
	over, cancel := context.WithTimeout(ctx, min(d, patience-since))
	defer cancel()
	if err := s.Wait(deliveryCtx, over.Done()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ending.ErrStopped
	}
	return nil
}

// reasonOf is the reason of a failed look-up.
func reasonOf(err error) string {
	if failure, ok := errors.AsType[*fault.Error](err); ok {
		return failure.Reason
	}
	return fault.ReasonRegistryUnreachable
}
