package relaytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
)

// Workload writes events to an outbox table of our own shape and keeps the ledger
// of what it committed. Every writer has keys of its own, so the order of commits
// of a key is known.
type Workload struct {
	Ledger *ledger.Ledger
	Seed   uint64

	pipeline  *Pipeline
	table     string
	aggregate string
	stop      context.CancelFunc
	work      sync.WaitGroup

	mu     sync.Mutex
	failed error
}

// Seed is that of the environment, else a random one; it is printed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("CDC_RELAY_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CDC_RELAY_TEST_SEED: %v", err)
		}
	}
	t.Logf("seed: CDC_RELAY_TEST_SEED=%d", seed)
	return seed
}

// NewWorkload writes to a table; its events go to the topic aggregate-events.
func (p *Pipeline) NewWorkload(t testing.TB, table, aggregate string) *Workload {
	t.Helper()
	return &Workload{Ledger: ledger.New(), Seed: Seed(t), pipeline: p, table: table, aggregate: aggregate}
}

// Start has writers commit transactions of 1 to 8 rows, some rolled back whole
// and some to a savepoint, with a pause of at most `pause` between two.
func (w *Workload) Start(t testing.TB, writers int, pause time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	for i := range writers {
		random := rand.New(rand.NewPCG(w.Seed, uint64(i)))
		w.work.Go(func() {
			if err := w.write(ctx, random, pause); err != nil {
				w.mu.Lock()
				w.failed = errors.Join(w.failed, err)
				w.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		stop()
		w.work.Wait()
	})
}

// Stop ends the writers; what they wrote is in the ledger then.
func (w *Workload) Stop(t testing.TB) {
	t.Helper()
	w.stop()
	w.work.Wait()
	if w.failed != nil {
		t.Fatalf("workload: %v", w.failed)
	}
}

func (w *Workload) write(ctx context.Context, random *rand.Rand, pause time.Duration) error {
	background := context.WithoutCancel(ctx)
	conn, err := pgx.Connect(background, w.pipeline.DB.URL)
	if err != nil {
		return err
	}
	defer conn.Close(background)
	keys := make([]uuid.UUID, 5)
	for i := range keys {
		keys[i] = uuid.New()
	}
	for ctx.Err() == nil {
		if err := w.transact(background, conn, random, keys); err != nil {
			return err
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(random.Int64N(int64(pause)))):
			}
		}
	}
	return nil
}

// transact writes one transaction.
func (w *Workload) transact(ctx context.Context, conn *pgx.Conn, random *rand.Rand, keys []uuid.UUID) error {
	var statements pgx.Batch
	var kept, lost []ledger.Event
	statements.Queue("BEGIN")
	for range 1 + random.IntN(8) {
		event := w.queue(&statements, random, keys[random.IntN(len(keys))])
		kept = append(kept, event)
		if random.IntN(10) == 0 {
			statements.Queue("SAVEPOINT s")
			lost = append(lost, w.queue(&statements, random, keys[random.IntN(len(keys))]))
			statements.Queue("ROLLBACK TO SAVEPOINT s")
		}
	}
	if random.IntN(10) == 0 {
		lost, kept = append(lost, kept...), nil
		statements.Queue("ROLLBACK")
	} else {
		statements.Queue("COMMIT")
	}
	w.Ledger.RolledBack(lost...)
	if err := conn.SendBatch(ctx, &statements).Close(); err != nil {
		return err
	}
	w.Ledger.Committed(kept...)
	return nil
}

// queue adds the insert of one event. The payload is written as jsonb prints it,
// so it can be compared byte for byte.
func (w *Workload) queue(statements *pgx.Batch, random *rand.Rand, key uuid.UUID) ledger.Event {
	id := uuid.New()
	payload := fmt.Sprintf(`{"n": %d, "fill": "%0*d"}`, random.IntN(1e9), 1+random.IntN(200), 0)
	statements.Queue("INSERT INTO "+w.table+" (id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, $3, 'Happened', $4)",
		id, w.aggregate, key, payload)
	return ledger.Event{ID: id.String(), Topic: w.Topic(), Key: key.String(), Value: []byte(payload)}
}

// Topic is where the events go.
func (w *Workload) Topic() string { return w.aggregate + "-events" }

// Insert commits n rows of one key in one transaction and enters them.
func (w *Workload) Insert(t testing.TB, n int) uuid.UUID {
	t.Helper()
	key := uuid.New()
	w.InsertKey(t, key, n, 20)
	return key
}

// InsertKey commits n rows of a key, with payloads of about size bytes, in one
// transaction.
func (w *Workload) InsertKey(t testing.TB, key uuid.UUID, n, size int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.pipeline.DB.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), `INSERT INTO `+w.table+` (aggregate_type, aggregate_id, event_type, payload)
		SELECT $1, $2, 'Happened', jsonb_build_object('n', i, 'fill', repeat('x', $4)) FROM generate_series(1, $3) AS i RETURNING id::text`,
		w.aggregate, key, n, size)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	events := make([]ledger.Event, len(ids))
	for i, id := range ids {
		events[i] = ledger.Event{ID: id, Topic: w.Topic(), Key: key.String()}
	}
	w.Ledger.Committed(events...)
}

// Verify reads the topic and fails the test unless everything was delivered in
// order. It returns how many records were duplicates.
func (w *Workload) Verify(t testing.TB) int {
	t.Helper()
	report := w.Ledger.Check(w.pipeline.Brokers.Read(t, w.Topic()))
	t.Log(report)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	if report.Committed == 0 {
		t.Fatal("nothing was committed, so nothing is proven")
	}
	return report.Duplicates
}
