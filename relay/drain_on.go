package relay

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/retry"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// With exactly-once a row that cannot be delivered ends the session: everything that is not committed
// is read again and sent differently: with a dead letter in the row's place, without the row, or without
// its transaction. A drain takes another session for that, which reads no further than the first one.

// drainOn goes on with a drain whose session aborted rows that the next one sends differently
// (delivery.ResendChanged), as long as the drain may take. Each session sends what the first one
// had read. err is how that one ended.
func (r *Relay) drainOn(ctx, deliveryCtx context.Context, err error) error {
	wait := retry.Backoff{Min: r.cfg.RetryMin, Max: r.cfg.RetryMax}
	until := r.ended.read
	for tries := 1; delivery.ResendChanged(r.ended.cause) && deliveryCtx.Err() == nil; tries++ {
		if r.progressed {
			tries = 1
		}
		if tries > maxAtOnce && !pause(deliveryCtx, deliveryCtx, wait.Delay(), nil, nil) {
			break
		}
		r.log.Info().Err(r.ended.cause).Msg("the drain continues from the checkpoint")
		err = r.runSession(ctx, deliveryCtx, until)
		r.noteDrift(ctx, err)
		if err != nil && !r.ended.streamed {
			return fmt.Errorf("%w: %w", ErrDrainCut, err)
		}
	}
	return err
}

// sessionEnd is what a drain has to know of the session before.
type sessionEnd struct {
	streamed bool    // it began to stream
	cause    error   // what ended it
	read     wal.LSN // how far it had read
}
