package check

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/cdc-relay/cdc-relay/wording"
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
		refused, alone, err := going.Refused(ctx, p)
		d.refusals("table.retention", refused, err, "no row of "+p.Table.String()+" goes", "delivered rows of "+p.Table.String()+" go after "+p.Age()+": "+string(p.Then))
		d.leftAlone("table.retention", alone)
	}
	for i := range marked {
		p := &marked[i]
		refused, alone, err := marking.Refused(ctx, p)
		d.refusals("table.mark", refused, err, "no row of "+p.Table.String()+" is marked", "delivered rows of "+p.Table.String()+" are marked: "+p.Column)
		d.leftAlone("table.mark", alone)
	}
	d.markedByOthers()
}

// leftAlone warns of partitions in which nothing is done.
func (d *checker) leftAlone(check string, alone []error) {
	for _, err := range alone {
		seen, next := advice.Split(err)
		d.add(check, advice.Warn, next, "%s", seen)
	}
}

// markedByOthers warns of marks that the job of the relay saw and did not set itself.
func (d *checker) markedByOthers() {
	if d.own == nil {
		return
	}
	for i := range d.own.Maintenance {
		m := &d.own.Maintenance[i]
		if m.MarkedByOthers == 0 || m.LastByOthers == nil {
			continue
		}
		d.add("table.mark", advice.Warn, "stop the polling publisher that still runs, or cut over from it ("+wording.Docs+"how-to/cut-over-from-polling.md), then restart the relay",
			"somebody else marks rows of %s (%s): %s since the relay started, the last one at %s; a publisher sends them as well, so consumers get them twice",
			m.Table, m.Then, wording.Count(m.MarkedByOthers, "row"), m.LastByOthers.UTC().Format(time.RFC3339))
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
		if upkeep.Reason(err) == fault.ReasonTableUnpublished && d.failed("publication") {
			continue // that check says why, and what to do
		}
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
