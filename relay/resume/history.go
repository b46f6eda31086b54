package resume

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Known is what a process knows from its sessions. The zero value knows nothing.
type Known struct {
	Origin   wal.Origin // of the server that the last session streamed from
	Reported wal.LSN    // highest position reported to a server on that timeline
}

// Continuation is how a server continues what is known.
type Continuation struct {
	Known           // from here on
	Fork  *wal.Fork // where the server's timeline left the known one; nil: it did not
	Limit wal.LSN   // the highest position reported on this history
	Ahead bool      // the slot is beyond Limit
}

// Continue decides whether a server whose slot is at start continues the history of the one
// that the last session streamed from. A position of ours is never used on another server
// than the one that it was reported to: each session starts from the slot. What is looked for here
// is what that cannot see.
//
//  1. Another cluster: its rows may have been delivered already, or belong elsewhere.
//  2. An older timeline: the old primary came back, and its slot with it.
//  3. A timeline that does not descend from ours, also where it bears the same number:
//     two standbys were promoted from one history.
//  4. A fork before what we confirmed (Fork.At < Reported): rows after it were delivered and
//     exist no more, and new rows take their positions. Nothing can call them back; the relay
//     logs an error and continues.
//  5. A slot ahead of what we reported, also after a fork: another relay streamed from it
//     meanwhile, or somebody moved or made it. Two relays on one slot are usual, so the relay
//     only warns.
func (k Known) Continue(now wal.Origin, start wal.LSN) (Continuation, error) {
	if k.Origin.SystemID == "" {
		return Continuation{Known: Known{now, start}, Limit: start}, nil
	}
	refuse := func(kind fault.Kind, reason, hint, cause string, args ...any) (Continuation, error) {
		return Continuation{}, &fault.Error{Kind: kind, Reason: reason, Op: "check the server's history", Err: fmt.Errorf(cause, args...), Hint: hint}
	}
	next := Continuation{Known: Known{now, max(start, k.Reported)}, Limit: k.Reported}
	switch {
	case now.SystemID != k.Origin.SystemID:
		return refuse(fault.KindRefused, fault.ReasonForeignServer, "correct postgres.url; if the database was moved there on purpose, restart the relay",
			"its system identifier is %s, and the relay streamed from %s", now.SystemID, k.Origin.SystemID)
	case now.Timeline < k.Origin.Timeline:
		return refuse(fault.KindRetry, fault.ReasonStalePrimary, "it is an old primary: shut it down, or rewind it to a standby",
			"it is on timeline %d, and the relay streamed on timeline %d", now.Timeline, k.Origin.Timeline)
	case now.Timeline == k.Origin.Timeline && now.Common(k.Origin) != ^wal.LSN(0):
		return refuse(fault.KindRefused, fault.ReasonForeignTimeline, "another standby was promoted; if this server is to be streamed from, restart the relay",
			"it is on timeline %d, as the server that the relay streamed from, and left their common history at %s", now.Timeline, now.Common(k.Origin))
	case now.Timeline > k.Origin.Timeline:
		fork, ok := now.Fork(k.Origin.Timeline)
		if !ok || now.Common(k.Origin) != fork.At {
			return refuse(fault.KindRefused, fault.ReasonForeignTimeline, "it was restored from elsewhere; if it is to be streamed from, restart the relay",
				"its timeline %d does not descend from timeline %d, on which the relay streamed", now.Timeline, k.Origin.Timeline)
		}
		next.Fork, next.Reported, next.Limit = &fork, start, min(k.Reported, fork.At)
	}
	next.Ahead = start > next.Limit
	return next, nil
}
