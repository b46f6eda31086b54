package postgres

import (
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pglogrepl"
)

// WALFlushed is how far the WAL is flushed, over a replication connection. A walsender sends no more.
func WALFlushed(q Querier) (wal.LSN, error) {
	system, err := pglogrepl.IdentifySystem(q.Ctx, q.Conn)
	if err != nil {
		return 0, Classify("look at the end of the WAL", err)
	}
	return wal.LSN(system.XLogPos), nil
}

// WALInserted is the end of the WAL: whatever a statement before this one saw committed is
// in the WAL before it, also what was committed asynchronously and is not on disk yet. A
// server that writes nothing more gets there with its flush position.
func WALInserted(q Querier) (wal.LSN, error) {
	row, err := q.One(WALInsertedSQL)
	if err != nil {
		return 0, Classify("look at the end of the WAL", err)
	}
	return row.WALInserted()
}

// WALInsertedSQL is the statement of WALInserted, for a message with others.
const WALInsertedSQL = "SELECT pg_catalog.pg_current_wal_insert_lsn(), pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))"

// WALInserted is what WALInserted returns, from the row of WALInsertedSQL.
func (r *Row) WALInserted() (wal.LSN, error) {
	lsn, segment := r.LSN("pg_current_wal_insert_lsn", 0), r.Int("wal_segment_size", 1)
	if r.Err != nil {
		return 0, r.Err
	}
	return wal.BeforePageHeader(lsn, uint64(segment)), nil
}
