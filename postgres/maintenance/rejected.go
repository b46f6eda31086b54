package maintenance

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Rejected is what is to be said of a row.
type Rejected struct{ ID, Error string }

// RejectedColumns are where it is said.
type RejectedColumns struct {
	ID, IDType       string
	Error, ErrorType string
	Attempts         string // that is raised each time; empty: none is
	MostAttempts     int64  // that it can hold
}

// Reject writes what is to be said into the rows with those ids, in one transaction. It leaves out
// rows that say it already, so each text counts once, whatever is killed; and rows that somebody
// has locked. It returns how many were written.
func (s *Session) Reject(ctx context.Context, to *RejectedColumns, all []Rejected) (written int, err error) {
	s.q.Ctx = ctx
	values := make([]string, len(all))
	for i, r := range all {
		values[i] = fmt.Sprintf("(CAST(%s AS %s), CAST(%s AS %s))", postgres.QuoteLiteral(r.ID), to.IDType, postgres.QuoteLiteral(r.Error), to.ErrorType)
	}
	id, text, table := wal.QuoteIdentifier(to.ID), wal.QuoteIdentifier(to.Error), s.work.Table.SQL()
	set := text + " = said.said"
	if to.Attempts != "" {
		attempts := wal.QuoteIdentifier(to.Attempts)
		set += fmt.Sprintf(", %s = least(coalesce(rejected.%s, 0)::bigint + 1, %d)", attempts, attempts, to.MostAttempts)
	}
	results, err := s.q.Conn.Exec(ctx, fmt.Sprintf(`WITH said (row, said) AS (VALUES %[1]s),
		found AS MATERIALIZED (SELECT rejected.ctid FROM ONLY %[2]s rejected JOIN said ON rejected.%[3]s = said.row
			WHERE rejected.%[4]s IS DISTINCT FROM said.said AND rejected.tableoid = '%[5]d'::oid AND pg_catalog.pg_backend_pid() = %[6]d FOR UPDATE OF rejected SKIP LOCKED)
		UPDATE ONLY %[2]s rejected SET %[7]s FROM said WHERE rejected.%[3]s = said.row AND rejected.ctid = ANY (ARRAY(SELECT ctid FROM found))`,
		strings.Join(values, ", "), table, id, text, s.oid, s.pid, set)).ReadAll()
	if err != nil {
		return 0, s.actError(err)
	}
	return int(results[len(results)-1].CommandTag.RowsAffected()), nil
}
