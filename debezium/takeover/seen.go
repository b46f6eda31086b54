package takeover

import (
	"context"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// compareWithSlot reads the slot from its position on, confirming nothing, until the row
// of Debezium's position was seen, or its place is passed. missing explains why it was
// not seen. What it proves, it proves of this server's history.
func (c *Takeover) compareWithSlot(ctx context.Context) (seen bool, missing string, err error) {
	cfg := c.settings.Replication
	stream, err := replication.Open(ctx, cfg, c.settings.Stream, zerolog.Nop())
	if err != nil {
		return false, "", err
	}
	start := stream.StartLSN()
	c.settings.AlreadySentIn = stream.Origin()
	out := make(chan *wal.Batch)
	ended := make(chan error, 1)
	go func() {
		err := stream.Run(ctx, out, func() wal.LSN { return start })
		close(out)
		ended <- err
	}()
	w := NewComparison(*c.found.position)
	over := false
	for b := range out {
		if !over {
			if seen, over = searchBatch(w, b, c.survey.WALEnd); over {
				stream.Abort()
			}
		}
		b.Release()
	}
	err = <-ended
	if closed := stream.Close(ctx, start); over && err != nil {
		err = closed // the stream was ended by us
	}
	if ctx.Err() != nil { // which fails the rest in words of its own
		err = context.Cause(ctx)
	}
	return seen, w.Missing(), err
}

// searchBatch reports whether a batch has what is looked for, and whether the search is
// over, found or not.
func searchBatch(w *Comparison, b *wal.Batch, end wal.LSN) (found, over bool) {
	for i := range b.Rows {
		row := &b.Rows[i]
		w.Dated(row.Txn.XID, row.Txn.Time)
		found, past := w.Row(row.Txn.Commit, row.Txn.End, row.Txn.XID, row.LSN)
		if found || past {
			return found, true
		}
	}
	if !b.ThroughTime.IsZero() && w.Through(b.Through) {
		return true, true
	}
	return false, b.Through >= end
}
