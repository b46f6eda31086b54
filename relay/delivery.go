package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// delivery is what a guarantee does with the routed rows of a session: how they reach the
// brokers, what follows from a failure, and what may be confirmed beside the tracker's
// word. There are two: atLeastOnce and exactlyOnce.
//
// The deliverer, goroutine B, calls all of it, but for limit and toRepeat, which are safe
// from any goroutine.
type delivery interface {
	// rules are constant.
	rules() rules

	// covers reports whether a row was delivered before this session began.
	covers(row *wal.Row) bool

	// replace puts what an earlier session decided of a row in the place of its records,
	// which begin with the n-th of the flight's.
	replace(f *flight, n int, row *wal.Row) error

	// send hands the sink what of a flight is routed and not yet sent.
	send(f *flight)

	// pass takes the position of a batch without rows.
	pass(through wal.LSN)

	// makeRoom runs while the window is full.
	makeRoom()

	// rejected runs for a flight of which the router refuses a row, once the rows before
	// that are routed. It ends the session, or returns when all rows are sent.
	rejected(ctx, drain context.Context, f *flight, rejection error) error

	// recover runs whenever a Send has failed, or the sink has given up. It ends the
	// session, or returns when all that failed is durable.
	recover(ctx, drain context.Context) error

	// renewal ticks when renew has to run though no row comes; stop ends it.
	renewal() (tick <-chan time.Time, stop func())
	renew()

	// finish runs when nothing more will be sent.
	finish()

	// unreadable runs at the end of a session whose stream ended at a row that cannot be
	// read. It returns the error to report: cause, or what keeps rows before it from being
	// delivered.
	unreadable(ctx, within context.Context, cause error) error

	// ended runs when no answer is waited for any more.
	ended(cause error)

	// limit is the highest position that may be told, whatever is acknowledged.
	limit(lsn uint64) uint64

	// toRepeat counts rows that are acknowledged, and that a start sends again.
	toRepeat(stats checkpoint.Stats) int
}

// rules are what a session does differently by guarantee.
type rules struct {
	// fenced: the brokers shut out whoever delivered for the slot before, so no time has to
	// pass between two holders of it.
	fenced bool

	// repeats: what was delivered and not confirmed is sent again.
	repeats bool

	// ordered: no record is durable for readers before an earlier one of its key.
	ordered bool
}

// openDelivery makes the session's delivery, which with exactly-once shuts out whoever had
// the slot before and finds where to go on.
func (r *Relay) openDelivery(ctx context.Context, s *session) error {
	if r.cfg.Guarantee == ExactlyOnce {
		return r.takeOver(ctx, s)
	}
	s.delivery = &atLeastOnce{s}
	return nil
}
