// Package statustest has one status of each kind, for the tests of whatever shows them.
package statustest

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

// Now is when they are shown.
var Now = time.Date(2030, 1, 31, 14, 6, 2, 0, time.UTC)

func number[T any](v T) *T { return &v }

func ago(d time.Duration) time.Time { return Now.Add(-d) }

// Streaming is a relay in which all is well.
func Streaming() status.Status {
	return status.Status{
		State: status.Streaming, Since: ago(26 * time.Hour), Version: "1.4.0", Pipeline: "orders", Guarantee: "at_least_once", Slot: "cdc_relay", Publication: "cdc_relay",
		SlotState: &status.Slot{Active: true, WALStatus: "reserved", Confirmed: 0x16_B374D100, Restart: 0x16_B254D100, RetainedBytes: 18 << 20, SafeWALBytes: number(int64(47 << 30)), SafeSeconds: number(19200.0), WALPace: 2_600_000},
		LSN:       status.LSNs{Server: 0x16_B374D848, Received: 0x16_B374D848, Published: 0x16_B374D100, Confirmed: 0x16_B374D100},
		LagBytes:  number(int64(1864)), RetainedWALBytes: 18 << 20, LagSeconds: number(0.18), OldestUnacked: number(0.004),
		InFlightEvents: 12, InFlightBytes: 40 << 10, InFlightLimitBytes: 8 << 20, RowsRead: 48_201_882, EventsPublished: 48_201_870,
		Topics: []string{"invoice-events", "order-events"}, Tables: []status.Flow{{Name: "public.outbox", Total: 48_201_882, PerSecond: 842.4, Last: ago(0)}},
		TopicRates:      []status.Flow{{Name: "invoice-events", Total: 9_120_100, PerSecond: 160.2, Last: ago(0)}, {Name: "order-events", Total: 39_081_770, PerSecond: 682.2, Last: ago(0)}},
		SourceConnected: true, SinkConnected: true, SourceReached: true, SinkReached: true, LastEvent: ago(0), LastConfirm: ago(time.Second), LastTick: ago(0),
	}
}

// stopped is a relay that has been in a state for a reason for four minutes, in which WAL grew.
func stopped(state status.State, reason, message string, row *status.BlockedRow) status.Status {
	s := Streaming()
	s.State, s.Reason, s.Message, s.Since, s.ReasonSince = state, reason, message, ago(4*time.Minute), ago(4*time.Minute)
	s.Obstacle = &status.Obstacle{Reason: reason, Since: s.Since, Slot: s.Slot, Attempts: 9, NextTry: Now.Add(21 * time.Second), Row: row}
	s.LagBytes, s.RetainedWALBytes, s.LagSeconds = number(int64(2_254_857_830)), 2_254_857_830, number(240.0)
	for _, flows := range [][]status.Flow{s.Tables, s.TopicRates} {
		for i := range flows {
			flows[i].PerSecond, flows[i].Last = 0, s.Since
		}
	}
	return s
}

// All are the statuses by name, with their headlines.
func All() map[string]status.Status {
	all := map[string]status.Status{"streaming": Streaming()}
	row := func(topic string, bytes int) *status.BlockedRow {
		return &status.BlockedRow{Table: "public.outbox", Commit: 0x16_B374D848, Number: 1, Topic: topic, EventID: "7f0c2d1e-6a55-4b0e-9b7e-0d8f6c1f2a34", Bytes: bytes}
	}
	const at = "deliver row 1 of the transaction committing at 16/B374D848 (public.outbox): produce to order-events: "
	all["starting"] = status.Status{State: status.Starting, Since: ago(3 * time.Second), Version: "1.4.0", Pipeline: "orders", Slot: "cdc_relay", InFlightLimitBytes: 8 << 20, Topics: []string{}}
	standby := Streaming()
	standby.State, standby.Reason, standby.SourceConnected, standby.OldestUnacked, standby.LagSeconds, standby.InFlightEvents, standby.InFlightBytes = status.Standby, "slot_in_use", false, nil, nil, 0, 0
	all["standby"] = standby
	draining := Streaming()
	draining.CatchUp = &status.CatchUp{LeftBytes: 3_328_599_654, ReadPace: 11_200_000, WALPace: 2_600_000, Seconds: number(387.0)}
	draining.LagBytes, draining.RetainedWALBytes, draining.LagSeconds, draining.RowsBehind = number(int64(3_328_599_654)), 3_402_000_000, number(130.0), number(int64(4_900_000))
	draining.InFlightEvents, draining.InFlightBytes = 12_040, 6_400_000
	all["draining"] = draining
	aside := Streaming()
	aside.DeadLetters, aside.EventsRejected, aside.ParkedKeys = 3, 3, 1
	all["set aside"] = aside
	all["no broker"] = stopped(status.Streaming, "kafka_unreachable", "no broker answers: dial tcp 10.0.0.7:9092: connection refused; start the brokers, or correct kafka.brokers or the addresses that they advertise", nil)
	still := stopped(status.Streaming, "confirmed_not_moving", "the slot's confirmed position in PostgreSQL has been 16/B374D100 for 4m0s, with 2.1 GiB of WAL after it; 40 rows are acknowledged and wait for an earlier row, or for the end of their transaction; look at the oldest row in flight and at its topic", nil)
	still.NotMoving, still.EventsToRepeat = number(240.0), 40
	all["not moving"] = still
	long := Streaming()
	long.LagSeconds, long.EventsToRepeat = number(720.0), 1_200_000
	long.LongTransaction = &status.LongTransaction{Rows: 1_200_000, Bytes: 1_288_490_189, Seconds: 700}
	all["long transaction"] = long
	large := stopped(status.Blocked, "record_too_large", at+"MESSAGE_TOO_LARGE: raise max.message.bytes of the topic; a relay that is blocked by it then goes on by itself", row("order-events", 1_348_211))
	large.EventsRejected = 1
	all["record too large"] = large
	all["topic missing"] = stopped(status.Blocked, "unknown_topic", at+"UNKNOWN_TOPIC_OR_PARTITION: create the topic; the relay then goes on by itself", row("order-events", 812))
	all["not acknowledging"] = stopped(status.Blocked, "kafka_not_acknowledging", "the brokers answer but have not acknowledged a record for 4m0s: look at min.insync.replicas and the partitions' leaders", nil)
	lost := stopped(status.Blocked, "slot_lost", "slot cdc_relay has lost its WAL: rows from 16/B374D100 on are in no stream any more", nil)
	lost.SlotState.WALStatus, lost.SlotState.SafeWALBytes, lost.SlotState.SafeSeconds, lost.SourceConnected, lost.LagSeconds = "lost", nil, nil, false, nil
	all["slot lost"] = lost
	away := stopped(status.Reconnecting, "network", "connect to db1:5432: connection refused", nil)
	away.SourceConnected, away.SlotState, away.LSN.Server, away.LagBytes, away.RetainedWALBytes, away.OldestUnacked = false, nil, 0, nil, 0, nil
	away.LastLook = &status.LastLook{At: ago(4 * time.Minute), LagBytes: number(int64(1864)), RetainedWALBytes: 18 << 20, SafeWALBytes: number(int64(47 << 30))}
	all["no PostgreSQL"] = away
	silent := stopped(status.Blocked, "unknown_topic", at+"UNKNOWN_TOPIC_OR_PARTITION: create the topic; the relay then goes on by itself", row("order-events", 812))
	silent.SourceConnected, silent.SlotState, silent.LSN.Server, silent.LagBytes, silent.RetainedWALBytes = false, nil, 0, nil, 0
	silent.LastLook = &status.LastLook{At: ago(24 * time.Second), LagBytes: number(int64(6 << 20)), RetainedWALBytes: 7 << 20}
	all["blocked, no PostgreSQL"] = silent
	stopping := Streaming()
	stopping.State, stopping.Since = status.Stopping, ago(time.Second)
	all["stopping"] = stopping
	healthy, stuck := Streaming(), all["topic missing"]
	healthy.Slot, stuck.Slot = "cdc_relay_s0_of2", "cdc_relay_s1_of2"
	all["sharded"] = status.Sum([]status.Status{healthy, stuck}, []string{"shard 0", "shard 1"}, Now)
	for name, s := range all {
		s.Headline = status.Headline(&s, Now)
		all[name] = s
	}
	return all
}
