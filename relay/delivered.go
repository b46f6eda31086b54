package relay

import "github.com/cdc-relay/cdc-relay/replication"

// delivered tells that a row needs no record, because Kafka has it from whoever
// held the slot before. Its place in the stream counts as acknowledged.
func (r *Relay) delivered(row *replication.Row) bool {
	if r.cfg.Delivered == nil || !r.cfg.Delivered(row) {
		return false
	}
	r.filtered.Add(1)
	return true
}

// Filtered is the number of rows that Config.Delivered took.
func (r *Relay) Filtered() int64 { return r.filtered.Load() }
