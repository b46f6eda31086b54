package check

import (
	"cmp"
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/rs/zerolog"
)

// states are reasons that come and go with the relay, or that other checks tell.
var states = []string{fault.ReasonBeforeSlotUnknown, fault.ReasonSlotMissing, fault.ReasonSlotLost, fault.ReasonSlotMoved, fault.ReasonSlotBehind, fault.ReasonDeadLettersFull}

// retention tells what keeps the rows of a table from going.
func (d *doctor) retention(ctx context.Context) {
	const check = "table.retention"
	all, cfg := d.cfg.Retention()
	policies, _ := retention.Tables(all, "")
	if len(policies) == 0 {
		return
	}
	unknown := func(err error) {
		seen, next := advice.Split(err)
		d.add(check, advice.Warn, cmp.Or(next, "run the check again"), "whether rows can go was not found out: %s", seen)
	}
	s, err := retention.Open(ctx, cfg, zerolog.Nop())
	if err != nil {
		unknown(err)
		return
	}
	defer s.Close()
	for i := range policies {
		p := &policies[i]
		refused, err := s.Refused(ctx, p)
		if err != nil {
			unknown(err)
			return
		}
		for _, err := range refused {
			level := advice.Fail
			if slices.Contains(states, upkeep.Reason(err)) {
				level = advice.Warn
			}
			seen, next := advice.Split(err)
			d.add(check, level, next, "no row of %s goes (%s): %s", p.Table, upkeep.Reason(err), seen)
		}
		if len(refused) == 0 {
			d.ok(check, "delivered rows of %s go after %s: %s", p.Table, p.Age(), p.Then)
		}
	}
}
