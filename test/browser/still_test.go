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

// runsShort waits for Kafka, and the server has no room for more WAL.
func runsShort() status.Status {
	s := healthy()
	s.Reason, s.ReasonSince = "kafka_unreachable", time.Now().Add(-2*time.Minute)
	s.SinkConnected, s.LagBytes, s.RetainedWALBytes = false, number(int64(64<<20)), 64<<20
	s.SlotState = &status.Slot{Active: true, WALStatus: "unreserved", SafeWALBytes: number(int64(0)), SafeSeconds: number(0.0), RetainedBytes: 64 << 20}
	s.Obstacle = &status.Obstacle{Reason: s.Reason, Since: s.ReasonSince, Slot: s.Slot}
	return s
}

// slotGone is blocked, because somebody dropped the slot.
func slotGone() status.Status {
	s := healthy()
	s.State, s.Reason, s.Since = status.Blocked, "slot_missing", time.Now().Add(-2*time.Minute)
	s.Message = "watch slot \"cdc_relay\": it no longer exists: see https://github.com/cdc-relay/cdc-relay/blob/main/docs/operations.md#slot_missing"
	s.SlotState, s.LagSeconds = nil, nil
	s.Obstacle = &status.Obstacle{Reason: s.Reason, Since: s.Since, Slot: s.Slot}
	return s
}
