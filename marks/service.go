package marks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/cdc-relay/cdc-relay/upkeep/records"
	"github.com/rs/zerolog"
)

// Service plans marks and sets them. One goroutine uses it.
type Service struct{ *upkeep.Service }

// Open connects to PostgreSQL and begins to read the topics. The service is to be closed.
func Open(ctx context.Context, cfg upkeep.Config, log zerolog.Logger) (*Service, error) {
	s, err := upkeep.Open(ctx, cfg, log)
	return &Service{s}, err
}

// found is what was found out about one table.
type found struct {
	upkeep.Found
	policy  *Policy
	updates *maintenance.Updates
	setting setting
	order   string                       // of the index, as SQL
	rejects *maintenance.RejectedColumns // nil: rejected rows are not told from others
}

// inspect finds out what stands in the way. Refusals are part of what is found; an error is of a
// server that does not answer.
func (s *Service) inspect(ctx context.Context, p *Policy) (*found, error) {
	f := &found{policy: p}
	return f, f.Sort(s.survey(ctx, f))
}

func (s *Service) survey(ctx context.Context, f *found) (err error) {
	p := f.policy
	if f.Survey, err = s.Survey(ctx, p.Table, nil); err != nil {
		return err
	}
	if err := p.Unfit(f.Survey); err != nil {
		return err
	}
	if f.Survey.Kind == "p" {
		return p.Refuse(fault.ReasonConfiguration, "mark the rows of ordinary tables", "it is partitioned, and an update of each row would cost more than the partitions save")
	}
	if f.setting, err = p.setting(f.Survey.Columns); err != nil {
		return err
	}
	if f.updates, err = s.Surveyor.Updates(ctx, f.Survey.OID, p.Column); err != nil {
		return err
	}
	if !f.Survey.MaySelect {
		f.Refused = p.refusals(f.Survey, f.updates, f.setting, "unknown")
		return nil
	}
	for _, index := range f.updates.Indexes {
		for _, column := range index.Columns {
			work := maintenance.Work{Table: p.Table, Where: f.setting.unmarked, Order: column, Limit: 1}
			name, err := s.Surveyor.Index(ctx, work, f.Survey.OID)
			if err != nil {
				return err
			}
			if f.Index == "" && name == index.Name {
				f.Index, f.order = name, column
			}
		}
	}
	if f.Identity, err = s.Identity(ctx, p.Index); err != nil {
		return err
	}
	f.Refused = p.refusals(f.Survey, f.updates, f.setting, f.Index)
	f.rejects, err = s.rejects(ctx, f)
	return err
}

func (f *found) work(limits *upkeep.Limits) maintenance.Work {
	return maintenance.Work{
		Table: f.policy.Table, ID: f.Identity.SQL(), Where: f.setting.unmarked, Order: f.order, Set: f.setting.set,
		Limit: limits.Named(), Lock: maintenance.MarkLockClass,
	}
}

func (s *Service) limits(p *Policy) *upkeep.Limits {
	l := s.Limits
	l.BatchRows = p.BatchRows
	return &l
}

// table is one that is being marked: its connection, and the proof of its rows.
type table struct {
	session *maintenance.Session
	prover  *proof.Prover
	limits  *upkeep.Limits
	age     string // the column that says when a row was written; empty: none does
	found   *found
	since   time.Time

	records *records.Table
	said    map[deadletter.Location]bool // letters whose rows were looked at
}

func (s *Service) open(ctx context.Context, p *Policy) (*table, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(f.Refused) > 0 {
		return nil, errors.Join(f.Refused...)
	}
	t := &table{limits: s.limits(p), found: f, age: f.age(), since: time.Now(), records: s.Records(p.Table, f.Survey.OID, f.Identity), said: make(map[deadletter.Location]bool)}
	if t.session, err = s.Session(ctx, f.work(t.limits), f.Survey.OID); err != nil {
		return nil, err
	}
	t.prover = s.Prover(p.Table, f.Survey.OID, f.Identity)
	if err := t.prover.Ready(ctx, t.session); err != nil { // also where there is no row to mark
		t.session.Close()
		return nil, err
	}
	return t, nil
}

func (f *found) age() string {
	name := written(f.Survey.Columns, f.policy.Column)
	for _, c := range f.Survey.Columns {
		if c.Name == name && kind(c) == instant {
			return name
		}
	}
	return ""
}

// pass marks what is delivered by now and has no mark.
func (s *Service) pass(ctx context.Context, t *table, tell func(upkeep.Done)) (upkeep.Done, error) {
	done, err := upkeep.NewJob(&guarded{t.session, s, t.found}, t.limits, false).Run(ctx, t.prover, tell)
	if err == nil {
		done.Rejected, err = s.reject(ctx, t)
	}
	if err == nil && t.age != "" && done.Rows+done.Held+done.Passed > 0 { // that it is not known is no failure
		i := slices.IndexFunc(t.found.Survey.Columns, func(c maintenance.Column) bool { return c.Name == t.age })
		done.Oldest, _ = s.Surveyor.Oldest(ctx, t.found.policy.Table, upkeep.Now(t.found.Survey.Columns[i]), wal.QuoteIdentifier(t.age), t.found.setting.unmarked, t.found.Index != "")
	}
	return done, err
}

// Once marks what is delivered and has no mark, and ends.
func (s *Service) Once(ctx context.Context, p *Policy, tell func(upkeep.Done)) (upkeep.Done, error) {
	t, err := s.open(ctx, p)
	if err != nil {
		return upkeep.Done{}, err
	}
	defer t.session.Close()
	return s.pass(ctx, t, tell)
}

// guarded is the connection that marks. It looks at the table and its publications once more
// between the naming of rows and their marks: a row that was written after a change of the
// publication is in no stream, although the slot has passed it.
type guarded struct {
	*maintenance.Session
	service *Service
	found   *found
}

func (g *guarded) Act(ctx context.Context, rows []proof.Row) (int, error) {
	f := g.found
	survey, err := g.service.Survey(ctx, f.policy.Table, nil)
	if err != nil {
		return 0, err
	}
	if refused := f.policy.refusals(survey, f.updates, f.setting, f.Index); len(refused) > 0 {
		return 0, errors.Join(refused...)
	}
	return g.Session.Act(ctx, rows)
}

// lookAgain is how long the way to the rows is taken for the best one beside a relay: the column,
// the index and the order. guarded looks more often at what decides whether a row is delivered.
const lookAgain = time.Minute

// worker marks beside a relay, each second or so. Between its passes it keeps the connection.
type worker struct {
	*Service
	policy *Policy
	table  *table
}

func (w *worker) Once(ctx context.Context, _ int, tell func(upkeep.Done)) (done upkeep.Done, err error) {
	if w.table != nil && time.Since(w.table.since) > lookAgain {
		w.forget()
	}
	if w.table == nil {
		if w.table, err = w.open(ctx, w.policy); err != nil {
			return done, err
		}
	}
	if done, err = w.pass(ctx, w.table, tell); err != nil {
		w.forget()
	}
	return done, err
}

func (w *worker) forget() {
	if w.table != nil {
		w.table.session.Close()
		w.table = nil
	}
}

// Close ends all connections.
func (w *worker) Close() {
	w.forget()
	w.Service.Close()
}

// Beside is the work beside a relay, for one table.
func Beside(p Policy, cfg upkeep.Config, log zerolog.Logger) upkeep.Beside {
	return upkeep.Beside{
		Job: "mark", Every: p.Every, Tables: []upkeep.Table{{Name: p.Table.String(), Then: p.Column}},
		Open: func(ctx context.Context) (upkeep.Worker, error) {
			s, err := Open(ctx, cfg, log)
			if err != nil {
				return nil, err
			}
			return &worker{Service: s, policy: &p}, nil
		},
	}
}

// Tables are the policies that set a mark, or those of them that have a name.
func Tables(all []Policy, name string) ([]Policy, error) {
	marking := slices.DeleteFunc(slices.Clone(all), func(p Policy) bool { return p.Column == "" })
	return upkeep.Select(marking, name, "mark", func(p *Policy) *upkeep.Target { return &p.Target })
}
