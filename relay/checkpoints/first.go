package checkpoints

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/rs/zerolog"
)

// ErrTaken means that the slot has a relay, whose checkpoints stand.
var ErrTaken = errors.New("a relay has started on it meanwhile, and writes its own")

// WriteFirst writes the first checkpoint of a slot for exactly-once, as the holder of the
// transactional id. Taking that shuts a relay out, so none may have the slot. slots are all
// that the configuration has.
func WriteFirst(ctx context.Context, slots postgres.Config, cfg relay.Config, rec *stored.Position) error {
	now, err := watch.ReadPositions(ctx, slots)
	if err != nil {
		return err
	}
	for _, slot := range now.Slots {
		switch {
		case slot.Name != rec.Slot:
		case slot.Err != nil:
			return slot.Err
		case slot.Active:
			return ErrTaken
		}
	}
	return WriteAs(ctx, cfg, stored.Key(rec.System, rec.Slot), rec)
}

// WriteAs writes the first position under a key, as the holder of the transactional id of the position's slot. If
// there is one already the error is ErrTaken.
func WriteAs(ctx context.Context, cfg relay.Config, key string, rec *stored.Position) error {
	tx, err := kafkatx.New(kafkatx.Config{Config: cfg.Kafka, CheckpointTopic: cfg.CheckpointTopic}, zerolog.Nop())
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Close(ending)
	}()
	lost, done := make(chan error, 1), make(chan struct{})
	value, err := tx.Open(ctx, sink.Holder{
		ID: stored.TransactionalID(rec.System, rec.Slot), Key: key,
		Lost: func(err error) { lost <- err }, // called once at most
	})
	switch {
	case err != nil:
		return err
	case value != nil:
		return ErrTaken
	}
	tx.SetPosition(sink.Position{Value: rec.Encode(), Whole: true, Now: true, Committed: sync.OnceFunc(func() { close(done) })})
	select {
	case <-done:
		return nil
	case err := <-lost:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
