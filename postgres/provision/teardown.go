package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Teardown drops slot and publication, never a table. Without apply it only says
// what it would do. It refuses, with nothing touched, while somebody streams from
// the slot, and when the publication has more than cfg names: then it serves
// somebody else too. Steps of what is not there have no SQL.
func Teardown(ctx context.Context, cfg postgres.Config, apply bool) ([]Step, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(q.Conn)
	// The slots first: without its publication none could stream any more.
	var steps, publications []Step
	for _, shard := range cfg.Shards() {
		slot, err := teardownSlot(q, server.ServerVersion, shard.Slot)
		if err != nil {
			return nil, err
		}
		publication, err := teardownPublication(q, server.ServerVersion, shard)
		if err != nil {
			return nil, err
		}
		steps, publications = append(steps, slot), append(publications, publication)
	}
	steps = append(steps, publications...)
	if !apply {
		return steps, nil
	}
	for i, step := range steps {
		if step.SQL == "" {
			continue
		}
		if err := q.Exec(step.SQL); err != nil {
			return steps[:i], postgres.PermissionHint(postgres.Classify("drop "+step.subject(), err),
				step.whoDrops())
		}
	}
	return steps, nil
}

// whoDrops is the next step of a role that may not. No slot is left by the time that
// publications are dropped, and a new start needs no more than that.
func (s Step) whoDrops() string {
	if s.Object == "slot" {
		return "run it as a role with REPLICATION"
	}
	return "the slot is dropped. A correct publication may stay: continue with `cdc-relay setup`; to drop it too, run this again as its owner"
}

func teardownSlot(q postgres.Querier, version int, name string) (Step, error) {
	step := Step{Object: "slot", Name: name}
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
	step.SQL = dropSlotSQL(name)
	return step, nil
}

func teardownPublication(q postgres.Querier, version int, cfg postgres.Config) (Step, error) {
	step := Step{Object: "publication", Name: cfg.Publication}
	p, err := catalog.ReadPublication(q, version, cfg.Publication)
	if postgres.Reason(err) == fault.ReasonPublicationMissing {
		return step, nil
	}
	if err != nil {
		return step, err
	}
	sql := DropPublicationSQL(cfg)
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
