package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/records"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/rs/zerolog"
)

// Config is what a Service works with.
type Config struct {
	Relay  relay.Config
	Server postgres.Config // of the connections that look at tables and delete
	Limits Limits
}

// Service plans and does retention. One goroutine uses it.
type Service struct {
	cfg      Config
	reader   *records.Reader
	surveyor *maintenance.Surveyor
	finder   *sample.Finder
	routes   *router.Router
}

// Open connects to PostgreSQL and begins to read the topics. The service is to be closed.
func Open(ctx context.Context, cfg Config, log zerolog.Logger) (s *Service, err error) {
	if !cfg.Relay.KeepsPositions() {
		return nil, &fault.Error{Reason: fault.ReasonConfiguration, Op: "prove rows delivered", Err: errors.New("the relay keeps no positions in Kafka"), Hint: "set relay.detect_moved_slot: true, or relay.guarantee: exactly_once"}
	}
	s = &Service{cfg: cfg}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.routes, err = router.New(cfg.Relay.Router); err != nil {
		return nil, err
	}
	if s.surveyor, err = maintenance.OpenSurvey(ctx, cfg.Server); err != nil {
		return nil, err
	}
	s.finder = sample.NewFinder(cfg.Relay.Replication)
	s.reader, err = records.Open(ctx, cfg.Relay, cfg.Limits.AlsoWaitFor, log)
	return s, err
}

// Close ends all connections.
func (s *Service) Close() {
	if s.reader != nil {
		s.reader.Close()
	}
	if s.finder != nil {
		s.finder.Close()
	}
	if s.surveyor != nil {
		s.surveyor.Close()
	}
}

// found is what was found out about one table.
type found struct {
	policy    *Policy
	survey    *maintenance.Survey
	by        maintenance.Column
	condition string
	index     string
	identity  identity
	refused   []error
}

// inspect finds out what stands in the way. Refusals are part of what is found; an error is of a
// server that does not answer.
func (s *Service) inspect(ctx context.Context, p *Policy) (*found, error) {
	f := &found{policy: p}
	var archive *wal.Table
	if p.Then == Archive {
		archive = &p.Archive
	}
	var publications []string
	for _, shard := range s.cfg.Relay.Replication.Shards() {
		publications = append(publications, shard.Publication)
	}
	err := s.survey(ctx, f, archive, publications)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.KindRefused {
		f.refused = append(f.refused, err)
		return f, nil
	}
	return f, err
}

func (s *Service) survey(ctx context.Context, f *found, archive *wal.Table, publications []string) (err error) {
	p := f.policy
	if f.survey, err = s.surveyor.Table(ctx, p.Table, archive, publications); err != nil {
		return err
	}
	if s.cfg.Relay.Replication.Shard.Divided() {
		f.survey.Filters = nil // each shard leaves out what another one sends
	}
	if err := p.unfit(f.survey); err != nil {
		return err
	}
	if f.by, err = p.age(f.survey); err != nil {
		return err
	}
	if !f.survey.MaySelect {
		f.refused = p.refusals(f.survey, "unknown")
		return nil
	}
	if p.Where != "" {
		if err := s.surveyor.Condition(ctx, p.Table, p.Where); err != nil {
			if e := postgres.Classify("look at table "+p.Table.String(), err); postgres.KindOf(e) == fault.KindRetry {
				return e
			}
			return p.mistake("where", "write one condition on the table's columns, with functions under the names of their schemas", "%s", fault.OneLine(err.Error()))
		}
	}
	f.condition = p.condition(f.by)
	if f.index, err = s.surveyor.Index(ctx, f.work(&s.cfg.Limits), f.survey.OID); err != nil {
		return err
	}
	if f.identity, err = s.identity(ctx, p); err != nil {
		return err
	}
	f.refused = p.refusals(f.survey, f.index)
	return nil
}

func (s *Service) identity(ctx context.Context, p *Policy) (identity, error) {
	relation, err := s.finder.Describe(ctx, p.Index)
	if err != nil {
		return identity{}, err
	}
	explained, err := s.routes.Check(relation)
	if err != nil {
		return identity{}, err
	}
	return identify(&s.cfg.Relay.Router.Mappings[p.Index], explained, relation), nil
}

// work is what the connection has to select and do.
func (f *found) work(limits *Limits) maintenance.Work {
	w := maintenance.Work{
		Table: f.policy.Table, ID: f.identity.sql(), Where: f.condition, Order: wal.QuoteIdentifier(f.by.Name),
		Limit: limits.named(), Waits: !f.survey.MayLock,
	}
	if f.policy.Then == Archive && f.survey.Archive != nil {
		if columns, err := archived(f.survey); err == nil {
			w.Archive = &maintenance.Archive{Table: f.policy.Archive, Columns: columns}
		}
	}
	return w
}

func (s *Service) prover(f *found) *proof.Prover {
	l := &s.cfg.Limits
	return proof.New(proof.Config{
		Table: f.survey.OID, Slots: s.reader.Slots(), Others: l.AlsoWaitFor, Positions: s.reader.Positions(),
		Skipped: s.cfg.Relay.OnReject == relay.SkipOnReject, SkippedAreDelivered: l.SkippedAreDelivered, Wait: l.Wait,
	}, s.table(f))
}

func (s *Service) table(f *found) *records.Table {
	return &records.Table{Reader: s.reader, Table: f.policy.Table, OID: f.survey.OID, ByID: f.identity.column != ""}
}

// Once does what is due in one table and ends. On an error some rows may be done, which Done
// counts.
func (s *Service) Once(ctx context.Context, p *Policy, tell func(Done)) (Done, error) {
	f, err := s.inspect(ctx, p)
	if err != nil {
		return Done{}, err
	}
	if len(f.refused) > 0 {
		return Done{}, errors.Join(f.refused...)
	}
	work := f.work(&s.cfg.Limits)
	if f.index == "" {
		work.Order = ""
	}
	session, err := maintenance.Open(ctx, s.cfg.Server, work)
	if err != nil {
		return Done{}, err
	}
	defer session.Close()
	if session.OID() != f.survey.OID {
		return Done{}, &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonTableChanged, Op: "look at", Subject: "table " + p.Table.String(), Err: errors.New("another one took its name just now")}
	}
	if err := s.reader.Identify(ctx); err != nil { // the forks, as they are now
		return Done{}, err
	}
	prover := s.prover(f)
	if err := prover.Ready(ctx, session); err != nil { // also where nothing is due
		return Done{}, err
	}
	return newJob(session, &s.cfg.Limits, !f.survey.MayLock).run(ctx, prover, tell)
}

// Tables are the policies that do something, or those of them that have a name.
func Tables(all []Policy, name string) ([]Policy, error) {
	selected := slices.DeleteFunc(slices.Clone(all), func(p Policy) bool { return p.Then == None })
	if name == "" {
		return selected, nil
	}
	table, err := wal.ParseTable(name)
	if err != nil {
		return nil, fmt.Errorf("--table: %w", err)
	}
	selected = slices.DeleteFunc(selected, func(p Policy) bool { return p.Table != table })
	if len(selected) == 0 {
		return nil, fmt.Errorf("--table: the configuration has no retention for %s", table)
	}
	return selected, nil
}
