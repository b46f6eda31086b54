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
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// Sessions end anywhere, in every way, and PostgreSQL crashes in between and takes the slot back. Rows
// may be repeated then, in their order: a row of a key comes after the one before it, or begins a
// repetition.
func TestSessions_RepeatRowsOfAKeyInTheirOrder(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
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
				rows = append(rows, fmt.Sprintf("order/%s/%d", key, last[key]))
				ordinal++
			}
			one := fixed(commit, commit+10, ordinal-len(rows), rows...)
			if part < parts-1 {
				one = open(one)
			}
			batches = append(batches, one)
		}
		ends = append(ends, commit+10)
	}
	return batches, ends, last
}

func randomSessions(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 7))
	batches, ends, last := numberedTxns(random)
	server := newServer(batches...)
	server.skipConfirmed, server.origin = true, wal.Origin{SystemID: "1", Timeline: 1}
	crashes := rand.New(rand.NewPCG(seed, 8))
	server.openErr = func(int64) error {
		server.mu.Lock()
		defer server.mu.Unlock()
		if back := ends[crashes.IntN(len(ends))]; crashes.IntN(3) == 0 && back < server.confirmed {
			server.confirmed = back
		}
		return nil
	}
	b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}
	b.sink.Delay(time.Duration(1+random.IntN(50)) * time.Millisecond)
	b.start(t, Config{RetryMin: 10 * time.Millisecond, MaxInFlightBytes: 200 + random.IntN(20_000)})
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
	pass(time.Minute)
	at := map[string]int{}
	var story []string
	for _, d := range b.sink.Delivered() {
		key := string(d.Key)
		n, err := strconv.Atoi(string(d.Value))
		story = append(story, key+string(d.Value))
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
