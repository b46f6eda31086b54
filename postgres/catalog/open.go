package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
)

// AwaitOpen waits until the transactions have ended that wrote something and are open now, each in
// this database. A commit is in the WAL, and so perhaps before a slot or sent by a relay, before a
// snapshot sees it, and a synchronous standby can hold it up for long. A snapshot that is taken
// afterwards sees whatever was in the WAL at the call.
func AwaitOpen(q postgres.Querier, patience time.Duration) error {
	left, err := AwaitEnd(q, patience)
	if err != nil || left == "" {
		return err
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonTimeout, Op: "take a snapshot",
		Err:  errors.New(GaveUp(patience, openAmong(q, left))),
		Hint: "end them, or wait, and run the command again; a commit that waits for a synchronous standby (wait_event SyncRep) ends when the standby is back",
	}
}

// GaveUp says which transactions somebody waited for.
func GaveUp(timeout time.Duration, who string) string {
	if who == "" {
		who = "none is open any more"
	}
	return fmt.Sprintf("gave up after %s: it waits for every transaction that was open before it: %s", timeout, who)
}

// AwaitEnd waits as AwaitOpen does. It returns all transactions if one of them is still open; empty: none is.
func AwaitEnd(q postgres.Querier, patience time.Duration) (left string, err error) {
	began, err := OpenTransactions(q)
	if err != nil {
		return "", err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; {
		ended, err := HaveEnded(q, began)
		switch {
		case err != nil || ended:
			return "", err
		case time.Now().After(deadline):
			return began, nil
		}
		select {
		case <-tick.C:
		case <-q.Ctx.Done():
			return "", context.Cause(q.Ctx)
		}
	}
}

// openTransactionsSQL are those that have a number. A snapshot does not name them all: numbers
// that were given out since the newest that ended are beyond its xmax. Each has a lock from
// before its first row until its rows are visible. Those of sessions in other databases wrote no
// row here.
const openTransactionsSQL = `FROM pg_catalog.pg_locks l WHERE locktype = 'transactionid' AND granted AND mode = 'ExclusiveLock'
	AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a WHERE a.pid = l.pid AND a.datid <> (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))`

// OpenTransactions are their numbers, with commas between them.
func OpenTransactions(q postgres.Querier) (list string, err error) {
	row, err := q.One("SELECT coalesce(string_agg(transactionid::text, ','), '') " + openTransactionsSQL)
	if err != nil {
		return "", postgres.Classify("look at the open transactions", err)
	}
	return row.Text(0), nil
}

// HaveEnded reports whether none of some transactions is open.
func HaveEnded(q postgres.Querier, list string) (bool, error) {
	row, err := q.One(fmt.Sprintf("SELECT count(*) = 0 %s AND transactionid::text = ANY (string_to_array(%s, ','))", openTransactionsSQL, postgres.QuoteLiteral(list)))
	if err != nil {
		return false, postgres.Classify("look at the open transactions", err)
	}
	return row.Bool(0), nil
}

// Blockers lists the transactions that a slot's creation waits for: all with a
// transaction id, in any database, and prepared ones.
func Blockers(q postgres.Querier) string {
	return blockers(q, `SELECT `+session+` FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_catalog.pg_backend_pid()
		UNION ALL SELECT 'prepared transaction ' || gid FROM pg_catalog.pg_prepared_xacts`)
}

// openAmong lists those of some transactions, whose numbers have commas between them, that are open.
func openAmong(q postgres.Querier, numbers string) string {
	among := "::text = ANY (string_to_array(" + postgres.QuoteLiteral(numbers) + ", ','))"
	return blockers(q, `SELECT `+session+` FROM pg_catalog.pg_locks LEFT JOIN pg_catalog.pg_stat_activity USING (pid)
			WHERE locktype = 'transactionid' AND granted AND mode = 'ExclusiveLock' AND pid IS NOT NULL AND transactionid`+among+`
		UNION ALL SELECT 'prepared transaction ' || gid FROM pg_catalog.pg_prepared_xacts WHERE transaction`+among)
}

const session = `'pid ' || pid || coalesce(' (' || nullif(concat_ws(', ', usename, nullif(application_name, ''), state,
	'open since ' || to_char(xact_start, 'YYYY-MM-DD HH24:MI:SS') || ' UTC'), '') || ')', '')`

func blockers(q postgres.Querier, sql string) string {
	rows, err := q.All(sql)
	if err != nil || len(rows) == 0 {
		return ""
	}
	var list []string
	for _, row := range rows {
		list = append(list, row[0].Text)
	}
	return strings.Join(list, "; ")
}
