package relay

import "github.com/cdc-relay/cdc-relay/relay/ending"

// What Run returns; the program's exit codes follow from them.
type (
	// ConfigError means that the configuration does not fit the tables: exit code 2.
	ConfigError = ending.ConfigError

	// RefusedError means that PostgreSQL or Kafka refuses for good and streaming never began: exit code 3.
	RefusedError = ending.RefusedError

	// BlockedError means that the relay waits for a decision that only a person can take, with
	// relay.on_blocked: exit. Exit code 4.
	BlockedError = ending.BlockedError
)

// ErrDrainCut is the end of a drain whose rows the next start sends again.
var ErrDrainCut = ending.ErrDrainCut
