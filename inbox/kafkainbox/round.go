package kafkainbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

// handle handles records in their order, and reports whether all are done; else the partition is
// to stop. Where the handler fails for several it takes them in halves, until the record that
// fails is alone.
func (p *partition) handle(q *queue, items []item) bool {
	waiting := false // at a record, until a person does something
	defer func() {
		if waiting {
			p.c.unblocked(p)
		}
	}()
	attempts := 0
	for failures := 1; ; failures++ {
		if len(items) > 1 && (items[0].watched || p.opened.suspects.Load() > 0) {
			return p.handleAlone(q, items)
		}
		err := items[0].err
		if err == nil {
			err = p.guarded(q, items)
		}
		if err == nil {
			p.finish(items)
			return true
		}
		if p.ctx.Err() != nil {
			return false
		}
		switch fault := blamed(err); {
		case errors.Is(err, errSetBack):
			p.c.setBack()
			return false
		case final(err):
			why, unknown := p.confirm(err)
			if unknown == nil {
				p.c.endSession(why)
				return false
			}
			p.c.trouble(p.ctx, unknown)
		case errors.Is(err, errOvertaken):
			waits := len(items)
			if items = p.skipDone(items); len(items) == 0 {
				return true
			}
			if len(items) < waits {
				continue
			}
			p.c.trouble(p.ctx, fmt.Errorf("topic %s, partition %d: %w, and stays where it is", p.topic, p.number, err)) // a trigger or a policy of the table
		case fault == nobodys:
			p.c.trouble(p.ctx, fmt.Errorf("topic %s, partition %d: %w", p.topic, p.number, err))
			watch(items, err)
		case len(items) > 1:
			half := len(items) / 2
			return p.handle(q, items[:half]) && p.handle(q, items[half:])
		default:
			attempts++
			refused := p.refused(items[0], attempts, err)
			switch {
			case fault == attempt && attempts < p.c.cfg.Retry.Attempts:
				p.c.failed(refused)
			case fault != rewound && p.c.cfg.DeadLetterTopic != "":
				return p.setAside(q, items[0], refused)
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

// confirm takes an error that is final, and returns why the session ends, by what the database has now.
func (p *partition) confirm(err error) (why, unknown error) {
	var lost *LostError
	if !errors.As(err, &lost) {
		return err, nil
	}
	now, unknown := p.c.load(p.ctx, p.topic, p.number)
	if unknown == nil && now.next >= lost.Start {
		p.c.trouble(p.ctx, fmt.Errorf("topic %s, partition %d: %w", p.topic, p.number, errPassed))
		return errPassed, nil
	}
	return err, unknown
}

func (p *partition) refused(it item, attempts int, err error) *RecordError {
	var ours *handlerError
	if errors.As(err, &ours) {
		err = ours.err
	}
	return &RecordError{Topic: p.topic, Partition: p.number, Offset: it.record.Offset, Attempts: attempts, Err: err}
}

// round claims the keys of the items and handles those that are fresh, in one transaction.
func (p *partition) round(q *queue, items []item, beside *probe) error {
	began := time.Now()
	tx, w, end, err := p.transaction(beside)
	if err != nil {
		return err
	}
	defer end()
	w.next("claim")
	fresh, last, err := p.claim(q, tx, items)
	if err != nil {
		return err
	}
	if len(fresh) > 0 {
		w.next("")
		returned, err := p.call(tx, copiesOf(fresh))
		if over(tx) {
			return p.takeBack(tx, fresh[returned:], items, false)
		}
		if err == nil {
			err = givenBack(tx)
		}
		if err != nil {
			w.next("end the transaction")
			if p.isAnother(tx) {
				return p.takeBack(tx, fresh, items, true)
			}
			return ofConnection(tx, err)
		}
	}
	w.next("commit")
	switch err := tx.Commit(p.ctx); {
	case unmarked(err) && len(fresh) > 0: // else no handler had it
		return p.takeBack(tx, fresh, items, true)
	case err != nil:
		return ofCommit(err)
	}
	p.committed(q, items, last)
	duplicates := len(items) - len(fresh)
	if p.c.cfg.Offsets {
		duplicates = 0 // those are ends of transactions
	}
	p.c.rounded(Round{
		Topic: p.topic, Partition: p.number, Handled: len(fresh), Duplicates: duplicates,
		LastTimestamp: items[len(items)-1].record.Timestamp, Took: time.Since(began),
	})
	return nil
}

// A round's transaction has a savepoint from its beginning to its end. A statement such as COMMIT AND CHAIN
// ends that transaction and begins another one, which lacks it: what the other one has is not committed. It takes
// no round trip, but a second transaction id.
const (
	markRound   = "; savepoint cdc_relay"
	commitRound = "release savepoint cdc_relay; commit"
)

// unmarked reports whether an error is that of a transaction without the savepoint.
func unmarked(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "3B001"
}

// isAnother reports whether the transaction of a round that failed is another one than was begun. A transaction
// that is aborted tells it, too. One that is in use, or whose connection is gone, tells nothing.
func (p *partition) isAnother(tx pgx.Tx) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), commitLimit)
	defer cancel()
	_, err := tx.Exec(ctx, "rollback to savepoint cdc_relay")
	return unmarked(err)
}

// transaction waits for a connection and begins a transaction. end rolls back what was not committed, and
// frees the connection. An attempt beside a probe has the connection made for it, and no parallel workers,
// see lost.go.
func (p *partition) transaction(beside *probe) (tx pgx.Tx, w *wait, end func(), err error) {
	select {
	case p.c.connections <- struct{}{}:
	case <-p.ctx.Done():
		return nil, nil, nil, context.Cause(p.ctx)
	}
	db, how := p.c.cfg.DB, pgx.TxOptions{BeginQuery: "begin" + markRound, CommitQuery: commitRound}
	if beside != nil {
		db, how.BeginQuery = beside.round, "begin; SET LOCAL max_parallel_workers_per_gather = 0"+markRound
	}
	w = p.timed("begin a transaction")
	if tx, err = db.BeginTx(p.ctx, how); err != nil {
		w.end()
		<-p.c.connections
		return nil, nil, nil, fmt.Errorf("begin: %w", err)
	}
	w.in(tx.Conn())
	return tx, w, func() {
		defer w.end()
		w.next("end the transaction")
		_ = tx.Rollback(context.WithoutCancel(p.ctx)) // of a committed transaction it does nothing
		<-p.c.connections
	}, nil
}

// claim takes the items for this transaction, and returns those to handle and the last item
// whose key was nobody's; that has no key where there is none.
func (p *partition) claim(q *queue, tx pgx.Tx, items []item) ([]item, item, error) {
	var last item
	mine := make([]item, 0, len(items))
	if p.c.cfg.Offsets {
		// The partition's other owner may have moved the offset between adjust, which says where
		// fetching begins, and begin, which says where the first round does.
		if items[0].record.Offset < p.opened.next {
			return nil, last, errOvertaken
		}
		for i := range items {
			if !items[i].record.Attrs.IsControl() {
				mine = append(mine, items[i])
			}
		}
		return mine, last, p.move(tx, items)
	}
	if err := p.checkLastKey(tx, q.lastKey()); err != nil {
		return nil, last, err
	}
	fresh, err := p.c.box.Claim(p.ctx, pgxinbox.Tx(tx), keysOf(items))
	if err != nil {
		return nil, last, err
	}
	for i := range items {
		if fresh[i] {
			mine, last = append(mine, items[i]), items[i]
		}
	}
	return mine, last, nil
}

// committed remembers what a transaction has done for good.
func (p *partition) committed(q *queue, items []item, last item) {
	if p.c.cfg.Offsets {
		p.opened.next = items[len(items)-1].record.Offset + 1
		return
	}
	if !last.key.IsZero() {
		q.claimed(last)
	}
	p.c.box.Remember(p.ctx, keysOf(items))
}

func keysOf(items []item) []inbox.Key {
	keys := make([]inbox.Key, len(items))
	for i := range items {
		keys[i] = items[i].key
	}
	return keys
}

// checkLastKey returns errSetBack where the server lacks a key whose claim was committed. Without it a
// round would handle records whose predecessors are to be handled again.
func (p *partition) checkLastKey(tx pgx.Tx, key claimed) error {
	if key.text == "" {
		return nil
	}
	c := p.c
	var is bool
	if err := tx.QueryRow(p.ctx, c.sql.hasKey, c.cfg.Consumer, p.topic, p.number, key.text, key.at, c.cfg.Keep).Scan(&is); err != nil {
		return fmt.Errorf("look for the last key: %w", err)
	}
	if !is {
		return errSetBack
	}
	return nil
}

// errOvertaken is for a round whose records another transaction has handled: this member's, whose
// commit was not answered, or one of the partition's other owner.
var errOvertaken = errors.New("the offset in the database is not the one that this round begins at")

// move moves the offset past the items.
func (p *partition) move(tx pgx.Tx, items []item) error {
	p.mu.Lock()
	at, row := p.clock, p.source.row
	p.mu.Unlock()
	if at.IsZero() {
		at = time.Now()
	}
	tag, err := tx.Exec(p.ctx, p.c.sql.move, p.c.cfg.Consumer, p.topic, p.number, p.opened.next, items[len(items)-1].record.Offset+1, at, row)
	if err != nil {
		return fmt.Errorf("move the offset: %w", err)
	}
	if tag.RowsAffected() == 1 {
		return nil
	}
	if err := tx.Rollback(p.ctx); err != nil {
		return fmt.Errorf("move the offset: %w", err)
	}
	now, err := p.c.load(p.ctx, p.topic, p.number)
	switch {
	case err != nil:
		return err
	case now.next < p.opened.next, row.Valid && now.id != row:
		return errSetBack
	}
	p.opened.next = now.next
	return errOvertaken
}

// skipDone counts as done what lies before the offset in the database, and returns the others.
func (p *partition) skipDone(items []item) []item {
	n := 0
	for n < len(items) && items[n].record.Offset < p.opened.next {
		n++
	}
	p.finish(items[:n])
	return items[n:]
}

// copiesOf are copies of the items' records for a handler, which may change them: the next attempt and the
// dead letter have them as they were read.
func copiesOf(items []item) []*kgo.Record {
	n := 0
	for i := range items {
		n += len(items[i].record.Headers)
	}
	headers := make([]kgo.RecordHeader, 0, n)
	copies, records := make([]kgo.Record, len(items)), make([]*kgo.Record, len(items))
	for i := range items {
		from := len(headers)
		headers = append(headers, items[i].record.Headers...)
		copies[i], records[i] = *items[i].record, &copies[i]
		copies[i].Headers = headers[from:len(headers):len(headers)]
	}
	return records
}

// call runs the handler for records, each once, and returns for how many of them it has done all.
func (p *partition) call(tx pgx.Tx, records []*kgo.Record) (n int, err error) {
	returned := false
	defer func() {
		if value := recover(); value != nil {
			err = &handlerError{&PanicError{Value: value, Stack: debug.Stack()}}
		} else if !returned {
			p.c.endSession(fmt.Errorf("topic %s, partition %d: %w", p.topic, p.number, errExited))
		}
	}()
	theirs := handlersTx{tx}
	if p.c.cfg.HandleRound != nil {
		err = p.c.cfg.HandleRound(p.ctx, theirs, records)
	} else {
		for ; n < len(records); n++ {
			if err = p.c.cfg.Handle(p.ctx, theirs, records[n]); err != nil || over(tx) {
				break
			}
		}
	}
	returned = true
	return n, ofHandler(err)
}

// key is what Config.Key makes of a record. A panic of it is an error, as one of the handler is.
func (p *partition) key(r *kgo.Record) (key inbox.Key, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("key: %w", &PanicError{Value: value, Stack: debug.Stack(), key: true})
		}
	}()
	return p.c.cfg.Key(r)
}

// over reports whether a statement has ended the transaction, and left its connection.
func over(tx pgx.Tx) bool {
	return tx.Conn().PgConn().TxStatus() == 'I' && !tx.Conn().IsClosed()
}

// takeBack takes the claims of items back that were committed without their work, and returns why Run ends.
// Where the handler began another transaction, that one is rolled back, and any of the items may be its record.
func (p *partition) takeBack(tx pgx.Tx, left, round []item, another bool) error {
	why := &TransactionError{Topic: p.topic, Partition: p.number, Offset: left[0].record.Offset, Last: round[len(round)-1].record.Offset, Another: another}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), commitLimit)
	defer cancel()
	var db interface {
		Begin(ctx context.Context) (pgx.Tx, error)
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	} = tx.Conn()
	if tx.Conn().IsClosed() { // by the commit that failed
		db = p.c.cfg.DB
	} else if !over(tx) {
		if _, why.Err = db.Exec(ctx, "rollback"); why.Err != nil {
			return why
		}
	}
	if p.c.cfg.Offsets {
		_, why.Err = db.Exec(ctx, p.c.sql.move, p.c.cfg.Consumer, p.topic, p.number, why.Last+1, why.Offset, time.Time{}, pgtype.UUID{})
		return why
	}
	why.Err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for i := range left {
			// A dead key is claimed again.
			if err := p.c.box.Bury(ctx, pgxinbox.Tx(tx), left[i].key); err != nil {
				return err
			}
		}
		return nil
	})
	return why
}

// givenBack returns an error for a transaction that cannot be committed as it comes from the handler.
func givenBack(tx pgx.Tx) error {
	switch conn := tx.Conn().PgConn(); {
	case conn.IsBusy():
		return &handlerError{errOpen}
	case conn.TxStatus() == 'E':
		return &handlerError{errSwallowed}
	}
	return nil
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
