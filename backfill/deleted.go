package backfill

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/wording"
)

// deletions are what shows that rows were deleted from tables.
type deletions struct {
	rows  int64    // as the server has counted them
	since string   // when it began to count; a crash resets the count
	files []string // "oid:file name" of each table and partition
}

// readDeletions asks the server, outside any snapshot. A session tells its deletions after its transaction, mostly
// within a second.
func readDeletions(q postgres.Querier, tables []uint32) (*deletions, error) {
	const op = "look at what is deleted"
	// A crash resets the statistics of all tables. Those of the background writer say when.
	counts, err := q.One("SELECT pg_catalog.current_setting('track_counts'), coalesce(extract(epoch FROM pg_catalog.pg_stat_get_bgwriter_stat_reset_time())::text, '')")
	if err != nil {
		return nil, postgres.Classify(op, err)
	}
	if counts.Text(0) != "on" {
		return nil, &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: op,
			Err: errors.New("the server counts no deleted rows (track_counts is off), so that nobody would see them"), Hint: "set track_counts = on, or use backfill without --online",
		}
	}
	now := &deletions{since: counts.Text(1)}
	for _, oid := range tables {
		rows, err := q.All(fmt.Sprintf(`SELECT pg_catalog.format('%%s:%%s %%s', c.oid, pg_catalog.pg_relation_filenode(c.oid), c.oid::pg_catalog.regclass), pg_catalog.pg_stat_get_tuples_deleted(c.oid)
			FROM pg_catalog.pg_class c WHERE c.relkind = 'r' AND (c.oid = %[1]d OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(%[1]d) WHERE isleaf)) ORDER BY c.oid`, oid))
		if err != nil {
			return nil, postgres.Classify(op, err)
		}
		for _, row := range rows {
			n, err := strconv.ParseInt(row[1].Text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: count %q: %w", op, row[1].Text, err)
			}
			now.rows += n
			now.files = append(now.files, row[0].Text)
		}
	}
	return now, nil
}

// changed is why rows may have been deleted between two looks; nil: none were.
func (d *deletions) changed(now *deletions) error {
	for _, was := range d.files {
		file, name, _ := strings.Cut(was, " ")
		if !slices.ContainsFunc(now.files, func(is string) bool { return strings.HasPrefix(is, file+" ") }) {
			return fmt.Errorf("table or partition %s was emptied, rewritten, detached or dropped since the last bucket", name)
		}
	}
	switch {
	case now.since != d.since || now.rows < d.rows:
		return errors.New("the server's count of deleted rows (pg_stat_user_tables.n_tup_del) was reset since the last bucket, as by a crash, so that nobody knows whether there were any")
	case now.rows > d.rows:
		return fmt.Errorf("%s deleted since the last bucket (pg_stat_user_tables.n_tup_del)", wording.Count(now.rows-d.rows, "row"))
	}
	return nil
}

// added are the names of tables and partitions that came between two looks.
func (d *deletions) added(now *deletions) (names []string) {
	for _, is := range now.files {
		file, name, _ := strings.Cut(is, " ")
		if !slices.ContainsFunc(d.files, func(was string) bool { return strings.HasPrefix(was, file+" ") }) {
			names = append(names, name)
		}
	}
	return names
}
