package retention

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/rs/zerolog"
)

// Service plans and does retention. One goroutine uses it.
type Service struct{ *upkeep.Service }

// Open connects to PostgreSQL and begins to read the topics. The service is to be closed.
func Open(ctx context.Context, cfg upkeep.Config, log zerolog.Logger) (*Service, error) {
	s, err := upkeep.Open(ctx, cfg, log)
	return &Service{s}, err
}

// found is what was found out about one table.
type found struct {
	upkeep.Found
	policy    *Policy
	by        maintenance.Column
	condition string
}

// inspect finds out what stands in the way. Refusals are part of what is found; an error is of a
// server that does not answer.
func (s *Service) inspect(ctx context.Context, p *Policy) (*found, error) {
	f := &found{policy: p}
	var archive *wal.Table
	if p.Then == Archive {
		archive = &p.Archive
	}
	return f, f.Keep(s.survey(ctx, f, archive))
}

func (s *Service) survey(ctx context.Context, f *found, archive *wal.Table) (err error) {
	p := f.policy
	if f.Survey, err = s.Survey(ctx, p.Table, archive); err != nil {
		return err
	}
	if err := p.Unfit(f.Survey); err != nil {
		return err
	}
	if f.by, err = p.age(f.Survey); err != nil {
		return err
	}
	if !f.Survey.MaySelect {
		f.Refused = p.refusals(f.Survey, "unknown")
		return nil
	}
	if p.Where != "" {
		if err := s.Surveyor.Condition(ctx, p.Table, p.Where); err != nil {
			if e := postgres.Classify("look at table "+p.Table.String(), err); postgres.KindOf(e) == fault.KindRetry {
				return e
			}
			return p.Mistake("where", "write one condition on the table's columns, with functions under the names of their schemas", "%s", fault.OneLine(err.Error()))
		}
	}
	f.condition = p.condition(f.by)
	if f.Index, err = s.Surveyor.Index(ctx, f.work(&s.Limits), f.Survey.OID); err != nil {
		return err
	}
	if f.Identity, err = s.Identity(ctx, p.Index); err != nil {
		return err
	}
	f.Refused = p.refusals(f.Survey, f.Index)
	return nil
}

// work is what the connection has to select and do.
func (f *found) work(limits *upkeep.Limits) maintenance.Work {
	w := maintenance.Work{
		Table: f.policy.Table, ID: f.Identity.SQL(), Where: f.condition, Order: wal.QuoteIdentifier(f.by.Name),
		Limit: limits.Named(), Waits: !f.Survey.MayLock,
	}
	if f.policy.Then == Archive && f.Survey.Archive != nil {
		if columns, err := archived(f.Survey); err == nil {
			w.Archive = &maintenance.Archive{Table: f.policy.Archive, Columns: columns}
		}
	}
	return w
}

// Once does what is due in one table and ends. On an error some rows may be done, which Done
// counts.
func (s *Service) Once(ctx context.Context, p *Policy, tell func(upkeep.Done)) (upkeep.Done, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return upkeep.Done{}, err
	}
	if len(f.Refused) > 0 {
		return upkeep.Done{}, errors.Join(f.Refused...)
	}
	work := f.work(&s.Limits)
	if f.Index == "" {
		work.Order = ""
	}
	done, err := s.Service.Once(ctx, work, f.Survey.OID, f.Identity, tell)
	if err == nil { // that it is not known is no failure
		done.Oldest, _ = s.Surveyor.Oldest(ctx, p.Table, upkeep.Now(f.by), wal.QuoteIdentifier(f.by.Name), p.Where, f.Index != "")
	}
	return done, err
}

// worker does what is due beside a relay.
type worker struct {
	*Service
	policies []Policy
}

func (w *worker) Once(ctx context.Context, table int, tell func(upkeep.Done)) (upkeep.Done, error) {
	return w.Service.Once(ctx, &w.policies[table], tell)
}

// Beside is the work beside a relay. Some policy does something.
func Beside(policies []Policy, cfg upkeep.Config, every time.Duration, log zerolog.Logger) upkeep.Beside {
	plan := upkeep.Beside{Job: "retention", Every: every, Open: func(ctx context.Context) (upkeep.Worker, error) {
		s, err := Open(ctx, cfg, log)
		if err != nil {
			return nil, err
		}
		return &worker{s, policies}, nil
	}}
	for _, p := range policies {
		plan.Tables = append(plan.Tables, upkeep.Table{Name: p.Table.String(), Then: string(p.Then)})
	}
	return plan
}

// Tables are the policies that do something, or those of them that have a name.
func Tables(all []Policy, name string) ([]Policy, error) {
	doing := slices.DeleteFunc(slices.Clone(all), func(p Policy) bool { return p.Then == None })
	return upkeep.Select(doing, name, "retention", func(p *Policy) *upkeep.Target { return &p.Target })
}
