package check

import (
	"cmp"
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/rs/zerolog"
)

// states are reasons that come and go with the relay, or that other checks report.
var states = []string{fault.ReasonBeforeSlotUnknown, fault.ReasonSlotMissing, fault.ReasonSlotLost, fault.ReasonSlotMoved, fault.ReasonSlotBehind, fault.ReasonDeadLettersFull}

// upkeep finds what keeps the delivered rows of a table from being removed or marked.
func (d *checker) upkeep(ctx context.Context) {
	all, cfg := d.cfg.Retention()
	policies, _ := retention.Tables(all, "")
	allMarks, _ := d.cfg.Marks()
	marked, _ := marks.Tables(allMarks, "")
	if len(policies)+len(marked) == 0 {
		return
	}
	shared, err := upkeep.Open(ctx, cfg, zerolog.Nop())
	if err != nil {
		if len(policies) > 0 {
			d.unknownUpkeep("table.retention", err)
		} else {
			d.unknownUpkeep("table.mark", err)
		}
		return
	}
	defer shared.Close()
	going, marking := retention.Service{Service: shared}, marks.Service{Service: shared}
	for i := range policies {
		p := &policies[i]
		refused, err := going.Refused(ctx, p)
		d.refusals("table.retention", refused, err, "no row of "+p.Table.String()+" goes", "delivered rows of "+p.Table.String()+" go after "+p.Age()+": "+string(p.Then))
	}
	for i := range marked {
		p := &marked[i]
		refused, err := marking.Refused(ctx, p)
		d.refusals("table.mark", refused, err, "no row of "+p.Table.String()+" is marked", "delivered rows of "+p.Table.String()+" are marked: "+p.Column)
	}
}

func (d *checker) unknownUpkeep(check string, err error) {
	seen, next := advice.Split(err)
	d.add(check, advice.Warn, cmp.Or(next, "run the check again"), "the work on delivered rows could not be checked: %s", seen)
}

// refusals are what is in the way of one kind of work on one table.
func (d *checker) refusals(check string, refused []error, err error, none, all string) {
	if err != nil {
		d.unknownUpkeep(check, err)
		return
	}
	for _, err := range refused {
		level := advice.Fail
		if slices.Contains(states, upkeep.Reason(err)) {
			level = advice.Warn
		}
		seen, next := advice.Split(err)
		d.add(check, level, next, "%s (%s): %s", none, upkeep.Reason(err), seen)
	}
	if len(refused) == 0 {
		d.ok(check, "%s", all)
	}
}
