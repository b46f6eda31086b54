package marks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
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
	policy *Policy
	leaves []leaf // that have the rows: the table itself, or its partitions
}

// leaf is a table with rows.
type leaf struct {
	policy  *Policy // for this table
	survey  *maintenance.Survey
	updates *maintenance.Updates
	setting setting
	index   string                       // that leads to rows without a mark; empty: none
	order   string                       // of the index, as SQL
	rejects *maintenance.RejectedColumns // nil: rejected rows are not told from others
	byID    bool                         // rows are found by their event ids
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
	if f.Survey.MaySelect {
		if f.Identity, err = s.Identity(ctx, p.Index); err != nil {
			return err
		}
	}
	if f.Survey.Kind != "p" {
		return s.surveyLeaf(ctx, f, p, f.Survey)
	}
	f.Refused = append(f.Refused, p.Unsent(f.Survey)...)
	leaves, err := s.Surveyor.Leaves(ctx, f.Survey.OID)
	if err != nil {
		return err
	}
	for _, l := range leaves {
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
	survey, err := s.SurveyLeaf(ctx, l, nil)
	if err != nil {
		return err
	}
	if !survey.Permanent {
		f.LeaveAlone(l.Table)
		return nil
	}
	return s.surveyLeaf(ctx, f, f.policy.of(l.Table), survey)
}

// surveyLeaf looks at one table that has rows.
func (s *Service) surveyLeaf(ctx context.Context, f *found, p *Policy, survey *maintenance.Survey) (err error) {
	l := leaf{policy: p, survey: survey}
	// A row gets the default of the table that it is inserted into.
	if l.setting, err = p.setting(f.Survey.Columns); err != nil {
		return err
	}
	if l.updates, err = s.Surveyor.Updates(ctx, survey.OID, p.Column); err != nil {
		return err
	}
	if !survey.MaySelect {
		f.Refused, f.leaves = append(f.Refused, p.refusals(survey, l.updates, l.setting, "unknown")...), append(f.leaves, l)
		return nil
	}
	if err := s.findIndex(ctx, &l); err != nil {
		return err
	}
	if f.Survey == survey {
		f.Index = l.index
	}
	f.Refused = append(f.Refused, p.refusals(survey, l.updates, l.setting, l.index)...)
	if f.Identity.Known() {
		if l.byID, err = s.Surveyor.HasIndex(ctx, survey.OID, f.Identity.Column()); err != nil {
			return err
		}
	}
	l.rejects, err = s.rejects(ctx, f, &l)
	f.leaves = append(f.leaves, l)
	return err
}

// findIndex finds the index that leads to the rows without a mark, and the column that they are in the order
// of. While most rows lack one, a server may take an index of all rows for that order: it is as good then.
func (s *Service) findIndex(ctx context.Context, l *leaf) error {
	table, unmarked := l.policy.Table, l.setting.unmarked
	leads, err := s.Surveyor.IndexTo(ctx, table, unmarked)
	if err != nil {
		return err
	}
	for _, index := range l.updates.Indexes {
		for _, column := range index.Columns {
			name, err := s.Surveyor.Index(ctx, maintenance.Work{Table: table, Where: unmarked, Order: column, Limit: 1}, l.survey.OID)
			if err != nil {
				return err
			}
			if name == index.Name || name != "" && leads == index.Name {
				l.index, l.order = index.Name, column
				return nil
			}
		}
	}
	return nil
}

func (f *found) partitioned() bool { return f.Survey.Kind == "p" }

func (f *found) work(l *leaf, limits *upkeep.Limits) maintenance.Work {
	w := maintenance.Work{
		Table: l.policy.Table, Root: f.Survey.OID, ID: f.Identity.SQL(), Where: l.setting.unmarked, Order: l.order, Set: l.setting.set,
		Limit: limits.Batch(), Tied: limits.Ahead(), Lock: maintenance.MarkLockClass,
	}
	if l.byID {
		w.IsSet = l.setting.marked
	}
	return w
}

func (s *Service) limits(p *Policy) *upkeep.Limits {
	l := s.Limits
	l.BatchRows = p.BatchRows
	return &l
}

// table is one that is being marked.
type table struct {
	limits *upkeep.Limits
	found  *found
	since  time.Time
	parts  []*part
}

// part is one table with rows: its connection, and the proof of its rows.
type part struct {
	*leaf
	session *maintenance.Session // nil: not open
	prover  *proof.Prover
	records *records.Table
	said    map[deadletter.Location]bool // letters whose rows were looked at
	missed  []string                     // ids of rows that were changed or locked before the last pass could mark them
}

func (p *part) close() {
	if p.session != nil {
		p.session.Close()
		p.session = nil
	}
}

func (t *table) close() {
	for _, p := range t.parts {
		p.close()
	}
}

func (s *Service) open(ctx context.Context, p *Policy) (*table, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(f.Refused) > 0 {
		return nil, errors.Join(f.Refused...)
	}
	t := &table{limits: s.limits(p), found: f, since: time.Now()}
	ready := s.Prover(p.Table, f.Survey.OID, f.Identity, true, nil)
	if err := s.Ready(ctx, ready, s.Surveyor); err != nil { // also where there is no row to mark
		return nil, err
	}
	for i := range f.leaves {
		l := &f.leaves[i]
		prover := s.Prover(p.Table, f.Survey.OID, f.Identity, true, func(ctx context.Context) error { return s.sent(ctx, f, l) })
		t.parts = append(t.parts, &part{leaf: l, prover: prover, records: s.Records(p.Table, f.Survey.OID, f.Identity), said: make(map[deadletter.Location]bool)})
	}
	return t, nil
}

// age is the column that says when a row was written; empty: none does.
func (l *leaf) age() string {
	name := written(l.survey.Columns, l.policy.Column)
	for _, c := range l.survey.Columns {
		if c.Name == name && kind(c) == instant {
			return name
		}
	}
	return ""
}

// pass marks what is delivered by now and has no mark.
func (s *Service) pass(ctx context.Context, t *table, tell func(upkeep.Done)) (done upkeep.Done, err error) {
	for _, p := range t.parts {
		before := done
		did, err := s.due(ctx, t, p, func(d upkeep.Done) { tell(before.With(d)) })
		if done = before.With(did); err != nil {
			if s.Left(ctx, t.found.Survey.OID, p.survey.OID) {
				t.since = time.Time{} // look at the table again
				continue
			}
			return done, err
		}
	}
	return done, t.found.LeftAlone()
}

// due marks in one table with rows, and opens no connection to a partition in which nothing is due, and
// no row was missed.
func (s *Service) due(ctx context.Context, t *table, p *part, tell func(upkeep.Done)) (done upkeep.Done, err error) {
	if t.found.partitioned() {
		due, err := s.Surveyor.Exists(ctx, p.policy.Table, p.setting.unmarked)
		if err != nil || !due && len(p.missed) == 0 {
			return done, err
		}
	}
	return s.part(ctx, t, p, tell)
}

func (s *Service) part(ctx context.Context, t *table, p *part, tell func(upkeep.Done)) (done upkeep.Done, err error) {
	if p.session == nil {
		if p.session, err = s.Session(ctx, t.found.work(p.leaf, t.limits), p.survey.OID); err != nil {
			return done, err
		}
	}
	if t.found.partitioned() {
		defer p.close() // a connection for each partition would be too many
	}
	others := p.markedByOthers(ctx) // whoever had locked them may have committed by now
	done, err = upkeep.NewJob(p.session, t.limits, false).Run(ctx, p.prover, tell)
	p.missed = p.session.Missed()
	done.Others = others + p.markedByOthers(ctx)
	if err == nil {
		done.Rejected, err = s.reject(ctx, t, p)
	}
	if age := p.age(); err == nil && age != "" && done.Rows+done.Held+done.Passed > 0 { // that it is not known is no failure
		i := slices.IndexFunc(p.survey.Columns, func(c maintenance.Column) bool { return c.Name == age })
		done.Oldest, _ = s.Surveyor.Oldest(ctx, p.policy.Table, upkeep.Now(p.survey.Columns[i]), wal.QuoteIdentifier(age), p.setting.unmarked, p.index != "")
	}
	return done, err
}

// markedByOthers counts those of the missed rows that have a mark, and keeps the others for the next
// pass. That it is not known is no failure.
func (p *part) markedByOthers(ctx context.Context) int {
	marked, rest, err := p.session.Marked(ctx, p.missed)
	if err != nil {
		return 0
	}
	p.missed = rest
	return len(marked)
}

// Once marks what is delivered and has no mark, and ends.
func (s *Service) Once(ctx context.Context, p *Policy, tell func(upkeep.Done)) (upkeep.Done, error) {
	t, err := s.open(ctx, p)
	if err != nil {
		return upkeep.Done{}, err
	}
	defer t.close()
	return s.pass(ctx, t, tell)
}

// sent looks at a table and its publications once more, between the proof of rows and their marks: a
// row that was written after a change of the publication is in no stream, although the slot has
// passed it.
func (s *Service) sent(ctx context.Context, f *found, l *leaf) error {
	if f.partitioned() { // the publication has the root
		if err := s.Sent(ctx, &f.policy.Target, f.Survey.OID); err != nil {
			return err
		}
	}
	survey, err := s.Survey(ctx, l.policy.Table, nil)
	if err != nil {
		return err
	}
	return errors.Join(l.policy.refusals(survey, l.updates, l.setting, l.index)...)
}

// lookAgain is how long the way to the rows is taken for the best one beside a relay: the column,
// the index and the order. sent looks more often at what decides whether a row is delivered.
const lookAgain = time.Minute

// worker marks beside a relay, each second or so. Between its passes it keeps the connection.
type worker struct {
	*Service
	policy *Policy
	table  *table
}

func (w *worker) Once(ctx context.Context, _ int, tell func(upkeep.Done)) (done upkeep.Done, err error) {
	missed := make(map[uint32][]string)
	if w.table != nil && time.Since(w.table.since) > lookAgain {
		for _, p := range w.table.parts {
			missed[p.survey.OID] = p.missed
		}
		w.forget()
	}
	if w.table == nil {
		if w.table, err = w.open(ctx, w.policy); err != nil {
			return done, err
		}
		for _, p := range w.table.parts {
			p.missed = missed[p.survey.OID]
		}
	}
	if done, err = w.pass(ctx, w.table, tell); !upkeep.Complete(err) {
		w.forget()
	}
	return done, err
}

func (w *worker) forget() {
	if w.table != nil {
		w.table.close()
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
