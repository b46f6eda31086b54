package catalog

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// UnderPolicy reports whether the server refused a statement because a policy would hide rows, which it does
// with row_security off.
func UnderPolicy(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.File == "rls.c"
}

// PolicyError explains that: who reads may not see what, and how to see all.
func PolicyError(op string, table wal.Table, who, what string) error {
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonPermission, Op: op,
		Err:  fmt.Errorf("row-level security of table %s applies to %s, and may hide %s", table, who, what),
		Hint: "connect as a role with BYPASSRLS, or as the table's owner unless its policies are forced",
	}
}
