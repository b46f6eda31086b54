package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Teardown drops slot and publication, never a table. Without apply it only says
// what it would do. It refuses, with nothing touched, while somebody streams from
// the slot, and when the publication has more than cfg names: then it serves
// somebody else too. Steps of what is not there have no SQL.
func Teardown(ctx context.Context, cfg Config, apply bool) ([]Step, error) {
	q, server, err := openServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(q.conn)
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
		if err := q.exec(step.SQL); err != nil {
			return steps[:i], permissionHint(classify("drop "+step.subject(), err),
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
	return "the slot is dropped, and a publication that is right may stay: go on with `cdc-relay setup`; to drop it too, run this again as its owner"
}

func teardownSlot(q querier, version int, name string) (Step, error) {
	step := Step{Object: "slot", Name: name}
	row, err := readSlot(q, version, name)
	if Reason(err) == ReasonSlotMissing {
		return step, nil
	}
	if err != nil {
		return step, err
	}
	if row.Active {
		err := row.busy(q, name)
		if busy, ok := errors.AsType[*Error](err); ok {
			busy.Op, busy.Hint = "drop", "stop that one first"
		}
		return step, err
	}
	step.Exists = true
	step.SQL = fmt.Sprintf("SELECT pg_catalog.pg_drop_replication_slot(%s)", singleQuoted(name))
	return step, nil
}

func teardownPublication(q querier, version int, cfg Config) (Step, error) {
	step := Step{Object: "publication", Name: cfg.Publication}
	p, err := readPublication(q, version, cfg.Publication)
	if Reason(err) == ReasonPublicationMissing {
		return step, nil
	}
	if err != nil {
		return step, err
	}
	sql := "DROP PUBLICATION " + doubleQuoted(cfg.Publication)
	heirs, err := p.heirs(q, cfg.Tables)
	if err != nil {
		return step, classify("look at "+publicationSubject(cfg.Publication), err)
	}
	foreign := p.foreign(append(heirs, cfg.Tables...))
	if p.allTables || len(foreign) > 0 {
		return step, &Error{
			Kind: KindRefused, Reason: ReasonPublicationChanged, Op: "drop", Subject: publicationSubject(cfg.Publication),
			Err:  fmt.Errorf("it has tables that are not configured here (%s) and may serve others", strings.Join(shorten(foreign), ", ")),
			Hint: "if nobody needs it, run: " + sql,
		}
	}
	step.Exists = true
	step.SQL = sql
	return step, nil
}
