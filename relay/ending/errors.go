package ending

// ConfigError means that the configuration does not fit the tables: exit code 2.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// RefusedError means that PostgreSQL or Kafka refuses for good and streaming
// never began: exit code 3.
type RefusedError struct {
	Reason string
	Err    error
}

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// BlockedError means that the relay waits for a decision that only a person can
// take, and relay.on_blocked is exit: exit code 4.
type BlockedError struct {
	Reason string
	Err    error
}

func (e *BlockedError) Error() string { return e.Err.Error() }
func (e *BlockedError) Unwrap() error { return e.Err }
