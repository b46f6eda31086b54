package backfill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/selection"
)

// ReplayOptions say which rows are sent again, and how. Rows meet all conditions that are given.
type ReplayOptions struct {
	Table        string // as in the configuration; empty: its only one
	Where        string // SQL condition
	Since, Until time.Time
	By           string   // column of the time; empty: that of creation
	IDs          []string // of events
	Keys         []string // of records
	Topic        string   // that the mapping sends the rows to
	Order        []string

	ToTopic      string // where the records go instead of their own topics
	CompleteKeys bool   // with every newer row of the same keys
	AcceptOrder  bool   // after newer records of their keys

	MaxRate int
	MaxRows int
	Resume  string // run
	Yes     bool
}

// takesSlot reports whether no relay may stream meanwhile.
func (o *ReplayOptions) takesSlot() bool { return o.ToTopic == "" && !o.AcceptOrder }

func (o *ReplayOptions) check(settings *relay.Config) (index int, err error) {
	tables := settings.Replication.Tables
	switch {
	case o.Where == "" && o.Since.IsZero() && o.Until.IsZero() && len(o.IDs) == 0 && len(o.Keys) == 0 && o.Topic == "":
		return 0, usage("which rows: use --since, --until, --ids, --key, --topic or --where; --where true means all rows")
	case o.MaxRate < 0:
		return 0, usage("--max-rate %d is not allowed; allowed: rows a second, or 0 for no limit", o.MaxRate)
	case o.MaxRows < 1:
		return 0, usage("--max-rows %d is not allowed; allowed: 1 and more", o.MaxRows)
	case o.ToTopic != "" && o.CompleteKeys, o.ToTopic != "" && o.AcceptOrder, o.CompleteKeys && o.AcceptOrder:
		return 0, usage("use only one of --to-topic, --complete-keys and --accept-order")
	case len(tables) == 0:
		return 0, usage("the configuration has no table: logical messages cannot be read again")
	case o.Table == "" && len(tables) > 1:
		return 0, usage("the configuration has %d tables: name one with --table", len(tables))
	case strings.ContainsRune(o.Where+strings.Join(o.IDs, "")+strings.Join(o.Keys, ""), 0):
		return 0, usage("a condition has a byte that is zero")
	}
	if o.ToTopic != "" {
		if err := record.CheckTopic(o.ToTopic); err != nil {
			return 0, usage("--to-topic %q: a name %w", o.ToTopic, err)
		}
		if err := settings.Router.Reserved.Check(o.ToTopic); err != nil {
			return 0, usage("--to-topic: %w", err)
		}
	}
	named, err := selection.Tables(tables, o.Table)
	if err != nil {
		return 0, err
	}
	return named[0], nil // the only one without a name
}

// keyFacts are the columns of a row's id and key, as far as SQL can compare them.
type keyFacts struct {
	id       string // empty: not known
	key      string // empty: not known, or the event id
	fallback string // has the key where key is NULL or empty; empty: no column has
	none     bool   // each row has a key of its own
}

func keyFactsOf(explained *router.Explanation, t *snapshot.Table) keyFacts {
	plain := func(role string) string {
		column := explained.Roles[role]
		if slices.ContainsFunc(t.Shape.Columns, func(c snapshot.Column) bool { return c.Name == column }) {
			return column
		}
		return ""
	}
	f := keyFacts{id: plain("id"), key: plain("key"), fallback: plain(router.KeyFallback)}
	f.none = explained.Roles["key"] == "" || explained.Roles["key"] == explained.Roles["id"]
	if explained.Rekeyed != "" || explained.Roles[router.KeyFallback] != f.fallback {
		f.key, f.none = "", false
	}
	return f
}

// keySQL is the text of a row's key; NULL: it has none.
func (f *keyFacts) keySQL() string { return buckets.Key{Column: f.key, Fallback: f.fallback}.Text() }

// choose decides which rows are meant. It reads none.
func (r *replay) choose(ctx context.Context, w *work) (err error) {
	if r.routes, err = resolve.New(w.settings.Router); err != nil {
		return &relay.ConfigError{Err: err}
	}
	if w.settings.Router.Mappings[r.index].Connector != nil {
		return progress.Refuse(fmt.Errorf("table %s is mapped by `debezium:` options, whose records may not be marked as sent again", w.settings.Replication.Tables[r.index]), "insert the rows again: see the page about sending rows again")
	}
	t, warnings, err := w.holder.Describe(ctx, r.index)
	if err != nil {
		return err
	}
	for _, text := range warnings {
		r.Out.warn(text)
	}
	explained, err := r.routes.Pin(t.Relation)
	if err != nil {
		return &relay.ConfigError{Err: err}
	}
	r.facts = keyFactsOf(explained, t)
	s := snapshot.Selection{Table: t, Where: r.Options.Where}
	if s.Order, err = t.Shape.Choose(r.Options.Order); err != nil {
		return usage("--order: table %s: %w", t.Name, err)
	}
	if r.Options.Where != "" { // the operator's condition by itself
		if err := w.holder.CheckSelection(ctx, &s); err != nil {
			return err
		}
		if err := w.holder.Constant(ctx, &s); err != nil {
			return err
		}
	}
	if s.Where, err = r.condition(&s); err != nil {
		return err
	}
	r.where = s.Where
	if r.Options.CompleteKeys {
		if err := r.completable(&s); err != nil {
			return err
		}
		if r.facts.key != "" {
			s.Where = r.completed(&s)
		}
	}
	w.tables = []snapshot.Selection{s}
	return w.holder.CheckSelection(ctx, &s)
}

// condition is what chosen rows meet.
func (r *replay) condition(s *snapshot.Selection) (string, error) {
	var all []string
	if s.Where != "" {
		all = append(all, "("+s.Where+"\n)")
	}
	if !r.Options.Since.IsZero() || !r.Options.Until.IsZero() {
		by, found, err := s.Shape.TimeColumn(r.Options.By)
		if err != nil {
			return "", usage("--by: %w", err)
		}
		if !found {
			return "", usage("--since and --until: table %s has no column that is known to have the time of its rows; name it with --by, or use --where", s.Name)
		}
		all = append(all, by.Within(r.Options.Since, r.Options.Until))
	}
	among := func(flag, column string, values []string) error {
		if len(values) == 0 {
			return nil
		}
		if column == "" {
			return usage("%s: the mapping makes it of more than a column of table %s; use --where", flag, s.Name)
		}
		literals := make([]string, len(values))
		compared, typ := wal.QuoteIdentifier(column), ""
		for _, c := range s.Shape.Columns {
			if c.Name == column {
				typ = c.Type
			}
		}
		if column == r.facts.key && r.facts.fallback != "" {
			compared, typ = r.facts.keySQL(), "text"
		}
		for i, v := range values {
			literals[i] = postgres.QuoteLiteral(v)
		}
		all = append(all, compared+" = ANY (ARRAY["+strings.Join(literals, ", ")+"]::"+typ+"[])")
		return nil
	}
	if len(r.Options.IDs) > 0 && r.facts.id != "" && !slices.ContainsFunc(s.Shape.Keys, func(key []string) bool { return key[0] == r.facts.id }) {
		return "", progress.Refuse(fmt.Errorf("--ids: table %s has no unique index that begins with column %s", s.Name, r.facts.id), "create one, or use --where")
	}
	if err := among("--ids", r.facts.id, r.Options.IDs); err != nil {
		return "", err
	}
	key := r.facts.key
	if r.facts.none {
		key = r.facts.id
	}
	if err := among("--key", key, r.Options.Keys); err != nil {
		return "", err
	}
	if len(all) == 0 { // --topic alone
		return "", nil
	}
	return strings.Join(all, " AND "), nil
}

// completable refuses keys of which the newer rows cannot be found.
func (r *replay) completable(s *snapshot.Selection) error {
	if r.facts.none {
		return nil
	}
	if r.facts.key == "" {
		return progress.Refuse(fmt.Errorf("the key of table %s is made of more than a column, so that SQL cannot compare it", s.Name), "use --to-topic or --accept-order")
	}
	if s.Order.Basis == snapshot.Key || s.Order.Basis == snapshot.Place {
		return progress.Refuse(fmt.Errorf("table %s has no column for the order of writing, so that nobody knows which rows are newer", s.Name), "name columns with --order, or use --to-topic or --accept-order")
	}
	return nil
}

// chosen is the condition of chosen rows, of a row at hand.
func (r *replay) chosen() string {
	if r.where == "" {
		return "true"
	}
	return r.where
}

// ranked are the rows of the chosen keys, each with the number of chosen rows up to it.
func (r *replay) ranked(s *snapshot.Selection) string {
	return fmt.Sprintf(`(SELECT tableoid AS "in", ctid AS "at", %[1]s AS "of", coalesce(%[2]s, false) AS "is",
		pg_catalog.count(*) FILTER (WHERE %[2]s) OVER (PARTITION BY %[1]s%[3]s ROWS UNBOUNDED PRECEDING) AS "n"
		FROM %[4]s WHERE %[1]s IN (SELECT %[1]s FROM %[4]s WHERE %[2]s)) ranked`,
		r.facts.keySQL(), "("+r.chosen()+")", s.Order.OrderBy(), s.From())
}

// completed is the condition of chosen rows and all newer ones of their keys.
func (r *replay) completed(s *snapshot.Selection) string {
	return fmt.Sprintf(`(tableoid, ctid) IN (SELECT "in", "at" FROM %s WHERE "n" > 0 UNION ALL SELECT tableoid, ctid FROM %s WHERE %s IS NULL AND (%s))`,
		r.ranked(s), s.From(), r.facts.keySQL(), r.chosen())
}
