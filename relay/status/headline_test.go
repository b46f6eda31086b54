package status

import (
	"testing"
	"time"
)

func TestHeadline(t *testing.T) {
	now := time.Unix(10_000, 0)
	lag := func(s float64) *float64 { return &s }
	safe := int64(47 << 30)
	for name, tt := range map[string]struct {
		status Status
		want   string
	}{
		"streams":                              {Status{State: Streaming, LagSeconds: lag(0.21)}, "Streaming, 0.2 s behind."},
		"streams, far behind":                  {Status{State: Streaming, LagSeconds: lag(190)}, "Streaming, 3m10s behind."},
		"the lag is not known":                 {Status{State: Streaming}, "Streaming."},
		"brokers are unreachable":              {Status{State: Streaming, LagSeconds: lag(2), Reason: "kafka_unreachable"}, "Streaming, 2.0 s behind; at present kafka_unreachable."},
		"keys are parked":                      {Status{State: Streaming, LagSeconds: lag(0), ParkedKeys: 2}, "Streaming, 0.0 s behind; 2 keys parked behind dead letters."},
		"reads a backlog":                      {Status{State: Streaming, LagSeconds: lag(900), CatchUp: &CatchUp{LeftBytes: 3 << 30, paced: true, Seconds: lag(360)}}, "Catching up: 3.0 GiB of WAL left, about 6 minutes."},
		"blocked":                              {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, SlotState: &Slot{WALStatus: "reserved", SafeWALBytes: &safe, SafeSeconds: lag(5 * 3600)}}, "Blocked for 4m0s: unknown_topic; PostgreSQL keeps 2.0 GiB of WAL, and another 47.0 GiB fit, about 5 hours at this pace."},
		"blocked, pace unknown":                {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, SlotState: &Slot{SafeWALBytes: &safe}}, "Blocked for 4m0s: unknown_topic; PostgreSQL keeps 2.0 GiB of WAL, and another 47.0 GiB fit."},
		"blocked, no limit":                    {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, SlotState: &Slot{}}, "Blocked for 4m0s: unknown_topic; PostgreSQL keeps 2.0 GiB of WAL, limited only by the disk."},
		"blocked, slot lost":                   {Status{State: Blocked, Reason: "slot_lost", RetainedWALBytes: 2 << 30, SlotState: &Slot{WALStatus: "lost"}}, "Blocked for 4m0s: slot_lost; the slot has lost its WAL."},
		"blocked, several":                     {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30}, "Blocked for 4m0s: unknown_topic; PostgreSQL keeps 2.0 GiB of WAL."},
		"blocked, never looked":                {Status{State: Blocked, Reason: "unknown_topic"}, "Blocked for 4m0s: unknown_topic."},
		"reconnects":                           {Status{State: Reconnecting, Reason: "connection_refused"}, "Reconnecting to PostgreSQL for 4m0s: connection_refused."},
		"brokers are unreachable at the start": {Status{State: Reconnecting, Reason: "kafka_unreachable"}, "Reconnecting to Kafka for 4m0s: kafka_unreachable."},
		"blocked, lost with no WAL kept":       {Status{State: Blocked, Reason: "slot_lost", SlotState: &Slot{WALStatus: "lost"}}, "Blocked for 4m0s: slot_lost; the slot has lost its WAL."},
		"starts":                               {Status{State: Starting}, "Starting for 4m0s."},
		"stands by":                            {Status{State: Standby, Slot: "cdc_relay"}, "Standing by: another relay streams from slot cdc_relay."},
		"stops":                                {Status{State: Stopping, InFlightEvents: 1}, "Stopping: 1 row in flight."},
	} {
		t.Run(name, func(t *testing.T) {
			tt.status.Since = now.Add(-4 * time.Minute)
			if got := Headline(&tt.status, now); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
