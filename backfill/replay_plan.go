package backfill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/wording"
)

// replayPlan is what would be sent.
type replayPlan struct {
	end         wal.LSN // of the WAL, behind the snapshot
	point       wal.LSN // of the records
	rows        int64   // chosen by SQL
	leftOut     int64   // of them, those of other topics
	rejected    int64   // of them, those that no record can be made of
	rejection   error   // of the first of these
	more        bool    // there are more than --max-rows
	topics      map[string]int64
	first, last snapshot.Tuple
	newerRows   int64 // not chosen, and newer than a chosen one of their key
	newerKeys   int64
	unknown     bool // nobody can tell which rows are newer
	absent      int  // ids without a row
	undelivered undelivered
	sharing     string // table with rows of a chosen key in a topic of chosen rows; empty: none has
}

// survey reads the chosen rows, and routes them.
func (r *replay) survey(ctx context.Context, w *work) error {
	s, p := &w.tables[0], &r.plan
	var err error
	if p.end, err = w.holder.WALInserted(ctx); err != nil {
		return err
	}
	p.point = p.end
	r.readUndelivered(ctx, w)
	if err := r.route(ctx, w); err != nil {
		return err
	}
	if err := r.findSharing(ctx, w); err != nil {
		return err
	}
	if n := len(r.Options.IDs); n > 0 && !r.Options.CompleteKeys {
		distinct := slices.Clone(r.Options.IDs)
		slices.Sort(distinct)
		p.absent = max(0, len(slices.Compact(distinct))-int(p.rows))
	}
	none := s.Order.Basis == snapshot.Key || s.Order.Basis == snapshot.Place
	switch {
	case r.facts.none || r.Options.CompleteKeys:
		return nil
	case r.facts.key == "" || none:
		p.unknown = true
		return nil
	}
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		row, err := q.One(`SELECT pg_catalog.count(*), pg_catalog.count(DISTINCT "of") FROM ` + r.ranked(s) + ` WHERE "n" > 0 AND NOT "is"`)
		if err != nil {
			return postgres.Classify("look for newer rows of table "+s.Name.String(), err)
		}
		if p.newerRows, err = strconv.ParseInt(row.Text(0), 10, 64); err != nil {
			return err
		}
		p.newerKeys, err = strconv.ParseInt(row.Text(1), 10, 64)
		return err
	})
}

// route reads and routes, up to --max-rows.
func (r *replay) route(ctx context.Context, w *work) error {
	s, p := &w.tables[0], &r.plan
	p.topics = make(map[string]int64)
	reader, err := w.holder.Reader(ctx)
	if err != nil {
		return err
	}
	defer reader.Close() // also inside a reading
	rows := reader.Read(ctx, s, nil, nil)
	row := s.NewRow()
	for {
		columns, order := rows.Next()
		if columns == nil && order == nil {
			return rows.Err()
		}
		if p.rows++; p.rows > int64(r.Options.MaxRows) {
			p.more = true
			return nil
		}
		snapshot.SetValues(row, columns)
		p.last = snapshot.TupleOf(order)
		if p.rows == 1 {
			p.first = p.last
		}
		topic, err := r.topicOf(ctx, row)
		_, rejected := errors.AsType[*record.RowError](err)
		switch {
		case rejected:
			if p.rejected++; p.rejected == 1 {
				p.rejection = fmt.Errorf("at %s: %w", s.Order.Describe(p.last), err)
			}
		case err != nil:
			return err
		case r.Options.Topic != "" && topic != r.Options.Topic:
			p.leftOut++
		default:
			p.topics[topic]++
			r.noteUndelivered(row)
		}
	}
}

// show prints the plan.
func (r *replay) show(w *work) {
	s, p := &w.tables[0], &r.plan
	count := wording.Count(p.rows-p.leftOut, "row")
	if p.more {
		count = fmt.Sprintf("more than %d rows", r.Options.MaxRows)
	}
	lines := []string{"send " + count + " of table " + s.Name.String() + " again"}
	if r.beside != nil {
		lines[0] = strings.TrimSuffix(lines[0], " again") + ", beside the relay"
		if w.resumed {
			lines[0] += fmt.Sprintf("; of these %s sent already", wording.Count(w.progress.Rows, "row"))
		} else if w.ledger == nil {
			lines = append(lines, "  the configuration keeps no positions in Kafka (relay.detect_moved_slot): an interrupted backfill starts from the beginning")
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(p.topics)) {
		to := topic
		if r.Options.ToTopic != "" {
			to = r.Options.ToTopic + " instead of " + topic
		}
		lines = append(lines, fmt.Sprintf("  %d to topic %s", p.topics[topic], to))
	}
	if p.rows > 0 && len(s.Order.By) > 0 {
		lines = append(lines, "  from "+s.Order.Describe(p.first), "  to   "+s.Order.Describe(p.last))
	}
	if p.leftOut > 0 {
		lines = append(lines, fmt.Sprintf("  without %s of other topics", wording.Count(p.leftOut, "row")))
	}
	if p.rejected > 0 {
		lines = append(lines, fmt.Sprintf("  %s cannot be sent: the mapping makes no record of them", wording.Count(p.rejected, "row")))
	}
	if p.absent > 0 {
		lines = append(lines, fmt.Sprintf("  %s of --ids not in the table", wording.Count(p.absent, "event")))
	}
	if text := p.undelivered.text(); text != "" {
		lines = append(lines, "dead letters: "+text)
	}
	lines = append(lines, "order: "+r.order())
	if !r.Options.Yes {
		lines = append(lines, "", "nothing was sent; repeat with --yes")
	}
	r.Out.say(Line{What: "plan", Text: strings.Join(lines, "\n"), Tables: []TableLine{{Table: s.Name.String(), Rows: p.rows - p.leftOut, Exact: !p.more, Order: s.Order.Names()}}})
}

// order describes the order of the records for the plan.
func (r *replay) order() string {
	p := &r.plan
	switch {
	case r.beside != nil:
		return r.besideOrder()
	case r.Options.ToTopic != "":
		return "the records go to a topic of their own"
	case r.Options.AcceptOrder:
		return "the records land after newer ones of their keys, also of a running relay"
	case p.undelivered.text() != "":
		return p.undelivered.step()
	case p.sharing != "":
		return p.shares() + ": use --to-topic or --accept-order"
	case r.Options.CompleteKeys:
		return "each key ends with its newest row; the relay has to be stopped meanwhile"
	case p.unknown:
		return "nobody can tell whether the keys have newer rows: use --to-topic or --accept-order"
	case p.newerRows > 0:
		return fmt.Sprintf("%s of %s newer than the first that is sent: use --complete-keys, --to-topic or --accept-order", wording.Count(p.newerRows, "further row"), wording.Count(p.newerKeys, "key"))
	}
	return "no key has newer rows; the relay has to be stopped meanwhile"
}

// refusal is why what was planned is not done.
func (r *replay) refusal() error {
	p := &r.plan
	switch {
	case r.beside != nil:
		return r.besideRefusal()
	case p.more:
		return progress.Refuse(fmt.Errorf("there are more than %d rows", r.Options.MaxRows), "choose fewer, or raise --max-rows")
	case !r.Options.Yes || !r.Options.takesSlot():
		return nil
	case p.undelivered.text() != "":
		return p.undelivered.refusal(&r.Options)
	case p.sharing != "":
		return progress.Refuse(errors.New(p.shares()), "use --to-topic or --accept-order")
	case r.Options.CompleteKeys:
		return nil
	case p.unknown || p.newerRows > 0:
		return progress.Refuse(errors.New("the records would land after newer ones of their keys"), "use --complete-keys, --to-topic or --accept-order")
	}
	return nil
}

// exact refuses tables in which a transaction cannot continue after a given row.
func (r *replay) exact(w *work) error {
	if s := &w.tables[0]; w.settings.Guarantee == relay.ExactlyOnce && !s.Order.Total {
		return progress.Refuse(fmt.Errorf("table %s has no unique key without NULLs, so that rows could come twice", s.Name), "add one, or use --set relay.guarantee=at_least_once")
	}
	return nil
}
