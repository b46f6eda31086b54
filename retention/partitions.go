package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// surveyPartitions looks at the root of partitions, and refuses what keeps whole ones from going.
func (s *Service) surveyPartitions(ctx context.Context, f *found) (err error) {
	p := f.policy
	if f.Survey.Kind != "p" {
		f.unmakeable = true
		return p.Mistake("then", "use then: delete", "table %s is not partitioned", p.Table)
	}
	if f.partitions, err = s.Surveyor.Partitions(ctx, f.Survey.OID, p.By, upkeep.Now(f.by), p.interval()); err != nil {
		return err
	}
	if p.Then.Partitions() {
		all := p.partitionRefusals(f.partitions, f.Survey.Role)
		f.unmakeable = len(all) > 0
		f.Refused = append(f.Refused, all...)
		f.Refused = append(f.Refused, p.Unsent(f.Survey)...)
		f.Refused = append(f.Refused, p.unlogged(f.partitions.All)...)
	}
	if f.partitions.Partman != "" {
		f.Refused = append(f.Refused, p.Refuse(fault.ReasonConfiguration, fmt.Sprintf("run: UPDATE %s SET retention = NULL WHERE parent_table = '%s.%s'", f.partitions.PartmanIn, p.Table.Schema, p.Table.Name),
			"pg_partman removes its partitions after %s, whether their rows are delivered or not", f.partitions.Partman))
	}
	return nil
}

// partitionRefusals are what keeps partitions from being made and removed.
func (p *Policy) partitionRefusals(of *maintenance.Partitioned, role string) (all []error) {
	switch {
	case !of.Ranges:
		all = append(all, p.Mistake("then", "use then: delete", "table %s is partitioned, but not by ranges", p.Table))
	case of.Key != p.By:
		all = append(all, p.Mistake("by", "use then: delete, or name the column by which it is partitioned", "table %s is not partitioned by %q alone", p.Table, p.By))
	}
	for i := range of.All {
		if of.All[i].Divided {
			all = append(all, p.Mistake("then", "use then: delete", "partition %s of table %s is partitioned itself", of.All[i].Table, p.Table))
			break
		}
	}
	if !of.Owner {
		all = append(all, p.Refuse(fault.ReasonPermission, fmt.Sprintf("have its owner run: GRANT owner TO %s, with the owner's name", wal.QuoteIdentifier(role)), "role %q does not own it, and only an owner makes and removes partitions", role))
	}
	return all
}

// unlogged refuses partitions whose rows no slot has.
func (p *Policy) unlogged(all []maintenance.Partition) (refused []error) {
	for i := range all {
		if table := all[i].Table; !all[i].Logged {
			refused = append(refused, p.of(table).Refuse(fault.ReasonConfiguration, "send its rows in another way; then detach it, or run: ALTER TABLE "+table.SQL()+" SET LOGGED",
				"the partition is unlogged or a foreign table, and no slot has its rows"))
		}
	}
	return refused
}

// surveyLeaves looks at the partitions whose rows go one by one: all of them, or the default one.
func (s *Service) surveyLeaves(ctx context.Context, f *found) error {
	leaves, err := s.Surveyor.Leaves(ctx, f.Survey.OID)
	if err != nil {
		return err
	}
	f.Refused = append(f.Refused, f.policy.Unsent(f.Survey)...)
	for _, l := range leaves {
		if f.policy.Then.Partitions() && !f.isDefault(l.OID) {
			continue
		}
		refused, leaves := f.Refused, f.leaves
		err := s.surveyPartition(ctx, f, l)
		if (err != nil || len(f.Refused) > len(refused)) && s.Left(ctx, f.Survey.OID, l.OID) {
			f.Refused, f.leaves = refused, leaves
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// surveyPartition looks at one partition.
func (s *Service) surveyPartition(ctx context.Context, f *found, l maintenance.Leaf) error {
	survey, err := s.SurveyLeaf(ctx, l, f.policy.archiveTable())
	if err != nil {
		return err
	}
	if !survey.Permanent {
		f.LeaveAlone(l.Table)
		return nil
	}
	one, err := s.leaf(ctx, f, l.Table, survey)
	if err == nil {
		f.leaves = append(f.leaves, one)
	}
	return err
}

func (f *found) isDefault(oid uint32) bool {
	for _, p := range f.partitions.All {
		if p.OID == oid && p.Default {
			return true
		}
	}
	return false
}

// partitions makes those that will be needed, and removes those whose time is over. They are made
// first and also where nothing may be removed: without one, writers fail.
func (s *Service) partitions(ctx context.Context, f *found, done *upkeep.Done) error {
	began := time.Now()
	root := upkeep.Root{Table: f.policy.Table, OID: f.Survey.OID}
	session, err := s.OpenRoot(ctx, root, f.Identity)
	if err != nil {
		return err
	}
	defer func() {
		session.Close()
		done.Took += time.Since(began)
	}()
	failed := s.makeAhead(ctx, session, f, done.Parts)
	if len(f.Refused) == 0 {
		failed = errors.Join(failed, s.remove(ctx, session, f, root, done.Parts))
	}
	return unjoined(failed)
}

// unjoined is an error by itself, if it is the only one.
func unjoined(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) == 1 {
		return all.Unwrap()[0]
	}
	return err
}

func (s *Service) makeAhead(ctx context.Context, session *maintenance.Root, f *found, parts *upkeep.Partitions) error {
	now, err := session.Clock(ctx)
	if err != nil {
		return err
	}
	missing, ahead, err := f.policy.missing(f.partitions.All, now, strings.HasSuffix(f.by.Type, "without time zone"))
	parts.Ahead = ahead
	if err != nil {
		return err
	}
	for _, one := range missing {
		if err := session.Create(ctx, one.name, one.from, one.to); err != nil {
			return err
		}
		parts.Made++
		if one.ahead {
			parts.Ahead++
		}
	}
	return nil
}

// mostBusy is how many partitions may be held by others before a pass ends: each attempt has made
// writers wait.
const mostBusy = 2

func (s *Service) remove(ctx context.Context, session *maintenance.Root, f *found, root upkeep.Root, parts *upkeep.Partitions) (failed error) {
	p := f.policy
	prover := s.Prover(root.Table, root.OID, f.Identity, false, nil)
	if err := s.Ready(ctx, prover, session); err != nil { // also where nothing is due
		return err
	}
	confirm := func(ctx context.Context) error {
		survey, err := s.Survey(ctx, p.Table, nil)
		if err != nil {
			return err
		}
		return unjoined(errors.Join(p.Unsent(survey)...))
	}
	busy := 0
	for _, one := range f.partitions.All {
		if !one.Past || one.Default {
			continue
		}
		held, err := prover.Remove(ctx, &maintenance.Removal{
			Root: session, Partition: one, Now: upkeep.Now(f.by), Age: p.interval(), Detach: p.Then == DetachPartition, Wake: s.Surveyor.Nudge, Confirm: confirm,
		})
		switch {
		case err == nil && held:
			parts.Held++
		case err == nil:
			parts.Removed++
		case postgres.Reason(err) == fault.ReasonPartitionBusy:
			failed = errors.Join(failed, err)
			if busy++; busy == mostBusy {
				return failed
			}
		case s.Left(ctx, root.OID, one.OID): // others have removed it
		default:
			return errors.Join(failed, err)
		}
	}
	return failed
}
