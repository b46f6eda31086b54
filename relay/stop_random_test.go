package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// A stop at any moment of records, refusals, dead letters, parked keys and topics that are away for
// a while either fails, or tells how many rows the next start repeats: as a rule none.
func TestStop_AtAnyMomentTellsWhatComesAgain(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	stops := map[string]int{}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { stops[randomStop(t, seed)]++ })
	}
	t.Logf("%v", stops)
	for _, kind := range []string{"nothing is repeated", "it says that rows are repeated"} {
		if stops[kind] == 0 {
			t.Errorf("in no run of %d: %s", seeds, kind)
		}
	}
}

// randomTxns are transactions of one to three batches; a value is its row's place in the slot.
func randomTxns(random *rand.Rand) (batches []func() *wal.Batch, ends map[string]wal.LSN) {
	ends = map[string]wal.LSN{}
	for n := range 12 {
		commit := wal.LSN(110 + 20*n)
		parts := 1 + random.IntN(3)
		ordinal := 1
		for part := range parts {
			var rows []string
			for range 1 + random.IntN(5) {
				kind, value := "order", fmt.Sprintf("%d.%d", n, ordinal)
				switch random.IntN(12) {
				case 0:
					value = "bad" + value
				case 1:
					kind = "" // no topic
				case 2, 3:
					kind = "away"
				}
				ends[value] = commit + 10
				rows = append(rows, fmt.Sprintf("%s/%c/%s", kind, 'a'+rune(random.IntN(4)), value))
				ordinal++
			}
			one := fixed(commit, commit+10, ordinal-len(rows), rows...)
			if part < parts-1 {
				one = open(one)
			}
			batches = append(batches, one)
		}
	}
	return batches, ends
}

func randomStop(t *testing.T, seed uint64) (kind string) {
	random := rand.New(rand.NewPCG(seed, 5))
	batches, ends := randomTxns(random)
	server := newServer()
	r := newRejecting(server)
	r.sink.Scatter(random.IntN(2) == 0)
	r.sink.Delay(time.Duration(1+random.IntN(30)) * time.Millisecond)
	away := max(0, random.IntN(40)-20) // tries
	r.sink.Decide(func(rec *record.Record) sinktest.Verdict {
		if away > 0 && rec.Topic == "away-events" {
			away--
			return sinktest.Fail(sink.Blocked, fault.ReasonUnknownTopic, errors.New("no"))
		}
		return refuseBad(rec)
	})
	r.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true, DrainTimeout: time.Second + time.Duration(random.IntN(20))*time.Second})
	ended := make(chan struct{})
	go func() {
		for _, b := range batches {
			select {
			case server.more <- b:
			case <-ended:
				return
			}
			pass(time.Duration(random.IntN(40)) * time.Millisecond)
		}
	}()
	stop := rand.New(rand.NewPCG(seed, 6))
	pass(time.Duration(stop.IntN(600)) * time.Millisecond)
	r.cancel()
	err := <-r.result
	close(ended)
	pass(time.Second)
	again, seen := 0, map[string]bool{}
	for _, d := range r.sink.Delivered() {
		value := string(d.Value)
		if d.Topic == lettersTopic {
			if _, _, err := deadletter.Parse(&topics.Message{Key: d.Key, Value: d.Value, Headers: d.Headers}); err != nil {
				t.Fatal(err)
			}
		}
		if seen[value] {
			t.Errorf("seed %d: %s is repeated within the session", seed, value)
		}
		seen[value] = true
		if ends[value] > server.position() {
			again++
		}
	}
	switch told := r.relay.Status().EventsToRepeat; {
	case err != nil && !errors.Is(err, ErrDrainCut):
		t.Errorf("seed %d: %v", seed, err)
	case err != nil:
		return "it fails"
	case again != told:
		t.Errorf("seed %d: the stop tells of %d rows to repeat, and the next start repeats %d", seed, told, again)
	case again > 0:
		return "it says that rows are repeated"
	}
	return "nothing is repeated"
}
