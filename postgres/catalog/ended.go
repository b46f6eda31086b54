package catalog

import (
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/postgres"
)

// Ended is a full transaction ID (64 bits) below which all transactions have ended.
func Ended(q postgres.Querier) (uint64, error) {
	return fullXID(q, "pg_catalog.txid_snapshot_xmin(pg_catalog.txid_current_snapshot())")
}

// EndedBefore is one below which all transactions had ended when a slot came to its position; zero
// if there is no such slot.
func EndedBefore(q postgres.Querier, slot string) (uint64, error) {
	return fullXID(q, fmt.Sprintf("(SELECT %s FROM %s, pg_catalog.pg_replication_slots s WHERE s.slot_name = %s)", newestXID("s.catalog_xmin"), nowXID, postgres.QuoteLiteral(slot)))
}

func fullXID(q postgres.Querier, sql string) (uint64, error) {
	row, err := q.One("SELECT coalesce(" + sql + ", 0)")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(row.Text(0), 10, 64)
}

const nowXID = "(SELECT pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()) AS next) x"

// newestXID is the SQL of the newest full transaction ID that a 32-bit one may stand for, beside
// nowXID. That of a transaction long ago comes out too high, and never too low.
func newestXID(xid string) string {
	return fmt.Sprintf("x.next - ((x.next - %s::text::bigint) %% 4294967296 + 4294967296) %% 4294967296", xid)
}
