package upkeep

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Unindexed is how many rows a table without a fitting index may have: each pass reads it whole.
const Unindexed = 100_000

// Target is a table of the configuration, and where the settings of a job are.
type Target struct {
	Table wal.Table
	Index int    // of the table in the relay's configuration
	Path  string // outbox[0].retention
}

// Refuse is a reason of the table for doing nothing.
func (t *Target) Refuse(reason, hint, cause string, args ...any) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: reason, Op: "look at", Subject: "table " + t.Table.String(), Err: fmt.Errorf(cause, args...), Hint: hint}
}

// Mistake is a setting that does not fit the table.
func (t *Target) Mistake(key, hint, cause string, args ...any) error {
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "look at", Subject: t.Path + "." + key, Err: fmt.Errorf(cause, args...), Hint: hint}
}

// Unfit refuses what is no table of rows that a slot has.
func (t *Target) Unfit(s *maintenance.Survey) error {
	switch {
	case s.Kind != "r" && s.Kind != "p":
		return t.Refuse(fault.ReasonConfiguration, "name a table", "it is a view, or no table")
	case !s.Permanent:
		return t.Refuse(fault.ReasonConfiguration, "run: ALTER TABLE "+t.Table.SQL()+" SET LOGGED", "it is unlogged, and no slot has its rows")
	}
	return nil
}

// Unsent refuses a table of which publications leave rows out.
func (t *Target) Unsent(s *maintenance.Survey) (all []error) {
	if len(s.Unpublished) > 0 {
		all = append(all, t.Refuse(fault.ReasonTableUnpublished, "add it again, and send the rows that were written meanwhile",
			"publication %s does not publish its inserts: rows that are written now are never sent", strings.Join(s.Unpublished, ", ")))
	}
	if len(s.Filters) > 0 {
		all = append(all, t.Refuse(fault.ReasonTableUnpublished, "send all rows, and leave the filter to consumers",
			"publication %s has a row filter on it: rows that fail it are never sent, and nothing tells them from the others", strings.Join(s.Filters, ", ")))
	}
	if len(s.LeftOut) > 0 {
		all = append(all, t.Refuse(fault.ReasonBeforeSlotUnknown, "send the rows that were written meanwhile (`cdc-relay replay`), or say that they are delivered (`cdc-relay setup --before-slot delivered`)",
			"publication %s was changed since it was recorded that nothing is left to be sent from before the slot: rows that were written while it did not have the table are in no stream", strings.Join(s.LeftOut, ", ")))
	}
	const hint = "send its rows again (`cdc-relay replay`), or say that they are delivered (`cdc-relay setup --before-slot delivered`)"
	if len(s.Attached) > 0 {
		all = append(all, t.Refuse(fault.ReasonBeforeSlotUnknown, hint,
			"partition %s was attached since it was recorded that nothing is left to be sent from before the slot: rows that it had then are in no stream", strings.Join(s.Attached, ", ")))
	}
	if len(s.Rewritten) > 0 {
		all = append(all, t.Refuse(fault.ReasonBeforeSlotUnknown, hint,
			"%s was written anew since it was recorded that nothing is left to be sent from before the slot (SET LOGGED, VACUUM FULL or the like): rows that were written while it was unlogged are in no stream", strings.Join(s.Rewritten, ", ")))
	}
	if s.Changed {
		all = append(all, t.Refuse(fault.ReasonTableUnpublished, "the relay looks within seconds, and says whether rows have to be sent again; then run this again",
			"its publication was changed just now: rows that were written meanwhile may be in no stream"))
	}
	return all
}

// Now is the time in the terms of a column; one without a time zone is in UTC.
func Now(c maintenance.Column) string {
	if strings.HasSuffix(c.Type, "without time zone") {
		return "(pg_catalog.now() AT TIME ZONE 'UTC')"
	}
	return "pg_catalog.now()"
}

// Select are the targets of a list that a table's name selects; an empty name selects all.
func Select[P any](all []P, name, job string, target func(*P) *Target) ([]P, error) {
	if name == "" {
		return all, nil
	}
	table, err := wal.ParseTable(name)
	if err != nil {
		return nil, fmt.Errorf("--table: %w", err)
	}
	var selected []P
	for i := range all {
		if target(&all[i]).Table == table {
			selected = append(selected, all[i])
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("--table: the configuration has no %s for %s", job, table)
	}
	return selected, nil
}
