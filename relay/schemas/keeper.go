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
	patience       = 10 * time.Second // a row waits unnoticed for so long
	freshness      = 10 * time.Second // between two looks because a row does not fit
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

	mu     sync.Mutex
	looked map[any]look      // at subjects whose latest version counts
	fresh  []*schemas.Answer // guarded by mu
	news   atomic.Bool       // there are some
}

// look is when a subject was looked at last.
type look struct {
	need *schemas.Need
	at   time.Time
}

// New returns nil without a registry.
func New(registry schemas.Registry, cfg Config, log zerolog.Logger) *Keeper {
	if registry == nil {
		return nil
	}
	if cfg.Refresh <= 0 {
		cfg.Refresh = defaultRefresh
	}
	return &Keeper{registry: registry, cfg: cfg, log: log, looked: make(map[any]look)}
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
		answer, err := k.ask(ctx, need)
		if err != nil {
			if !failed && ctx.Err() == nil {
				k.log.Warn().Err(err).Msg("look at schemas again; going on with the versions at hand")
			}
			failed = true
			continue
		}
		k.mu.Lock()
		k.fresh = append(k.fresh, answer)
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
	k.fresh = nil
	k.news.Store(false)
	k.mu.Unlock()
	for _, answer := range fresh {
		k.learn(answer)
	}
}

func (k *Keeper) learn(answer *schemas.Answer) {
	if answer.Learn() {
		k.log.Info().Str("schema", answer.Schema()).Msg("encoding by schema")
	}
}

// Again is the error of a row, or a *schemas.Need where the registry may have a version by now that
// the row fits.
func (k *Keeper) Again(err error) error {
	misfit, ok := errors.AsType[*schemas.Misfit](err)
	if !ok || k == nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.looked[misfit.Key()].at) < freshness {
		return err
	}
	return misfit.Need
}

func (k *Keeper) ask(ctx context.Context, need *schemas.Need) (*schemas.Answer, error) {
	answer, err := need.Ask(ctx, k.registry)
	if k.cfg.Asked != nil && ctx.Err() == nil {
		outcome := "ok"
		if err != nil {
			outcome = reasonOf(err)
		}
		k.cfg.Asked(outcome)
	}
	if err == nil && need.Latest() {
		k.mu.Lock()
		k.looked[need.Key()] = look{need, time.Now()}
		k.mu.Unlock()
	}
	return answer, err
}

// Await holds a row back until what it needs is known, or the session has to end. settle makes
// durable what lies before the row; it runs after each try that failed. describe adds the row to an
// error.
func (k *Keeper) Await(ctx, deliveryCtx context.Context, s Session, need *schemas.Need, settle func() error, describe func(error) error) error {
	if k == nil {
		return describe(need)
	}
	wait := retry.Backoff{Min: k.cfg.RetryMin, Max: k.cfg.RetryMax}
	for began := time.Now(); ; {
		var answer *schemas.Answer
		var failed error // both are written before done is closed
		done := make(chan struct{})
		go func() {
			defer close(done)
			answer, failed = k.ask(deliveryCtx, need)
		}()
		if err := s.Wait(deliveryCtx, done); err != nil {
			return err
		}
		if failed == nil {
			k.learn(answer)
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
