package backfill

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// shares says that rows of another table have a key and a topic of chosen rows.
func (p *replayPlan) shares() string {
	return "table " + p.sharing + " has rows of the same keys in the same topics, and nobody can tell which of the two tables' rows are newer"
}

// findSharing looks for a table whose rows may have come after the chosen ones of their keys, where the order of a
// key is at stake. A key that is the event's own is no other row's.
func (r *replay) findSharing(ctx context.Context, w *work) error {
	if r.Options.ToTopic != "" || r.Options.AcceptOrder || r.facts.none {
		return nil
	}
	for i := range w.settings.Replication.Tables {
		if i == r.index {
			continue
		}
		t, _, err := w.holder.Describe(ctx, i)
		if postgres.Reason(err) == fault.ReasonTableMissing {
			continue
		}
		if err != nil {
			return err
		}
		shares, err := r.sharesWith(ctx, w, t)
		if err != nil {
			return err
		}
		if shares {
			r.plan.sharing = t.Name.String()
			return nil
		}
	}
	return nil
}

// sharesWith reads the rows of a table that may have the key of a chosen row, until one has a topic of theirs.
func (r *replay) sharesWith(ctx context.Context, w *work, t *snapshot.Table) (bool, error) {
	explained, err := r.routes.Pin(t.Relation)
	if err != nil {
		return false, err
	}
	facts := keyFactsOf(explained, t)
	if facts.none {
		return false, nil
	}
	all, chosen := snapshot.Selection{Table: t}, &w.tables[0]
	if facts.key != "" && r.facts.key != "" {
		all.Where = facts.keySQL() + " IN (SELECT " + r.facts.keySQL() + " FROM " + chosen.From() + " WHERE " + r.chosen() + ")"
	}
	reader, err := w.holder.Reader(ctx)
	if err != nil {
		return false, err
	}
	defer reader.Close() // also inside a reading
	rows, row := reader.Read(ctx, &all, nil, nil), all.NewRow()
	for {
		columns, order := rows.Next()
		if columns == nil && order == nil {
			return false, rows.Err()
		}
		snapshot.SetValues(row, columns)
		topic, err := r.topicOf(ctx, row)
		if _, rejected := errors.AsType[*record.RowError](err); err != nil && !rejected {
			return false, err
		}
		if topic != "" && r.plan.topics[topic] > 0 {
			return true, nil
		}
	}
}
