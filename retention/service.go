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
	"github.com/cdc-relay/cdc-relay/retention/export"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/rs/zerolog"
)

// Service plans and does retention. One goroutine uses it.
type Service struct {
	*upkeep.Service
	buckets map[string]*export.Bucket // by the path of a table's settings
}

// Open connects to PostgreSQL and begins to read the topics. The service is to be closed.
func Open(ctx context.Context, cfg upkeep.Config, log zerolog.Logger) (*Service, error) {
	s, err := upkeep.Open(ctx, cfg, log)
	return &Service{Service: s}, err
}

// found is what was found out about one table.
type found struct {
	upkeep.Found
	policy     *Policy
	by         maintenance.Column
	condition  string
	leaves     []leaf                   // that have the rows: the table itself, or its partitions
	partitions *maintenance.Partitioned // nil: the table has none
	unmakeable bool                     // partitions of it cannot be made
	store      export.Store             // nil: rows are not exported
}

// leaf is a table with rows.
type leaf struct {
	table  wal.Table
	survey *maintenance.Survey
	index  string // by which rows that are due are found; empty: none
}

// inspect finds out what stands in the way. Refusals are part of what is found; an error is of a
// server that does not answer.
func (s *Service) inspect(ctx context.Context, p *Policy) (*found, error) {
	f := &found{policy: p}
	return f, f.Sort(s.survey(ctx, f))
}

func (s *Service) survey(ctx context.Context, f *found) (err error) {
	p := f.policy
	if f.Survey, err = s.Survey(ctx, p.Table, p.archiveTable()); err != nil {
		return err
	}
	if err := p.Unfit(f.Survey); err != nil {
		return err
	}
	if f.by, err = p.age(f.Survey); err != nil {
		return err
	}
	if p.Then == Export {
		if f.store, err = s.store(ctx, p); err != nil {
			return err
		}
	}
	if f.Survey.Kind == "p" || p.Then.Partitions() {
		if err := s.surveyPartitions(ctx, f); err != nil {
			return err
		}
	}
	if !f.Survey.MaySelect {
		f.Refused = append(f.Refused, p.refusals(f.Survey, "unknown")...)
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
	if f.Identity, err = s.Identity(ctx, p.Index); err != nil {
		return err
	}
	if f.Survey.Kind == "p" {
		return s.surveyLeaves(ctx, f)
	}
	one, err := s.leaf(ctx, f, p.Table, f.Survey)
	f.leaves, f.Index = []leaf{one}, one.index
	return err
}

// leaf finds the way to the rows of one table, and what it refuses.
func (s *Service) leaf(ctx context.Context, f *found, table wal.Table, survey *maintenance.Survey) (one leaf, err error) {
	one = leaf{table: table, survey: survey}
	if !f.policy.Blocks {
		one.index, err = s.Surveyor.Index(ctx, f.work(&one, &s.Limits), survey.OID)
	}
	if err == nil {
		f.Refused = append(f.Refused, f.policy.of(table).refusals(survey, one.index)...)
	}
	return one, err
}

// work is what the connection has to select and do in one table.
func (f *found) work(of *leaf, limits *upkeep.Limits) maintenance.Work {
	w := maintenance.Work{
		Table: of.table, Root: f.Survey.OID, ID: f.Identity.SQL(), Where: f.condition, Order: wal.QuoteIdentifier(f.by.Name),
		Limit: limits.Batch(), Tied: limits.Ahead(), Waits: !of.survey.MayLock,
	}
	if f.policy.Then == Export {
		w.Limit = max(w.Limit, fileRows)
	}
	if f.policy.Then == Export || f.policy.Then == Archive {
		w.Columns = of.survey.Columns
	}
	if f.policy.Then == Archive && of.survey.Archive != nil {
		if columns, err := archived(of.survey); err == nil {
			w.Archive = &maintenance.Archive{Table: f.policy.Archive, Columns: columns}
		}
	}
	return w
}

// Once does what is due in one table and ends. On an error some rows may be done, which Done
// counts.
func (s *Service) Once(ctx context.Context, p *Policy, tell func(upkeep.Done)) (done upkeep.Done, err error) {
	if p.Then.Partitions() {
		done.Parts = new(upkeep.Partitions)
	}
	f, err := s.inspect(ctx, p)
	if err != nil {
		return done, err
	}
	if p.Then.Partitions() && f.partitions != nil && !f.unmakeable {
		if err := s.partitions(ctx, f, &done); err != nil {
			return done, err
		}
	}
	if len(f.Refused) > 0 {
		return done, errors.Join(f.Refused...)
	}
	for i := range f.leaves {
		before := done
		did, err := s.rows(ctx, f, &f.leaves[i], func(d upkeep.Done) { tell(before.With(d)) })
		if done = before.With(did); err != nil && !s.Left(ctx, f.Survey.OID, f.leaves[i].survey.OID) {
			return done, err
		}
	}
	return done, f.LeftAlone()
}

// rows does what is due in one table that has rows.
func (s *Service) rows(ctx context.Context, f *found, of *leaf, tell func(upkeep.Done)) (done upkeep.Done, err error) {
	p := f.policy
	if len(f.leaves) > 1 { // a connection for each, so only where there is something to do
		due, err := s.Surveyor.Exists(ctx, of.table, f.condition)
		if err != nil {
			return done, p.readsOnly(err)
		}
		if !due {
			done.Oldest = s.oldest(ctx, f, of)
			return done, nil
		}
	}
	task := &upkeep.Task{Work: f.work(of, &s.Limits), OID: of.survey.OID, Root: upkeep.Root{Table: p.Table, OID: f.Survey.OID}, Identity: f.Identity}
	if of.index == "" {
		task.Order = ""
	}
	task.Sent = func(ctx context.Context) error { return s.sent(ctx, f, of) }
	var files exporter
	if p.Then == Export {
		files = exporter{found: f, of: of, slots: s.Reader.Slots()}
		task.Before = files.write
	}
	done, err = s.Service.Once(ctx, task, tell)
	err = p.readsOnly(err)
	done.Bytes = files.bytes
	if err == nil {
		done.Oldest = s.oldest(ctx, f, of)
	}
	return done, err
}

// sent looks once more at what decides whether rows are in a stream. A partition that somebody detaches
// meanwhile is in none from then on, and its rows are no longer the table's.
func (s *Service) sent(ctx context.Context, f *found, of *leaf) error {
	err := s.Sent(ctx, &f.policy.Target, f.Survey.OID)
	if err != nil || of.survey.OID == f.Survey.OID {
		return err
	}
	return s.Sent(ctx, &f.policy.of(of.table).Target, of.survey.OID)
}

// oldest is the age of the oldest row; that it is not known is no failure.
func (s *Service) oldest(ctx context.Context, f *found, of *leaf) *float64 {
	if f.policy.Blocks && of.survey.Rows > upkeep.Unindexed { // to find it takes another look at the whole table
		return nil
	}
	age, _ := s.Surveyor.Oldest(ctx, of.table, upkeep.Now(f.by), wal.QuoteIdentifier(f.by.Name), f.policy.Where, of.index != "")
	return age
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
