// Package teardown drops what setup has made, and what a backfill or a cutover has left.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/incomplete"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Run drops slot and publication, and the slot that an interrupted backfill or cutover has left;
// never a table. Without apply it only says what it would do. It refuses, with nothing touched, while
// somebody streams from a slot, while a backfill or a cutover is under way, when rows wait in the slot of
// a cutover, and when the publication has more than cfg names: then it serves somebody else too. Steps of
// what is not there have no SQL.
func Run(ctx context.Context, cfg postgres.Config, apply bool) ([]provision.Step, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(q.Conn)
	if err := keepOut(q, cfg); err != nil {
		return nil, err
	}
	// The slots first: without its publication none could stream any more.
	var steps, publications []provision.Step
	for _, shard := range cfg.Shards() {
		slot, err := planSlot(q, server.ServerVersion, shard.Slot)
		if err != nil {
			return nil, err
		}
		publication, err := planPublication(q, server.ServerVersion, shard)
		if err != nil {
			return nil, err
		}
		steps, publications = append(steps, slot), append(publications, publication)
	}
	interrupted, err := left(q, server.ServerVersion, cfg)
	if err != nil {
		return nil, err
	}
	steps = slices.Concat(steps, interrupted, publications)
	if !apply {
		return steps, nil
	}
	for i, step := range steps {
		if step.SQL == "" {
			continue
		}
		if err := q.Exec(step.SQL); err != nil {
			return steps[:i], postgres.PermissionHint(postgres.Classify("drop "+step.Subject(), err),
				whoDrops(step))
		}
	}
	return steps, nil
}

// keepOut refuses while a backfill, a cutover or a replay is under way, and lets none begin until the
// connection ends.
func keepOut(q postgres.Querier, cfg postgres.Config) error {
	err := incomplete.Lock(q, cfg)
	if busy, ok := errors.AsType[*fault.Error](err); ok && busy.Kind == fault.KindBusy {
		busy.Op, busy.Subject = "drop", postgres.SlotSubject(cfg.BaseSlot())
		busy.Err, busy.Hint = fmt.Errorf("a backfill, a cutover or a replay is under way: %w", busy.Err), "stop it, or wait until it has ended"
	}
	return err
}

// left drops what an interrupted backfill or cutover has left.
func left(q postgres.Querier, version int, cfg postgres.Config) (steps []provision.Step, err error) {
	all, err := incomplete.All(q, cfg)
	if err != nil {
		return nil, err
	}
	for _, slot := range all {
		if slot.Cutover {
			if err := refuseWaiting(q, version, cfg, &slot); err != nil {
				return nil, err
			}
		}
		step, err := planSlot(q, version, slot.Name)
		if err != nil {
			return nil, err
		}
		if step.Exists {
			step.Of = slot
			steps = append(steps, step)
		}
	}
	return steps, nil
}

// refuseWaiting refuses to drop the slot of a cutover whose trigger marks rows as published: no publisher
// sends these, and only the slot has them. A slot that is lost has them no more.
func refuseWaiting(q postgres.Querier, version int, cfg postgres.Config, cutover *incomplete.Slot) error {
	slot, err := catalog.ReadSlot(q, version, cutover.Name)
	if postgres.Reason(err) == fault.ReasonSlotMissing {
		return nil
	}
	if err != nil {
		return err
	}
	if slot.Lost(cutover.Name) != nil {
		return nil //nolint:nilerr // no row waits in it
	}
	for _, table := range cfg.Tables {
		t, err := catalog.ReadTable(q, table)
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		cut, err := catalog.ReadCut(q, table, t.OID)
		if err != nil {
			return err
		}
		if cut != nil && !cut.Off {
			return &fault.Error{
				Kind: fault.KindRefused, Reason: fault.ReasonCutoverTrigger, Op: "drop", Subject: postgres.SlotSubject(cutover.Name),
				Err:  fmt.Errorf("a cutover has rows of table %s marked as published since %s, and nobody has sent those that wait in the slot", table, cut.At),
				Hint: fmt.Sprintf("complete it with `%s`; then `cdc-relay cutover --back --yes` gives the table back to the publisher", cutover.Command()),
			}
		}
	}
	return nil
}

// whoDrops is the next step of a role that may not. No slot is left by the time that
// publications are dropped, and a new start needs no more than that.
func whoDrops(s provision.Step) string {
	if s.Object == "slot" {
		return "run it as a role with REPLICATION"
	}
	return "the slot is dropped. A correct publication may stay: continue with `cdc-relay setup`; to drop it too, run this again as its owner"
}

func planSlot(q postgres.Querier, version int, name string) (provision.Step, error) {
	step := provision.Step{Object: "slot", Name: name}
	row, err := catalog.ReadSlot(q, version, name)
	if postgres.Reason(err) == fault.ReasonSlotMissing {
		return step, nil
	}
	if err != nil {
		return step, err
	}
	if row.Active {
		err := row.Busy(q, name)
		if busy, ok := errors.AsType[*fault.Error](err); ok {
			busy.Op, busy.Hint = "drop", "stop that one first"
		}
		return step, err
	}
	step.Exists = true
	step.SQL = provision.DropSlotSQL(name)
	return step, nil
}

func planPublication(q postgres.Querier, version int, cfg postgres.Config) (provision.Step, error) {
	step := provision.Step{Object: "publication", Name: cfg.Publication}
	p, err := catalog.ReadPublication(q, version, cfg.Publication)
	if postgres.Reason(err) == fault.ReasonPublicationMissing {
		return step, nil
	}
	if err != nil {
		return step, err
	}
	sql := provision.DropPublicationSQL(cfg)
	children, err := p.ChildTables(q, cfg.Tables)
	if err != nil {
		return step, postgres.Classify("look at "+postgres.PublicationSubject(cfg.Publication), err)
	}
	foreign := p.Foreign(append(children, cfg.Tables...))
	if p.AllTables || len(foreign) > 0 {
		return step, &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonPublicationChanged, Op: "drop", Subject: postgres.PublicationSubject(cfg.Publication),
			Err:  fmt.Errorf("it has tables that are not configured here (%s) and may serve others", strings.Join(wording.Shorten(foreign), ", ")),
			Hint: "if nobody needs it, run: " + sql,
		}
	}
	step.Exists = true
	step.SQL = sql
	return step, nil
}
