package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// Sessions end anywhere, in every way, and PostgreSQL crashes in between and takes the slot back. Rows
// may be repeated then, in their order: a row of a key comes after the one before it, or begins a
// repetition. The same holds for rows and dead letters of a parked key taken together.
func TestSessions_RepeatRowsOfAKeyInTheirOrder(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { randomSessions(t, seed) })
	}
}

// numberedTxns are transactions of one to four batches; a value is its row's number among those of its key.
func numberedTxns(random *rand.Rand) (batches []func() *wal.Batch, ends []wal.LSN, last map[string]int) {
	last = map[string]int{}
	for n := range 10 {
		commit, parts, ordinal := wal.LSN(110+20*n), 1+random.IntN(4), 1
		for part := range parts {
			var rows []string
			for range 1 + random.IntN(4) {
				key := string('a' + rune(random.IntN(3)))
				last[key]++
				bad := ""
				if random.IntN(20) == 0 {
					bad = "bad"
				}
				rows = append(rows, fmt.Sprintf("order/%s/%s%d", key, bad, last[key]))
				ordinal++
			}
			first, continues, goesOn := ordinal-len(rows), part > 0, part < parts-1
			one := func() *wal.Batch {
				b := batch(commit, commit+10, first, rows...)
				if !goesOn {
					b.Rows[0].Txn.End = commit + 10 // all have it
				}
				if continues && !goesOn {
					b.Closes = commit + 10
				}
				return b
			}
			if goesOn {
				one = open(one)
			}
			batches = append(batches, one)
		}
		ends = append(ends, commit+10)
	}
	return batches, ends, last
}

// goesBack has one start of n find a slot that went back to an earlier commit, as after a crash of PostgreSQL.
func goesBack(server *fakeServer, ends []wal.LSN, random *rand.Rand, n int) {
	server.openErr = func(int64) error {
		server.mu.Lock()
		defer server.mu.Unlock()
		if back := ends[random.IntN(len(ends))]; random.IntN(n) == 0 && back < server.confirmed {
			server.confirmed = back
		}
		return nil
	}
}

// refuseBadUntil is refuseBad until somebody has raised the limit.
func refuseBadUntil(accepted time.Time) func(*record.Record) sinktest.Verdict {
	return func(rec *record.Record) sinktest.Verdict {
		if time.Now().After(accepted) {
			return sinktest.Verdict{}
		}
		return refuseBad(rec)
	}
}

func randomSessions(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 7))
	batches, ends, last := numberedTxns(random)
	server := newServer(batches...)
	server.skipConfirmed = true
	goesBack(server, ends, rand.New(rand.NewPCG(seed, 8)), 3)
	r := newRejecting(server)
	b := r.bench
	b.sink.Delay(time.Duration(1+random.IntN(50)) * time.Millisecond)
	b.sink.Scatter(random.IntN(2) == 0)
	cfg := Config{MaxInFlightBytes: 200 + random.IntN(20_000), Router: router.Config{PositionHeaders: random.IntN(4) == 0}}
	if random.IntN(2) == 0 {
		cfg.OnReject, cfg.ParkKey = DeadLetterOnReject, true
		accepted := time.Now().Add(time.Duration(random.IntN(10_000)) * time.Millisecond) // by then somebody has raised the limit
		b.sink.Decide(refuseBadUntil(accepted))
	}
	r.run(t, cfg)
	for range 12 {
		pass(time.Duration(random.IntN(400)) * time.Millisecond)
		server.mu.Lock()
		current := server.current
		server.mu.Unlock()
		if current == nil {
			continue
		}
		err := []error{
			&fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "read stream", Err: errors.New("connection reset")},
			&fault.Error{Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, LSN: 125, Err: errors.New("too large")},
			fmt.Errorf("stream from slot: %w", wal.ErrReadPast),
		}[random.IntN(3)]
		select {
		case current.fail <- err:
		default: // it has one
		}
	}
	pass(10 * time.Second)
	at := map[string]int{}
	var story []string
	for _, d := range b.sink.Delivered() {
		key := string(d.Key)
		n, err := strconv.Atoi(strings.TrimPrefix(string(d.Value), "bad"))
		story = append(story, map[bool]string{true: "L:"}[d.Topic == lettersTopic]+key+string(d.Value))
		if err != nil || n > at[key]+1 {
			t.Errorf("seed %d: row %d of key %s comes after row %d: %s", seed, n, key, at[key], strings.Join(story, " "))
			break
		}
		at[key] = n
	}
	for key, n := range last {
		if at[key] != n && !t.Failed() {
			t.Errorf("seed %d: key %s ends with row %d of %d", seed, key, at[key], n)
		}
	}
	b.stop(t)
}
