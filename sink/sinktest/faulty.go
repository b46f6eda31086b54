package sinktest

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Faults are probabilities for one try of one record.
type Faults struct {
	Fail    float64 // not durable, class Retry
	Blocked float64 // not durable, class Blocked
	Lost    float64 // durable, but reported as failed

	// Poison says which records can never be delivered.
	Poison func(*record.Record) bool

	// MaxDelay bounds the random wait of each Send for its acknowledgement.
	MaxDelay time.Duration
}

// Faulty is a Recorder whose faults come from a seed: the same Sends meet the
// same faults.
type Faulty struct{ Recorder }

var errFault = errors.New("injected fault")

// NewFaulty returns a sink that fails as faults say.
func NewFaulty(seed uint64, faults Faults) *Faulty {
	f := &Faulty{}
	random := rand.New(rand.NewPCG(seed, 0))
	f.Scatter(true)
	f.Decide(func(record *record.Record) Verdict {
		if faults.Poison != nil && faults.Poison(record) {
			return Fail(sink.Rejected, "invalid_record", errFault)
		}
		switch p := random.Float64(); {
		case p < faults.Fail:
			return Fail(sink.Retry, "not_enough_replicas", errFault)
		case p < faults.Fail+faults.Blocked:
			return Fail(sink.Blocked, "topic_authorization_failed", errFault)
		case p < faults.Fail+faults.Blocked+faults.Lost:
			v := Fail(sink.Retry, fault.ReasonNetwork, errFault)
			v.Durable = true
			return v
		}
		return Verdict{}
	})
	if faults.MaxDelay > 0 {
		f.delays(func() time.Duration { return time.Duration(random.Int64N(int64(faults.MaxDelay))) })
	}
	return f
}
