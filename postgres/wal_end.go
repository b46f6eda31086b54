package postgres

import "github.com/cdc-relay/cdc-relay/replication/wal"

// WALInserted is the end of the WAL: whatever a statement before this one saw committed is
// in the WAL before it, also what was committed asynchronously and is not on disk yet. A
// server that writes nothing more gets there with its flush position.
func WALInserted(q Querier) (wal.LSN, error) {
	row, err := q.One("SELECT pg_catalog.pg_current_wal_insert_lsn(), pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))")
	if err != nil {
		return 0, Classify("look at the end of the WAL", err)
	}
	lsn, segment := row.LSN("pg_current_wal_insert_lsn", 0), row.Int("wal_segment_size", 1)
	if row.Err != nil {
		return 0, row.Err
	}
	return wal.BeforePageHeader(lsn, uint64(segment)), nil
}
