package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/wording"
)

// checkOnline refuses what makes no sense with buckets, whatever the server has.
func (o *Options) checkOnline(settings *relay.Config) error {
	r := &settings.Replication
	switch {
	case !o.Online:
		return usage("--buckets, --rows-are-kept and --accept-deletes are for --online")
	case !o.All:
		return usage("--online needs --all, and no other condition: rows that are written meanwhile are read from the table too, and one that misses the condition would be lost")
	case o.Buckets < 0 || o.Buckets > buckets.Most:
		return usage("--buckets %d is not allowed; allowed: 1 to %d, or 0 to choose by the number of rows", o.Buckets, buckets.Most)
	case o.Table != "" && len(r.Tables) > 1:
		return usage("--online sends the rows of all tables: --table cannot choose one")
	case o.Yes && !o.RowsAreKept:
		return usage("--online needs --rows-are-kept: your word that nobody deletes a row, or changes a key, before its bucket is sent. Such a row would be in neither table nor stream")
	case !settings.KeepsPositions():
		return usage("--online keeps in Kafka which buckets are sent: set relay.detect_moved_slot: true, or relay.guarantee: exactly_once")
	default:
		return onlineFits(settings)
	}
}

// onlineFits refuses a configuration of which buckets know nothing.
func onlineFits(settings *relay.Config) error {
	r := &settings.Replication
	switch {
	case len(r.Messages) > 0:
		return usage("--online does not send logical messages (outbox.messages) in the order of their keys; use backfill without it")
	case len(r.Operations()) > 0:
		return usage("--online sends inserts only, and the configuration publishes %s; use backfill without --online", r.Published())
	}
	return nil
}

// divide finds the keys by which the rows are divided.
func (w *work) divide(ctx context.Context) error {
	if err := onlineFits(&w.settings); err != nil { // also where an earlier call began it
		return err
	}
	if err := w.checkEncoding(ctx); err != nil {
		return err
	}
	o := &online{}
	o.filter.Kept = o.turns.add
	o.filter.Keys = make([]buckets.Key, len(w.settings.Replication.Tables))
	for i := range w.tables {
		t := &w.tables[i]
		key, err := w.bucketKey(t.Table)
		if err == nil {
			err = w.checkKeyTypes(ctx, t.Table, key)
		}
		if err != nil {
			return err
		}
		o.filter.Keys[t.Relation.Table] = key
	}
	w.online = o
	return nil
}

// withoutOnline is what to do where rows cannot be divided.
const withoutOnline = "use backfill without --online"

// bucketKey is what a table's rows are divided by: the key of their records, or where each row has a key of its
// own the event id.
func (w *work) bucketKey(t *snapshot.Table) (key buckets.Key, err error) {
	routes, err := resolve.New(w.settings.Router)
	if err != nil {
		return key, &relay.ConfigError{Err: err}
	}
	explained, err := routes.Pin(t.Relation)
	if err != nil {
		return key, &relay.ConfigError{Err: err}
	}
	facts := keyFactsOf(explained, t)
	switch {
	case !facts.none:
		key = buckets.Key{Column: facts.key, Fallback: facts.fallback}
	default:
		key.Column = facts.id
	}
	if key.Column == "" {
		return key, progress.Refuse(fmt.Errorf("the records of table %s have a key that is not one of its columns, so its rows cannot be divided into buckets", t.Name), withoutOnline)
	}
	if key.Fallback != "" && key.Padded(t.Relation) {
		return key, progress.Refuse(fmt.Errorf("the key column %q of table %s is of type char(n), which is blank in one place and empty in another, so rows with the key of column %q cannot be divided into buckets", key.Column, t.Name, key.Fallback), withoutOnline)
	}
	return key, nil
}

// checkKeyTypes refuses a key whose text in SQL is another one than in the stream: its rows could be left out of both.
// Package buckets handles boolean and char(n). A domain of them has another type number in the stream.
func (w *work) checkKeyTypes(ctx context.Context, t *snapshot.Table, key buckets.Key) error {
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		rows, err := q.All(fmt.Sprintf(`SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
			WHERE a.attrelid = %d AND a.attname IN (%s, %s) AND EXISTS (
				WITH RECURSIVE base AS (
					SELECT oid, typtype, typbasetype, typoutput FROM pg_catalog.pg_type WHERE oid = a.atttypid
					UNION ALL
					SELECT t.oid, t.typtype, t.typbasetype, t.typoutput FROM pg_catalog.pg_type t JOIN base ON base.typtype = 'd' AND t.oid = base.typbasetype
				) SELECT FROM base JOIN pg_catalog.pg_cast c ON c.castsource = base.oid JOIN pg_catalog.pg_proc o ON o.oid = base.typoutput
				WHERE c.casttarget = 'pg_catalog.text'::pg_catalog.regtype AND CASE c.castmethod
					WHEN 'f' THEN base.oid <> 'pg_catalog.name'::pg_catalog.regtype AND a.atttypid NOT IN ('pg_catalog.bool'::pg_catalog.regtype, 'pg_catalog.bpchar'::pg_catalog.regtype)
					WHEN 'b' THEN o.prosrc NOT IN ('textout', 'varcharout') ELSE false END)`,
			t.OID, postgres.QuoteLiteral(key.Column), postgres.QuoteLiteral(key.Fallback)))
		if err != nil {
			return postgres.Classify("look at the type of the key of table "+t.Name.String(), err)
		}
		if len(rows) == 0 {
			return nil
		}
		return progress.Refuse(fmt.Errorf("the key column %q of table %s is of type %s, which has another text in SQL than in the stream, so its rows cannot be divided into buckets", rows[0][0].Text, t.Name, rows[0][1].Text), withoutOnline)
	})
}

// checkEncoding refuses a database whose texts have other bytes to the server than to this program.
func (w *work) checkEncoding(ctx context.Context) error {
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		row, err := q.One("SELECT pg_catalog.current_setting('server_encoding')")
		if err != nil {
			return postgres.Classify("read the encoding of the database", err)
		}
		if encoding := row.Text(0); encoding != "UTF8" && encoding != "SQL_ASCII" {
			return progress.Refuse(fmt.Errorf("the database has the encoding %s, and keys can be divided in UTF8 alone", encoding), withoutOnline)
		}
		return nil
	})
}

// Rows of a bucket where nobody chose the number, and the fewest buckets then.
const (
	bucketRows   = 1_000_000
	leastBuckets = 16
)

// bucketTime is what each bucket takes whatever is in it, on the cautious side: connections, a flush of the WAL, and
// the look at the stream.
const bucketTime = time.Second

// chooseBuckets sets the number of buckets. A backfill that continues keeps the number that it began with.
func (w *work) chooseBuckets(s *progress.State, step progress.Step) error {
	o, n := w.online, w.Options.Buckets
	switch {
	case step == progress.Resume:
		began := s.Progress.Online
		o.filter.Buckets = began.Buckets // the plan has it, also of a call that is refused
		if n != 0 && n != began.Buckets {
			return progress.Refuse(fmt.Errorf("the backfill began with %s, and --buckets asks for %d", wording.Count(began.Buckets, "bucket"), n),
				"leave out --buckets, or use --restart, which sends all rows again")
		}
		n = began.Buckets
		o.at.Store(int32(min(began.Next, n-1)))
	case n == 0:
		var rows int64
		for _, count := range w.counts {
			rows += count.rows
		}
		for n = leastBuckets; n < buckets.Most && rows/int64(n) > bucketRows; {
			n *= 2
		}
	}
	o.filter.Buckets = n
	return nil
}

// planned is what a step means.
func (o *online) planned(s *progress.State, step progress.Step, final string) string {
	if step == progress.Resume {
		return fmt.Sprintf("go on with slot %q, online: %d of %d buckets and %s sent so far; then make %s from it",
			s.Temporary.Name, s.Progress.Online.Next, o.filter.Buckets, wording.Count(s.Progress.Rows, "row"), final)
	}
	return fmt.Sprintf("make slot %q, send the rows in %s by their keys, stream from the slot in between, then copy it to %s", s.Temporary.Name, wording.Count(o.filter.Buckets, "bucket"), final)
}

// foretellOnline estimates how long a bucket takes, and refuses a slot that would not last until its end.
func (w *work) foretellOnline(ctx context.Context, s *progress.State, step progress.Step, budget progress.Budget) ([]string, error) {
	o := w.online
	pending, what := o.filter.Buckets, "takes"
	if step == progress.Resume {
		pending, what = o.filter.Buckets-s.Progress.Online.Next, "the rest takes"
	}
	if pending == 0 {
		return []string{"all buckets are sent: what was written since is streamed"}, nil
	}
	var tables []string
	whole := 0 // tables that each bucket reads as a whole
	for i := range w.tables {
		line, indexed, err := w.indexLine(ctx, w.tables[i].Table)
		if err != nil {
			return nil, err
		}
		if !indexed {
			whole++
		}
		tables = append(tables, line)
	}
	rest := budget
	rest.Rows = budget.Rows * int64(pending) / int64(o.filter.Buckets)
	budget.Rows /= int64(o.filter.Buckets)
	takes := fmt.Sprintf("%s about %s: %.0f rows a second, and %s for each bucket",
		what, progress.Shown(rest.Takes()+time.Duration(pending)*bucketTime), budget.Rate, progress.Shown(bucketTime))
	if whole > 0 {
		takes += fmt.Sprintf("; without an index the time to read the tables comes %s on top", wording.Count(pending, "time"))
	}
	lines := append([]string{
		takes,
		fmt.Sprintf("the slot holds back the WAL of one bucket, of about %s; a row that is written meanwhile waits until the bucket of its key is sent, in the worst case until the end", progress.Shown(budget.Takes()+bucketTime)),
	}, tables...)
	if !w.Options.RowsAreKept && step != progress.Resume {
		const kept = "nobody may delete a row, or change a key, before its bucket is sent"
		if w.Options.Yes { // with --online it would have been refused earlier
			return lines, progress.Refuse(errors.New("the backfill cannot be continued, and starts from the beginning; "+kept), "if that is so: cdc-relay backfill --online --all --rows-are-kept --yes")
		}
		lines = append(lines, kept+": --yes needs --rows-are-kept")
	}
	if warning := budget.Warning(); warning != "" {
		lines = append(lines, "warning: "+warning)
		if w.Options.Yes && !w.Options.AcceptWAL {
			more := ""
			if step != progress.Resume {
				more = "use more --buckets, "
			}
			return lines, progress.Refuse(errors.New(warning), "raise max_slot_wal_keep_size, "+more+"raise or remove --max-rate, or use --accept-wal")
		}
	}
	return lines, nil
}

// indexLine says how a bucket is read without the rest of the table, and whether it is.
func (w *work) indexLine(ctx context.Context, t *snapshot.Table) (line string, indexed bool, err error) {
	key := w.online.filter.Keys[t.Relation.Table]
	names := postgres.QuoteLiteral(key.Column)
	if key.Fallback != "" {
		names += ", " + postgres.QuoteLiteral(key.Fallback)
	}
	err = w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		// PostgreSQL allows an index on a value's text where that is the same to all sessions.
		row, err := q.One(fmt.Sprintf(`SELECT c.relkind, pg_catalog.bool_and(o.provolatile = 'i') FROM pg_catalog.pg_class c
			JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid JOIN pg_catalog.pg_type t ON t.oid = a.atttypid JOIN pg_catalog.pg_proc o ON o.oid = t.typoutput
			WHERE c.oid = %d AND a.attname IN (%s) GROUP BY c.relkind`, t.OID, names))
		if err != nil {
			return postgres.Classify("look at the columns of the key of table "+t.Name.String(), err)
		}
		if row.Text(1) != "t" {
			line = fmt.Sprintf("  each bucket reads the whole table: PostgreSQL allows no index on the text of a key of that type (column %q)", key.Column)
			return nil
		}
		if indexed, err = hasIndex(q, t, key); err != nil {
			return postgres.PermissionHint(postgres.Classify("look for an index of table "+t.Name.String(), err), "run what `cdc-relay sql --for backfill` prints")
		}
		switch {
		case indexed:
			line = fmt.Sprintf("  each bucket reads its own rows by an index of table %s", t.Name)
		case row.Text(0) == "p":
			line = fmt.Sprintf("  without an index each bucket reads the whole table; with one on each of its partitions its rows alone: CREATE INDEX CONCURRENTLY ON partition ((%s))", key.SQL())
		default:
			line = fmt.Sprintf("  without an index each bucket reads the whole table; with this one its rows alone: CREATE INDEX CONCURRENTLY ON %s ((%s))", t.Name.SQL(), key.SQL())
		}
		return nil
	})
	return line, indexed, err
}

// hasIndex reports whether a table, or each of its partitions, has an index by which a bucket is read. Where the planner
// may use nothing but bitmaps it takes one for the condition if there is any, however small the table is.
func hasIndex(q postgres.Querier, t *snapshot.Table, key buckets.Key) (bool, error) {
	results, err := q.Together(`BEGIN READ ONLY; SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = on;
		EXPLAIN (FORMAT JSON) SELECT 1 FROM ` + t.From() + " WHERE " + key.Condition(0, buckets.Most) + "; ROLLBACK")
	if err != nil {
		return false, err
	}
	var plans []struct{ Plan planNode }
	for _, rows := range postgres.CellsOf(results[len(results)-2]) {
		if err := json.Unmarshal([]byte(rows[0].Text), &plans); err != nil {
			return false, err
		}
	}
	return len(plans) == 1 && plans[0].Plan.indexed(), nil
}

// planNode is a step of the server's plan of a query.
type planNode struct {
	Condition string     `json:"Index Cond"`
	Plans     []planNode `json:"Plans"`
}

// indexed reports whether everything is read by an index on the byte of a key.
func (n *planNode) indexed() bool {
	for i := range n.Plans {
		if !n.Plans[i].indexed() {
			return false
		}
	}
	return len(n.Plans) > 0 || strings.Contains(n.Condition, "get_byte(")
}

// forgetVisible drops the transactions whose rows were left out and that every later snapshot has.
func (w *work) forgetVisible(ctx context.Context) error {
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		row, err := q.One("SELECT pg_catalog.pg_current_snapshot()")
		if err != nil {
			return postgres.Classify("look at the present snapshot", err)
		}
		now, err := buckets.ParseSnapshot(row.Text(0))
		if err == nil {
			w.online.filter.Forget(&now)
		}
		return err
	})
}
