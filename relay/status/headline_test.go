package status

import (
	"strings"
	"testing"
	"time"
)

func TestHeadline(t *testing.T) {
	now := time.Unix(10_000, 0)
	lag := func(s float64) *float64 { return &s }
	safe := int64(47 << 30)
	at := func(topic string, limit int) *Obstacle {
		row := &BlockedRow{Table: "public.outbox", Topic: topic, Bytes: 1_348_211, Limit: limit}
		if limit > 0 {
			row.LimitOf = "kafka.max_message_bytes"
		}
		return &Obstacle{Row: row}
	}
	for name, tt := range map[string]struct {
		status Status
		want   string
	}{
		"streams":                              {Status{State: Streaming, LagSeconds: lag(0.21)}, "Streaming, 0.2 s behind."},
		"streams, far behind":                  {Status{State: Streaming, LagSeconds: lag(190)}, "Streaming, 3m10s behind."},
		"the lag is not known":                 {Status{State: Streaming}, "Streaming."},
		"brokers are unreachable":              {Status{State: Streaming, LagSeconds: lag(2), Reason: "kafka_unreachable"}, "Waiting for Kafka for 4m0s: no broker answers (kafka_unreachable); 0 rows in flight, 2.0 s behind."},
		"keys are parked":                      {Status{State: Streaming, LagSeconds: lag(0), ParkedKeys: 2}, "Streaming, 0.0 s behind; 2 keys parked behind dead letters."},
		"rows were set aside":                  {Status{State: Streaming, LagSeconds: lag(0), DeadLetters: 1}, "Streaming, 0.0 s behind; 1 dead letter since the start."},
		"at a row":                             {Status{State: Blocked, Reason: "unknown_topic", Obstacle: at("orders", 0)}, "Blocked for 4m0s at a row of public.outbox: topic orders does not exist (unknown_topic)."},
		"the checkpoint topic was deleted":     {Status{State: Blocked, Reason: "checkpoint_topic", Obstacle: at("orders", 0)}, "Blocked for 4m0s: the checkpoint topic is missing, or not as it must be (checkpoint_topic)."},
		"a record for a small topic":           {Status{State: Blocked, Reason: "record_too_large", Obstacle: at("orders", 0)}, "Blocked for 4m0s at a row of public.outbox: its record of 1.3 MiB is too large for topic orders (record_too_large)."},
		"a record for a small relay":           {Status{State: Blocked, Reason: "record_too_large", Obstacle: at("orders", 1<<20)}, "Blocked for 4m0s at a row of public.outbox: its record of 1.3 MiB is too large for kafka.max_message_bytes (1.0 MiB) (record_too_large)."},
		"a record that is not known":           {Status{State: Blocked, Reason: "record_too_large"}, "Blocked for 4m0s: its record is too large for the topic (record_too_large)."},
		"a reason without words":               {Status{State: Blocked, Reason: "acks_refused"}, "Blocked for 4m0s: acks_refused."},
		"a hostile name":                       {Status{State: Blocked, Reason: "unknown_topic", Obstacle: at("TOPIC SIZE\x1b[2J"+strings.Repeat("y", 100), 0)}, "Blocked for 4m0s at a row of public.outbox: topic TOPIC SIZE\\u001b[2J" + strings.Repeat("y", 46) + "… does not exist (unknown_topic)."},
		"reads a backlog":                      {Status{State: Streaming, LagSeconds: lag(900), CatchUp: &CatchUp{LeftBytes: 3 << 30, paced: true, Seconds: lag(360)}}, "Catching up: 3.0 GiB of WAL left, about 6 minutes."},
		"blocked":                              {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, SlotState: &Slot{WALStatus: "reserved", SafeWALBytes: &safe, SafeSeconds: lag(5 * 3600)}}, "Blocked for 4m0s: the topic does not exist (unknown_topic); nothing is lost: PostgreSQL keeps 2.0 GiB of WAL, and another 47.0 GiB fit, about 5 hours at this pace."},
		"blocked, pace unknown":                {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, SlotState: &Slot{SafeWALBytes: &safe}}, "Blocked for 4m0s: the topic does not exist (unknown_topic); nothing is lost: PostgreSQL keeps 2.0 GiB of WAL, and another 47.0 GiB fit."},
		"blocked, no room":                     {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, SlotState: &Slot{SafeWALBytes: new(int64)}}, "Blocked for 4m0s: the topic does not exist (unknown_topic); PostgreSQL keeps 2.0 GiB of WAL, and another 0 B fit."},
		"blocked, no limit":                    {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, SlotState: &Slot{}}, "Blocked for 4m0s: the topic does not exist (unknown_topic); nothing is lost: PostgreSQL keeps 2.0 GiB of WAL, limited only by the disk."},
		"blocked, slot lost":                   {Status{State: Blocked, Reason: "slot_lost", RetainedWALBytes: 2 << 30, SlotState: &Slot{WALStatus: "lost"}}, "Blocked for 4m0s: rows are in no stream any more (slot_lost); the slot has lost its WAL."},
		"blocked, several":                     {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30}, "Blocked for 4m0s: the topic does not exist (unknown_topic); nothing is lost: PostgreSQL keeps 2.0 GiB of WAL."},
		"blocked, letters lost":                {Status{State: Blocked, Reason: "unknown_topic", RetainedWALBytes: 2 << 30, LettersLost: "letters are lost"}, "Blocked for 4m0s: the topic does not exist (unknown_topic); letters are lost; PostgreSQL keeps 2.0 GiB of WAL."},
		"blocked, letters lost, never looked":  {Status{State: Blocked, Reason: "unknown_topic", LettersLost: "letters are lost"}, "Blocked for 4m0s: the topic does not exist (unknown_topic); letters are lost."},
		"blocked, never looked":                {Status{State: Blocked, Reason: "unknown_topic"}, "Blocked for 4m0s: the topic does not exist (unknown_topic)."},
		"reconnects":                           {Status{State: Reconnecting, Reason: "connection_refused"}, "Reconnecting to PostgreSQL for 4m0s: connection_refused."},
		"brokers are unreachable at the start": {Status{State: Reconnecting, Reason: "kafka_unreachable"}, "Reconnecting to Kafka for 4m0s: no broker answers (kafka_unreachable)."},
		"blocked, lost with no WAL kept":       {Status{State: Blocked, Reason: "slot_lost", SlotState: &Slot{WALStatus: "lost"}}, "Blocked for 4m0s: rows are in no stream any more (slot_lost); the slot has lost its WAL."},
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
