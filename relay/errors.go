package relay

import (
	"errors"
	"fmt"
)

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
// take, and was told to exit rather than to wait: exit code 4.
type BlockedError struct {
	Reason string
	Err    error
}

func (e *BlockedError) Error() string { return e.Err.Error() }
func (e *BlockedError) Unwrap() error { return e.Err }

// ErrDrainCut means that rows were in flight when the drain ended. Nothing is
// lost: they are sent again by the next start.
var ErrDrainCut = errors.New("drain cut short with rows in flight; they will be sent again by the next start")

// setupMakes adds, to a dead-letter topic that is missing, what makes it.
func setupMakes(reason string, err error) error {
	if reason != "unknown_topic" {
		return err
	}
	return fmt.Errorf("%w; it is the dead-letter topic, which `cdc-relay setup` makes", err)
}
