package relay

import (
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// delivered reports that a row needs no record, because the last holder of the slot delivered it.
// The row counts as acknowledged.
func (s *session) delivered(row *wal.Row) bool {
	if s.r.cfg.Delivered == nil || deadletter.RowOf(row).Commit >= s.start.sameWAL || !s.r.cfg.Delivered(row) {
		return false
	}
	s.r.filtered.Add(1)
	return true
}

// deliveredBelow is the position at which Config.Delivered ends to hold. Behind a fork that its
// history does not have, other rows have the same positions.
func (r *Relay) deliveredBelow(now wal.Origin) wal.LSN {
	if r.cfg.Delivered == nil {
		return 0
	}
	below := now.Common(r.cfg.DeliveredIn)
	if was := r.cfg.DeliveredIn; below != ^wal.LSN(0) {
		r.log.Warn().Int32("from", was.Timeline).Int32("timeline", now.Timeline).Stringer("lsn", below).
			Msg("the server's history differs from the history of Debezium's position: every row after the LSN given here is sent")
	}
	return below
}

// Filtered is the number of rows that Config.Delivered took.
func (r *Relay) Filtered() int64 { return r.filtered.Load() }
