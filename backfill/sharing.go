package backfill

import (
	"context"
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// shares is the reason against a replay: another table has rows with keys and topics of the chosen ones.
func (p *replayPlan) shares() string {
	return "table " + p.sharing + " has rows with the same keys in the same topics, and the order of rows of two tables is not known"
}

// findSharing looks for another configured table that has rows with the keys and topics of the chosen ones. It
// does not look where the order of a key does not count, or where each row has a key of its own.
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

// sharesWith reads the rows of a table that may have the key of a chosen row, until one goes to a topic of
// chosen rows. Where SQL cannot compare the keys, it reads all rows.
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
