package kafkainbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

// handle handles records in their order, and reports whether all are done; else the partition is
// to stop. Where the handler fails for several it takes them in halves, until the record that
// fails is alone.
func (p *partition) handle(items []item) bool {
	waiting := false // at a record, until a person does something
	defer func() {
		if waiting {
			p.c.unblocked(p)
		}
	}()
	attempts := 0
	for failures := 1; ; failures++ {
		err := items[0].err
		if err == nil {
			err = p.round(items)
		}
		if err == nil {
			p.finish(items)
			return true
		}
		if p.ctx.Err() != nil {
			return false
		}
		switch fault := blamed(err); {
		case fault == nobodys:
			p.c.trouble(p.ctx, fmt.Errorf("topic %s, partition %d: %w", p.topic, p.number, err))
		case len(items) > 1:
			half := len(items) / 2
			return p.handle(items[:half]) && p.handle(items[half:])
		default:
			attempts++
			refused := p.refused(items[0], attempts, err)
			switch {
			case fault == attempt && attempts < p.c.cfg.Retry.Attempts:
				p.c.failed(refused)
			case fault != rewound && p.c.cfg.DeadLetterTopic != "":
				return p.setAside(items[0], refused)
			default:
				p.c.blocked(refused, !waiting)
				waiting = true
			}
		}
		if !p.pause(p.c.cfg.Retry.delay(failures, p.c.share())) {
			return false
		}
	}
}

func (p *partition) refused(it item, attempts int, err error) *RecordError {
	var ours *handlerError
	if errors.As(err, &ours) {
		err = ours.err
	}
	return &RecordError{Topic: p.topic, Partition: p.number, Offset: it.record.Offset, Attempts: attempts, Err: err}
}

// round claims the keys of the items and handles those that are fresh, in one transaction.
func (p *partition) round(items []item) error {
	began := time.Now()
	select {
	case p.c.connections <- struct{}{}:
		defer func() { <-p.c.connections }()
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	tx, err := p.c.cfg.DB.Begin(p.ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(p.ctx))
	keys := make([]inbox.Key, len(items))
	for i := range items {
		keys[i] = items[i].key
	}
	fresh, err := p.c.box.Claim(p.ctx, pgxinbox.Tx(tx), keys)
	if err != nil {
		return err
	}
	records := make([]*kgo.Record, 0, len(items))
	for i := range items {
		if fresh[i] {
			records = append(records, items[i].record)
		}
	}
	if len(records) > 0 {
		if err := p.call(tx, records); err != nil {
			return lost(tx, err)
		}
	}
	if err := ofCommit(tx.Commit(p.ctx)); err != nil {
		return err
	}
	p.c.rounded(Round{
		Topic: p.topic, Partition: p.number, Handled: len(records), Duplicates: len(items) - len(records),
		LastTimestamp: items[len(items)-1].record.Timestamp, Took: time.Since(began),
	})
	return nil
}

// call runs the handler for records, each once.
func (p *partition) call(tx pgx.Tx, records []*kgo.Record) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &handlerError{&PanicError{Value: value, Stack: debug.Stack()}}
		}
	}()
	lent := handlersTx{tx}
	if p.c.cfg.HandleRound != nil {
		err = p.c.cfg.HandleRound(p.ctx, lent, records)
		return ofHandler(err)
	}
	for _, record := range records {
		if err := p.c.cfg.Handle(p.ctx, lent, record); err != nil {
			return ofHandler(err)
		}
	}
	return nil
}

// lost takes the blame from a handler whose connection is gone, unless it was a time limit of its
// own that closed it.
func lost(tx pgx.Tx, err error) error {
	if blamed(err) == attempt && tx.Conn().IsClosed() && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the connection is lost: %s", describe(err))
	}
	return err
}

func ofHandler(err error) error {
	if err == nil {
		return nil
	}
	return &handlerError{err}
}

// handlersTx is the transaction as the handler has it: its end is not the handler's.
type handlersTx struct{ pgx.Tx }

func (handlersTx) Commit(context.Context) error   { return errHandlersTx }
func (handlersTx) Rollback(context.Context) error { return errHandlersTx }
