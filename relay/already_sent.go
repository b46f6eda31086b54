package relay

import (
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// alreadySent reports that a row needs no record, because the last holder of the slot delivered it.
// The row counts as acknowledged.
func (s *session) alreadySent(row *wal.Row) bool {
	if s.relay.cfg.AlreadySent == nil || row.Place().Commit >= s.start.alreadySentBelow || !s.relay.cfg.AlreadySent(row) {
		return false
	}
	s.relay.alreadySent.Add(1)
	return true
}

// alreadySentBelow is the position up to which Config.AlreadySent holds. Behind a fork that its
// history lacks, the same positions are other rows'.
func (r *Relay) alreadySentBelow(now wal.Origin) wal.LSN {
	if r.cfg.AlreadySent == nil {
		return 0
	}
	below := now.Common(r.cfg.AlreadySentIn)
	if was := r.cfg.AlreadySentIn; below != ^wal.LSN(0) {
		r.log.Warn().Int32("from", was.Timeline).Int32("timeline", now.Timeline).Stringer("lsn", below).
			Msg("the server's history is not that of the rows known to be sent: every row that commits at lsn or later is sent")
	}
	return below
}

// AlreadySentRows is the number of rows that Config.AlreadySent took.
func (r *Relay) AlreadySentRows() int64 { return r.alreadySent.Load() }
