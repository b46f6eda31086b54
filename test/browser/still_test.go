//go:build tools

package browser

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

// standsStill streams and acknowledges, and its confirmed position does not move.
func standsStill() status.Status {
	s := healthy()
	s.Reason, s.ReasonSince = "confirmed_not_moving", time.Now().Add(-2*time.Minute)
	s.Message = "the slot's confirmed position in PostgreSQL has been 16/B374D100 for 4m0s, with 2.1 GiB of WAL after it; 40 rows are acknowledged and wait for an earlier row, or for the end of their transaction; look at the oldest row in flight and at its topic"
	s.NotMoving, s.EventsToRepeat = number(240.0), 40
	s.RetainedWALBytes, s.LagBytes, s.LagSeconds = 2_254_857_830, number(int64(2_254_857_830)), number(240.0)
	s.Obstacle = &status.Obstacle{Reason: s.Reason, Since: s.ReasonSince, Slot: s.Slot}
	return s
}
