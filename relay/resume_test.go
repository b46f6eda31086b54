package relay_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
)

// check and setup ask this; TestExactlyOnce_ResumesFromWhatIsProven and the tests of promises
// have the same of a relay that starts.
func TestConfig_ConfirmedUpTo(t *testing.T) {
	rec := stored.Position{System: "7", Timeline: 1, Slot: "s", Publication: "p", End: 300}
	newer := rec
	newer.Timeline = 2
	twin := newer
	twin.Began = 210
	for name, c := range map[string]struct {
		value    []byte
		start    wal.LSN
		timeline int32
		end      wal.LSN
		reason   string
	}{
		"behind":                        {value: rec.Encode(), start: 250, timeline: 1, end: 300},
		"level":                         {value: rec.Encode(), start: 300, timeline: 1, end: 300},
		"ahead":                         {value: rec.Encode(), start: 301, timeline: 1, reason: "slot_ahead_of_checkpoint"},
		"unreadable":                    {value: []byte("{"), start: 250, timeline: 1, reason: "checkpoint_unreadable"},
		"a failover before it":          {value: rec.Encode(), start: 150, timeline: 2, end: 200},
		"ahead of the fork":             {value: rec.Encode(), start: 210, timeline: 2, reason: "slot_ahead_of_checkpoint"},
		"an old primary":                {value: newer.Encode(), start: 100, timeline: 1, reason: fault.ReasonStalePrimary},
		"a timeline of another history": {value: newer.Encode(), start: 100, timeline: 3, reason: fault.ReasonForeignTimeline},
		"another promoted, same number": {value: twin.Encode(), start: 100, timeline: 2, reason: fault.ReasonForeignTimeline},
		"nothing is known":              {start: 250, timeline: 1, end: 250},
	} {
		for _, guarantee := range []relay.Guarantee{relay.AtLeastOnce, relay.ExactlyOnce} {
			t.Run(name+", "+string(guarantee), func(t *testing.T) {
				origin := wal.Origin{SystemID: "7", Timeline: c.timeline}
				if c.timeline > 1 {
					origin.Forks = []wal.Fork{{Timeline: 1, At: 200}}
				}
				cfg := relay.Config{
					Guarantee: guarantee, DetectMovedSlot: guarantee == relay.AtLeastOnce,
					OnReject: relay.DeadLetterOnReject, ParkKey: true, Router: router.Config{PositionHeaders: true}, Replication: postgres.Config{Slot: "s", Publication: "p"},
				}
				known := map[string][]byte{}
				if key := stored.Key("7", "s"); c.value != nil && guarantee == relay.ExactlyOnce {
					known[key] = c.value
				} else if c.value != nil {
					known[stored.PromiseKey("somebody", "7", "s")] = c.value
				}
				end, err := cfg.Resume().ConfirmedUpTo(known, origin, c.start)
				reason := postgres.Reason(err)
				if kafka, ok := errors.AsType[*sink.Error](err); ok {
					reason = kafka.Reason
				}
				if c.reason == "" && (err != nil || end != c.end) || c.reason != "" && reason != c.reason {
					t.Errorf("confirmed up to %s, %v; want %s or reason %q", end, err, c.end, c.reason)
				}
				if c.reason == "slot_ahead_of_checkpoint" && !strings.Contains(err.Error(), "--accept-gap") {
					t.Errorf("no next step in %v", err)
				}
			})
		}
	}
}
