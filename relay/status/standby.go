package status

// awaitsStandby reports whether the server has WAL that it does not send, because a standby is away that
// it waits for: then less of it tells that the position stands still. Call it with the lock held.
func (b *Monitor) awaitsStandby() bool {
	return b.snapshot.Away != "" && b.snapshot.WALEnd > b.snapshot.Slot.Confirmed
}
