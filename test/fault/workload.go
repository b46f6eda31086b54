package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// workload writes transactions of every shape and notes what it knows of their
// outcome: committed, rolled back, or unknown because the connection broke at the
// COMMIT. What the table holds in the end decides the unknown ones.
type workload struct {
	url    string
	plan   Plan
	topics []string // aggregate types

	stop context.CancelFunc
	work sync.WaitGroup
	gate sync.RWMutex // held for reading by each transaction

	rows      atomic.Int64
	unknown   atomic.Int64
	broken    atomic.Int64 // connections lost
	mu        sync.Mutex
	committed map[string]bool
	aborted   map[string]bool
	seqs      map[string]int // next number of each key
	shared    []string
}

const insert = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, $3, $4, $5)`

func startWorkload(url string, plan Plan, topics []string) *workload {
	ctx, stop := context.WithCancel(context.Background())
	w := &workload{url: url, plan: plan, topics: topics, stop: stop, committed: map[string]bool{}, aborted: map[string]bool{}, seqs: map[string]int{}}
	keys := rand.New(rand.NewPCG(plan.Seed, 77))
	for range 4 {
		w.shared = append(w.shared, newID(keys))
	}
	for i := range plan.Writers {
		w.work.Go(func() { w.write(ctx, uint64(i)) })
	}
	w.work.Go(func() { w.linger(ctx) })
	if plan.Huge > 0 {
		w.work.Go(func() { w.once(ctx) })
	}
	return w
}

func (w *workload) end() {
	w.stop()
	w.work.Wait()
}

func newID(random *rand.Rand) string {
	var id uuid.UUID
	for i := range id {
		id[i] = byte(random.Uint32())
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

// writer is one connection with keys of its own.
type writer struct {
	*workload
	random *rand.Rand
	keys   []string
}

// shape is one way to write a transaction.
type shape struct {
	weight int
	write  func(*writer, context.Context, pgx.Tx, *outcome) error
}

// outcome is which rows the transaction will have if it commits.
type outcome struct{ kept, lost []string }

var errRollback = errors.New("rolled back on purpose")

var shapes = []shape{
	{240, (*writer).few},
	{40, (*writer).savepoints},
	{32, func(w *writer, ctx context.Context, tx pgx.Tx, o *outcome) error {
		if err := w.few(ctx, tx, o); err != nil {
			return err
		}
		return errRollback
	}},
	{12, func(*writer, context.Context, pgx.Tx, *outcome) error { return nil }}, // empty
	{16, (*writer).copy},
	{16, (*writer).touch},
	{1, (*writer).large},
}

func (w *workload) write(ctx context.Context, number uint64) {
	random := rand.New(rand.NewPCG(w.plan.Seed, number))
	own := &writer{workload: w, random: random}
	for range 6 {
		own.keys = append(own.keys, newID(random))
	}
	total := 0
	for _, s := range shapes {
		total += s.weight
	}
	w.connected(ctx, func(conn *pgx.Conn) error {
		n := random.IntN(total)
		for _, s := range shapes {
			if n -= s.weight; n < 0 {
				if err := own.transact(ctx, conn, s.write); err != nil {
					return err
				}
				break
			}
		}
		rest(ctx, time.Duration(random.Int64N(int64(w.plan.Pause)+1)))
		return nil
	})
}

// linger holds transactions open while others commit.
func (w *workload) linger(ctx context.Context) {
	random := rand.New(rand.NewPCG(w.plan.Seed, 1<<32))
	own := &writer{workload: w, random: random, keys: []string{newID(random), newID(random)}}
	w.connected(ctx, func(conn *pgx.Conn) error {
		return own.transact(ctx, conn, func(own *writer, ctx context.Context, tx pgx.Tx, o *outcome) error {
			for range 2 + random.IntN(4) {
				if err := own.few(ctx, tx, o); err != nil {
					return err
				}
				rest(ctx, time.Duration(random.IntN(600))*time.Millisecond)
			}
			if random.IntN(6) == 0 {
				return errRollback
			}
			return nil
		})
	})
}

// connected repeats a step over a connection, and over the next one when that
// breaks, until ctx ends.
func (w *workload) connected(ctx context.Context, step func(*pgx.Conn) error) {
	background := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		dial, cancel := context.WithTimeout(ctx, 3*time.Second)
		conn, err := pgx.Connect(dial, w.url)
		cancel()
		if err != nil {
			rest(ctx, 100*time.Millisecond)
			continue
		}
		for ctx.Err() == nil {
			if err := step(conn); err != nil {
				w.broken.Add(1)
				break
			}
		}
		closing, cancel := context.WithTimeout(background, time.Second)
		_ = conn.Close(closing)
		cancel()
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// transact writes one transaction to its end, also when ctx ends meanwhile.
func (w *writer) transact(ctx context.Context, conn *pgx.Conn, write func(*writer, context.Context, pgx.Tx, *outcome) error) error {
	w.gate.RLock()
	defer w.gate.RUnlock()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 60*time.Second)
	defer cancel()
	var o outcome
	tx, err := conn.Begin(limit)
	if err != nil {
		return err
	}
	err = write(w, limit, tx, &o)
	if err != nil {
		failed := tx.Rollback(limit)
		w.know(nil, append(o.lost, o.kept...))
		if errors.Is(err, errRollback) {
			return failed
		}
		return err
	}
	err = tx.Commit(limit)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		w.know(o.kept, o.lost)
	case errors.As(err, &refused) && refused.Severity == "ERROR":
		w.know(nil, append(o.lost, o.kept...))
	default:
		w.unknown.Add(1)
		w.know(nil, o.lost)
	}
	return err
}

func (w *workload) know(committed, aborted []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range committed {
		w.committed[id] = true
	}
	for _, id := range aborted {
		w.aborted[id] = true
	}
	w.rows.Add(int64(len(committed)))
}

// event draws one row. Its payload says which of its key's it is and carries a
// hash of itself.
func (w *writer) event() (id, topic, key, kind, payload string) {
	key = w.keys[w.random.IntN(len(w.keys))]
	if w.random.IntN(12) == 0 {
		key = w.shared[w.random.IntN(len(w.shared))]
	}
	topic = w.topics[int(key[0])%len(w.topics)]
	if w.plan.Letters != nil && w.random.IntN(500) == 0 {
		topic, key = unroutable, newID(w.random)
	}
	w.mu.Lock()
	w.seqs[key]++
	seq := w.seqs[key]
	w.mu.Unlock()
	return newID(w.random), topic, key, fmt.Sprintf("Event%d", w.random.IntN(3)), payloadWith(seq, w.filler(key))
}

// filler is that of a payload. Where there are dead letters, some rows of some keys are
// too large.
func (w *writer) filler(key string) string {
	filler := strings.Repeat("x", w.random.IntN(300))
	if w.plan.Letters == nil || key[1]%4 != 0 {
		return filler
	}
	switch n := w.random.IntN(1000); {
	case n == 0:
		return noise(w.random.Uint64(), tooHuge)
	case n < 20:
		return noise(w.random.Uint64(), tooLarge)
	}
	return filler
}

// payloadOf is spelled as the server prints a jsonb.
func payloadOf(seq, fill int) string { return payloadWith(seq, strings.Repeat("x", fill)) }

func payloadWith(seq int, filler string) string {
	return fmt.Sprintf(`{"h": "%s", "s": %d, "fill": "%s"}`, hashOf(seq, filler), seq, filler)
}

func hashOf(seq int, filler string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", seq, filler))
	return hex.EncodeToString(sum[:8])
}

func (w *writer) put(ctx context.Context, tx pgx.Tx) (string, error) {
	id, topic, key, kind, payload := w.event()
	_, err := tx.Exec(ctx, insert, id, topic, key, kind, payload)
	return id, err
}

func (w *writer) few(ctx context.Context, tx pgx.Tx, o *outcome) error {
	for range 1 + w.random.IntN(8) {
		id, err := w.put(ctx, tx)
		o.kept = append(o.kept, id)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) savepoints(ctx context.Context, tx pgx.Tx, o *outcome) error {
	for range 1 + w.random.IntN(3) {
		if err := w.few(ctx, tx, o); err != nil {
			return err
		}
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		var inner outcome
		if err := w.few(ctx, nested, &inner); err != nil {
			o.lost = append(o.lost, inner.kept...)
			return err
		}
		if w.random.IntN(2) == 0 {
			o.lost = append(o.lost, inner.kept...)
			err = nested.Rollback(ctx)
		} else {
			o.kept = append(o.kept, inner.kept...)
			err = nested.Commit(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copy writes rows that share one LSN.
func (w *writer) copy(ctx context.Context, tx pgx.Tx, o *outcome) error {
	var rows [][]any
	for range 20 + w.random.IntN(400) {
		id, topic, key, kind, payload := w.event()
		o.kept = append(o.kept, id)
		rows = append(rows, []any{uuid.MustParse(id), topic, uuid.MustParse(key), kind, []byte(payload)})
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"outbox"}, []string{"id", "aggregate_type", "aggregate_id", "event_type", "payload"}, pgx.CopyFromRows(rows))
	return err
}

// touch updates old rows, which are no events, and writes one that is.
func (w *writer) touch(ctx context.Context, tx pgx.Tx, o *outcome) error {
	if _, err := tx.Exec(ctx, `UPDATE outbox SET published_at = now() WHERE id IN (SELECT id FROM outbox WHERE published_at IS NULL LIMIT 5 FOR UPDATE SKIP LOCKED)`); err != nil {
		return err
	}
	return w.few(ctx, tx, o)
}

// once writes the huge transaction, again if the connection breaks.
func (w *workload) once(ctx context.Context) {
	rest(ctx, time.Duration(w.plan.HugeAt))
	random := rand.New(rand.NewPCG(w.plan.Seed, 1<<33))
	own := &writer{workload: w, random: random, keys: []string{newID(random)}}
	limit, stop := context.WithCancel(ctx)
	defer stop()
	w.connected(limit, func(conn *pgx.Conn) error {
		err := own.transact(ctx, conn, func(own *writer, ctx context.Context, tx pgx.Tx, _ *outcome) error {
			return own.many(ctx, tx, w.plan.Huge)
		})
		if err == nil {
			stop()
		}
		return err
	})
}

// large writes one transaction of many rows.
func (w *writer) large(ctx context.Context, tx pgx.Tx, _ *outcome) error {
	return w.many(ctx, tx, w.plan.Large)
}

// many writes rows of one key. They are not noted one by one: the table has them.
func (w *writer) many(ctx context.Context, tx pgx.Tx, n int) error {
	key := w.keys[0]
	w.mu.Lock()
	from := w.seqs[key] + 1
	w.seqs[key] += n
	w.mu.Unlock()
	_, err := tx.Exec(ctx, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
		SELECT gen_random_uuid(), $1, $2, 'Large', jsonb_build_object('s', i, 'fill', repeat('y', 60),
			'h', left(encode(sha256(convert_to(i || '/' || repeat('y', 60), 'UTF8')), 'hex'), 16)) FROM generate_series($3::int, $4::int) AS i`,
		w.topics[int(key[0])%len(w.topics)], key, from, from+n-1)
	return err
}
