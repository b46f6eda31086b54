package cutover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// polled is a table that a publisher polls.
type polled struct {
	*snapshot.Table
	marks   []snapshot.PublishedColumn // the first is what the publisher asks for
	givenUp string                     // condition; empty: no column tells
	between string                     // condition of a row with a status that says neither; empty: the mark is no status
	left    left
}

// left is what the publisher has still to do.
type left struct {
	waiting int64  // unpublished, and not given up
	givenUp int64  // unpublished
	oldest  string // age of the oldest that waits; empty: not known
	between int64  // neither published nor unpublished: claimed, or failed
}

func (t *polled) assignments() (all []string) {
	for _, m := range t.marks {
		all = append(all, "NEW."+wal.QuoteIdentifier(m.Column)+" := "+m.Set)
	}
	return all
}

// chooseMarks takes the columns that the publisher goes by.
func (t *polled) chooseMarks(named []string) error {
	all := t.Shape.PublishedColumns()
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.Column
	}
	if len(named) == 0 {
		switch len(all) {
		case 0:
			return t.refuse("stop the publisher, and use `cdc-relay cutover --stopped`",
				"has no column that is known to say which rows are published, so the publisher deletes what it has sent, and new rows cannot be hidden from it")
		case 1:
			t.marks = all
			return nil
		}
		return t.refuse("name with --mark the one that the publisher asks for, and behind it others that it sets, for example --mark "+strings.Join(names, ","),
			"has several columns that may say which rows are published: %s", strings.Join(names, ", "))
	}
	for _, name := range named {
		i := slices.Index(names, name)
		if i < 0 {
			known := "none is known"
			if len(names) > 0 {
				known = "known are " + strings.Join(names, ", ")
			}
			return usage("--mark %s: table %s has no such column that says which rows are published; %s", name, t.Name, known)
		}
		t.marks = append(t.marks, all[i])
	}
	return nil
}

// study finds out what a publisher does with the tables, and refuses those that cannot be cut.
func (w *work) study(ctx context.Context, next step) error {
	for i := range w.tables {
		t := &w.tables[i]
		if t.Filter() != "" {
			return t.refuse("take it out", "has a row filter in the publication: rows that it leaves out would be marked, and sent by nobody")
		}
		if err := t.chooseMarks(w.Options.Marks); err != nil {
			return err
		}
		if err := w.holder.Ask(ctx, func(q postgres.Querier, _ int) error { return w.studyTable(q, t) }); err != nil {
			return err
		}
	}
	if err := w.countBetween(ctx); err != nil || next == wait { // plan counts the others then
		return err
	}
	return w.count(ctx)
}

func (w *work) studyTable(q postgres.Querier, t *polled) error {
	// New rows of a partition that is in no stream would be marked, and sent by nobody.
	if err := errors.Join(catalog.RefuseUndecoded(q, t.Name, t.OID), t.checkColumns(q)); err != nil {
		return err
	}
	for i := range t.marks {
		if t.marks[i].Set == "" {
			status, err := t.publishedStatus(q, t.marks[i], w.Options.Published)
			if err != nil {
				return err
			}
			t.marks[i].Set = postgres.QuoteLiteral(status)
		}
	}
	return t.studyGivenUp(q, w.Options.Published)
}

// studyGivenUp finds out how a row is known that the publisher gave up, or has claimed.
func (t *polled) studyGivenUp(q postgres.Querier, published string) error {
	if m := t.marks[0]; !m.Sure {
		names := make([]string, 0, len(snapshot.PublishedStatuses)+1)
		for _, name := range append(slices.Clone(snapshot.PublishedStatuses), strings.ToLower(published)) {
			names = append(names, postgres.QuoteLiteral(name))
		}
		t.between = fmt.Sprintf("((%s) IS NOT TRUE AND coalesce(pg_catalog.lower(%s::text), '') <> ALL (ARRAY[%s]))", m.Where, wal.QuoteIdentifier(m.Column), strings.Join(names, ", "))
	}
	most := ""
	if column, ok := t.Shape.AttemptsColumn(); ok {
		row, err := q.One("SELECT coalesce(max(" + wal.QuoteIdentifier(column) + "), 0) FROM " + t.From() + " WHERE NOT (" + t.marks[0].Where + ")")
		if err != nil {
			return t.classify(err)
		}
		most = row.Text(0)
	}
	t.givenUp = t.Shape.GivenUp(most)
	return nil
}

func (t *polled) classify(err error) error {
	return postgres.PermissionHint(postgres.Classify("look at the rows of table "+t.Name.String(), err), "run what `cdc-relay sql --for cutover` prints")
}

// checkColumns refuses marks that a trigger cannot set, or that would make inserts fail.
func (t *polled) checkColumns(q postgres.Querier) error {
	for _, m := range t.marks {
		row, err := q.One(fmt.Sprintf(`SELECT a.attgenerated <> '',
				EXISTS (SELECT FROM pg_catalog.pg_partitioned_table p WHERE p.partrelid = a.attrelid AND a.attnum = ANY (p.partattrs::int2[])),
				coalesce((SELECT pg_catalog.string_agg(conname, ', ') FROM pg_catalog.pg_constraint
					WHERE conrelid = a.attrelid AND contype = 'c' AND a.attnum = ANY (conkey) AND pg_catalog.cardinality(conkey) > 1), '')
			FROM pg_catalog.pg_attribute a WHERE a.attrelid = %d AND a.attname = %s`, t.OID, postgres.QuoteLiteral(m.Column)))
		if err != nil {
			return t.classify(err)
		}
		const instead = "stop the publisher, and use `cdc-relay cutover --stopped`"
		switch {
		case row.Bool(0):
			return t.refuse(instead, "computes column %s (GENERATED), so no trigger can set it", m.Column)
		case row.Bool(1):
			return t.refuse(instead, "is partitioned by column %s, which a trigger may not change", m.Column)
		case row.Text(2) != "" && len(t.marks) == 1:
			return t.refuse("name with --mark all columns that a published row has set, if that is what it wants; else "+instead,
				"has a constraint on column %s and others (%s): a new row that is marked in this column alone may be refused", m.Column, row.Text(2))
		}
	}
	return nil
}

// publishedStatus is the status that published rows have.
func (t *polled) publishedStatus(q postgres.Querier, m snapshot.PublishedColumn, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	rows, err := q.All("SELECT DISTINCT " + wal.QuoteIdentifier(m.Column) + "::text FROM " + t.From() + " WHERE NOT (" + m.Where + ") LIMIT 100")
	if err != nil {
		return "", t.classify(err)
	}
	var known, all []string
	for _, r := range rows {
		all = append(all, r[0].Text)
		if slices.Contains(snapshot.PublishedStatuses, strings.ToLower(r[0].Text)) {
			known = append(known, r[0].Text)
		}
	}
	if len(known) == 1 {
		return known[0], nil
	}
	has := "no published row"
	if len(all) > 0 {
		slices.Sort(all)
		has = "rows with " + strings.Join(all, ", ")
	}
	return "", t.refuse("say it with --published", "does not tell which value of column %s a published row has: it has %s", m.Column, has)
}

// countBetween counts the rows with a status that says neither that they are published nor that they
// are not. It reads the whole table.
func (w *work) countBetween(ctx context.Context) error {
	for i := range w.tables {
		t := &w.tables[i]
		if t.between == "" {
			continue
		}
		err := w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
			row, err := q.One("SELECT count(*) FROM " + t.From() + " WHERE " + t.between)
			if err != nil {
				return t.classify(err)
			}
			t.left.between, err = strconv.ParseInt(row.Text(0), 10, 64)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// count counts what the publisher has still to do.
func (w *work) count(ctx context.Context) error {
	for i := range w.tables {
		t := &w.tables[i]
		err := w.holder.Ask(ctx, func(q postgres.Querier, _ int) (err error) {
			t.left, err = t.countLeft(q)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *polled) countLeft(q postgres.Querier) (left, error) {
	given, oldest, where := "false", "NULL", "true"
	if len(t.marks) > 0 {
		where = t.marks[0].Where
	}
	if t.givenUp != "" {
		given = t.givenUp
	}
	if order, err := t.Shape.Choose(nil); err == nil && order.Basis == snapshot.Time {
		oldest = "pg_catalog.justify_interval(pg_catalog.date_trunc('second', pg_catalog.now() - min(" + wal.QuoteIdentifier(order.By[0].Name) + ")))::text"
	}
	row, err := q.One(fmt.Sprintf("SELECT count(*) FILTER (WHERE NOT %[1]s), count(*) FILTER (WHERE %[1]s), %[2]s FROM %[3]s WHERE %[4]s", given, oldest, t.From(), where))
	if err != nil {
		return left{}, t.classify(err)
	}
	n := left{oldest: row.Text(2), between: t.left.between}
	if n.waiting, err = strconv.ParseInt(row.Text(0), 10, 64); err != nil {
		return n, err
	}
	n.givenUp, err = strconv.ParseInt(row.Text(1), 10, 64)
	return n, err
}

func (n left) String() string {
	text := wording.Count(n.waiting, "row") + " to be published"
	if n.waiting > 0 && n.oldest != "" {
		text += ", the oldest " + n.oldest + " old"
	}
	if n.givenUp > 0 {
		text += fmt.Sprintf(", and %s with failed attempts, which the publisher may have given up", wording.Count(n.givenUp, "row"))
	}
	if n.between > 0 {
		text += fmt.Sprintf(", and %s with another status, which may be claimed by a publisher, or failed", wording.Count(n.between, "row"))
	}
	return text
}

// lively is what happens to a table.
type lively struct {
	inserted, changed, deleted int64
	who                        string // sessions that have locks on it
}

func (t *polled) lively(q postgres.Querier) (l lively, err error) {
	row, err := q.One(fmt.Sprintf(`WITH parts AS (SELECT %[1]d::oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree(%[1]d))
		SELECT coalesce(sum(n_tup_ins), 0)::bigint, coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_del), 0)::bigint,
			coalesce((SELECT pg_catalog.string_agg(DISTINCT coalesce(nullif(a.application_name, ''), 'a session without application_name') || ' (' || a.usename || ')', ', ')
				FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a USING (pid)
				WHERE l.relation IN (SELECT oid FROM parts) AND l.mode IN ('RowShareLock', 'RowExclusiveLock') AND pid <> pg_catalog.pg_backend_pid()), '')
		FROM pg_catalog.pg_stat_all_tables WHERE relid IN (SELECT oid FROM parts)`, t.OID))
	if err != nil {
		return l, t.classify(err)
	}
	for i, to := range []*int64{&l.inserted, &l.changed, &l.deleted} {
		if *to, err = strconv.ParseInt(row.Text(i), 10, 64); err != nil {
			return l, err
		}
	}
	l.who = row.Text(3)
	return l, nil
}

// watch looks at a table for a while.
func (w *work) watch(ctx context.Context, t *polled) (string, error) {
	var first, last lively
	ask := func(to *lively) error {
		return w.holder.Ask(ctx, func(q postgres.Querier, _ int) (err error) {
			*to, err = t.lively(q)
			return err
		})
	}
	if err := ask(&first); err != nil {
		return "", err
	}
	began, who := time.Now(), map[string]bool{}
	for time.Since(began) < w.Options.Watch {
		select {
		case <-time.After(min(200*time.Millisecond, w.Options.Watch)):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if err := ask(&last); err != nil {
			return "", err
		}
		if last.who != "" {
			who[last.who] = true
		}
	}
	if len(who) == 0 && last == (lively{}) {
		return "", nil
	}
	seconds := time.Since(began).Seconds()
	text := fmt.Sprintf("%.0f rows a second are written, %.0f changed, %.0f deleted", float64(last.inserted-first.inserted)/seconds, float64(last.changed-first.changed)/seconds, float64(last.deleted-first.deleted)/seconds)
	if len(who) > 0 {
		var list []string
		for name := range who {
			list = append(list, name)
		}
		slices.Sort(list)
		text += "; locks are held by " + strings.Join(list, ", ")
	}
	return text, nil
}
