package progress

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Online is how far a backfill came that streams from its slot meanwhile, bucket by bucket: package buckets.
// Progress.Snapshot and End are then of the bucket that was read last, TableProgress.Last and Place of the one
// that is read.
type Online struct {
	Buckets int
	Next    int      // the first bucket of which not all rows are acknowledged
	Reading bool     // its snapshot is taken: Progress.Snapshot
	Deleted int64    // rows of the tables that the server has counted as deleted, since Counted
	Counted string   // seconds of the server's clock when its statistics began
	Files   []string // of the tables and partitions, with their names: emptying or rewriting one gives it another
	Exactly bool     // relay.guarantee is exactly_once
	Until   wal.LSN  // everything that commits before it is delivered, or left to pending buckets; the slot stands there, or did not come so far yet

	Shards []buckets.Streamed // of the publication of each shard
}

type wireOnline struct {
	Buckets int      `json:"buckets"`
	Next    int      `json:"next"`
	Reading bool     `json:"reading,omitempty"`
	Deleted int64    `json:"deleted"`
	Counted string   `json:"counted_since"`
	Files   []string `json:"files"`
	Exactly bool     `json:"exactly_once,omitempty"`
	Until   string   `json:"until"`

	Shards []wireStreamed `json:"shards"`
}

type wireStreamed struct {
	Last wireTxn `json:"last"`
	Seen wireTxn `json:"seen"`
}

type wireTxn struct {
	Commit string    `json:"commit"`
	XID    uint32    `json:"xid"`
	Time   time.Time `json:"time"`
}

func wireOf(t buckets.Txn) wireTxn {
	return wireTxn{Commit: t.Commit.String(), XID: t.XID, Time: t.Time}
}

func (w *wireTxn) parse() (t buckets.Txn, err error) {
	t = buckets.Txn{XID: w.XID, Time: w.Time}
	t.Commit, err = wal.ParseLSN(w.Commit)
	return t, err
}

func (o *Online) wire() *wireOnline {
	w := &wireOnline{
		Buckets: o.Buckets, Next: o.Next, Reading: o.Reading, Deleted: o.Deleted, Counted: o.Counted, Files: o.Files, Exactly: o.Exactly, Until: o.Until.String(),
	}
	for _, s := range o.Shards {
		w.Shards = append(w.Shards, wireStreamed{wireOf(s.Last), wireOf(s.Seen)})
	}
	return w
}

func (w *wireOnline) parse() (*Online, error) {
	o := &Online{Buckets: w.Buckets, Next: w.Next, Reading: w.Reading, Deleted: w.Deleted, Counted: w.Counted, Files: w.Files, Exactly: w.Exactly}
	if o.Buckets < 1 || o.Next < 0 || o.Next > o.Buckets || o.Next == o.Buckets && o.Reading {
		return nil, fmt.Errorf("bucket %d of %d makes no sense", o.Next, o.Buckets)
	}
	var err error
	if o.Until, err = wal.ParseLSN(w.Until); err != nil {
		return nil, fmt.Errorf("until: %w", err)
	}
	for _, each := range w.Shards {
		var s buckets.Streamed
		if s.Last, err = each.Last.parse(); err != nil {
			return nil, fmt.Errorf("shards: last: %w", err)
		}
		if s.Seen, err = each.Seen.parse(); err != nil {
			return nil, fmt.Errorf("shards: seen: %w", err)
		}
		if s.Last.Commit >= o.Until || s.Seen.Commit != 0 && s.Seen.Commit < o.Until {
			return nil, fmt.Errorf("a shard has its last transaction at %s, before %s, and saw one at %s, after it", s.Last.Commit, o.Until, s.Seen.Commit)
		}
		o.Shards = append(o.Shards, s)
	}
	if len(o.Shards) == 0 {
		return nil, fmt.Errorf("shards are missing")
	}
	return o, nil
}
