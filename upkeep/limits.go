package upkeep

import "time"

// Limits hold for all tables.
type Limits struct {
	BatchRows           int           // of a transaction
	MaxRowsPerSecond    int           // zero: no limit
	Wait                time.Duration // for the slots, and for standbys
	AlsoWaitFor         []string      // slots of other pipelines
	SkippedAreDelivered bool
	PauseAtReplicaLag   time.Duration // zero: never
}
