package upkeep

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/upkeep/records"
	"github.com/rs/zerolog"
)

// Config is what a Service works with.
type Config struct {
	Relay  relay.Config
	Server postgres.Config // of the connections that look at tables and work on them
	Limits Limits

	// Readers are those of the process: its jobs read the topics together. nil: this one alone does.
	Readers *Readers
}

// Service has the connections that looking and proving need. One goroutine uses it.
type Service struct {
	Config
	Reader   *records.Reader
	Surveyor *maintenance.Surveyor
	routes   *router.Router
	release  func()
	members  map[uint32]membership // by table
}

// membership is how a table was in the publications when it was last looked at.
type membership struct {
	in      map[string]string // by publication
	changed time.Time         // when it was seen to be another one than before
}

// changePatience is how long a table is left alone whose publication changed: the relay looks
// every few seconds, and then records that rows may be missing from its stream.
const changePatience = 30 * time.Second

// changed reports whether a table was taken out of a publication, or put in, a while ago.
func (s *Service) changed(t *maintenance.Survey, now time.Time) bool {
	if s.members == nil {
		s.members = make(map[uint32]membership)
	}
	last, known := s.members[t.OID]
	if known && !maps.Equal(last.in, t.Published) {
		last.changed = now
	}
	s.members[t.OID] = membership{t.Published, last.changed}
	return !last.changed.IsZero() && now.Sub(last.changed) < changePatience
}

// Open connects to PostgreSQL and begins to read the topics. The service is to be closed.
func Open(ctx context.Context, cfg Config, log zerolog.Logger) (_ *Service, err error) {
	if !cfg.Relay.KeepsPositions() {
		return nil, &fault.Error{Reason: fault.ReasonConfiguration, Op: "prove rows delivered", Err: errors.New("the relay keeps no positions in Kafka"), Hint: "set relay.detect_moved_slot: true, or relay.guarantee: exactly_once"}
	}
	s := &Service{Config: cfg}
	defer func() {
		if err != nil {
			s.Close() // what was opened so far
		}
	}()
	if s.routes, err = router.New(cfg.Relay.Router); err != nil {
		return nil, err
	}
	if s.Surveyor, err = maintenance.OpenSurvey(ctx, cfg.Server); err != nil {
		return nil, err
	}
	readers := cfg.Readers
	if readers == nil {
		readers = new(Readers)
	}
	if s.Reader, s.release, err = readers.take(ctx, &s.Config, log); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends all connections.
func (s *Service) Close() {
	if s.release != nil {
		s.release()
	}
	if s.Surveyor != nil {
		s.Surveyor.Close()
	}
}

// Publications are those of the configuration: one, or that of each shard.
func (s *Service) Publications() (names []string) {
	for _, shard := range s.Relay.Replication.Shards() {
		names = append(names, shard.Publication)
	}
	return names
}

// Survey looks at a table. archive is the one that its rows are to go to, or nil.
func (s *Service) Survey(ctx context.Context, table wal.Table, archive *wal.Table) (*maintenance.Survey, error) {
	survey, err := s.Surveyor.Table(ctx, table, archive, s.Publications())
	if err != nil {
		return nil, err
	}
	return survey, s.judge(ctx, survey)
}

// SurveyLeaf looks at a partition, and fails where another table has its name by now.
func (s *Service) SurveyLeaf(ctx context.Context, leaf maintenance.Leaf, archive *wal.Table) (*maintenance.Survey, error) {
	survey, err := s.Survey(ctx, leaf.Table, archive)
	if err == nil && survey.OID != leaf.OID {
		err = replaced(leaf.Table)
	}
	return survey, err
}

// replaced is a table that is not the one which was looked at.
func replaced(table wal.Table) error {
	return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonTableChanged, Op: "look at", Subject: "table " + table.String(), Err: errors.New("another one took its name just now")}
}

func (s *Service) judge(ctx context.Context, survey *maintenance.Survey) (err error) {
	if s.Relay.Replication.Shard.Divided() {
		survey.Filters = nil // each shard leaves out what another one sends
	}
	survey.Changed = s.changed(survey, time.Now())
	ended := uint64(math.MaxUint64) // when the first of the records was written
	for _, shard := range s.Relay.Replication.Shards() {
		then, known := s.Reader.Known(ctx, shard.Slot, survey.OID)
		if !known {
			continue
		}
		if ended = min(ended, then.Ended); then.Published != "" && then.Published != survey.Published[shard.Publication] {
			survey.LeftOut = append(survey.LeftOut, shard.Publication)
		}
	}
	if ended < math.MaxUint64 {
		survey.Attached, survey.Rewritten, err = s.Surveyor.Unsent(ctx, survey.OID, ended, s.Publications())
	}
	return err
}

// Left reports whether a table that failed is no partition of the root any more: somebody has dropped or
// detached it, and the others are none the worse for it.
func (s *Service) Left(ctx context.Context, root, table uint32) bool {
	if root == table {
		return false
	}
	has, err := s.Surveyor.IsPartition(ctx, root, table)
	return err == nil && !has
}

// Sent fails if rows of a table may be in no stream. It is to be asked between the proof of rows
// and what is done to them: a row that was written while the publication did not have the table
// is not sent, although the slots pass it.
func (s *Service) Sent(ctx context.Context, t *Target, oid uint32) error {
	survey, err := s.Surveyor.SurveyPublished(ctx, oid, s.Publications())
	if err != nil {
		return err
	}
	if err := s.judge(ctx, survey); err != nil {
		return err
	}
	return errors.Join(t.Unsent(survey)...)
}

// Identity looks at how the rows of a table and their dead letters are matched. index is that of
// the table in the relay's configuration.
func (s *Service) Identity(ctx context.Context, index int) (Identity, error) {
	finder := sample.NewFinder(s.Relay.Replication) // asked now and then, so the connection is not kept
	defer finder.Close()
	relation, err := finder.Describe(ctx, index)
	if err != nil {
		return Identity{}, err
	}
	explained, err := s.routes.Pin(relation)
	if err != nil {
		return Identity{}, err
	}
	return identify(explained.ID, relation), nil
}

// Root is a table under the name by which the relay sends its rows.
type Root struct {
	Table wal.Table
	OID   uint32
}

// Prover proves the rows of a table delivered.
//
// discarded: rows whose dead letters were discarded are not delivered, and left like those of
// letters that wait. Otherwise they are done with. sent is proof.Config's.
func (s *Service) Prover(table wal.Table, oid uint32, id Identity, discarded bool, sent func(context.Context) error) *proof.Prover {
	l, kept := &s.Limits, s.Records(table, oid, id)
	kept.Discarded = discarded
	return proof.New(proof.Config{
		Table: oid, Slots: s.Reader.Slots(), Others: l.AlsoWaitFor, Positions: s.Reader.Positions(),
		Skipped: s.Relay.OnReject == relay.SkipOnReject, SkippedAreDelivered: l.SkippedAreDelivered, Wait: l.Wait, Sent: sent,
	}, kept)
}

// Records are what the brokers keep of a table.
func (s *Service) Records(table wal.Table, oid uint32, id Identity) *records.Table {
	return &records.Table{Reader: s.Reader, Table: table, OID: oid, ID: id.id}
}

// Ready is that of a prover. A slot of ours that is not there may be one that a backfill or a cutover makes in the end.
func (s *Service) Ready(ctx context.Context, prover *proof.Prover, on proof.Looker) error {
	err := prover.Ready(ctx, on)
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || !slices.ContainsFunc(s.Reader.Slots(), func(name string) bool { return e.Subject == postgres.SlotSubject(name) }) {
		return err
	}
	return s.Surveyor.ExplainMissing(ctx, s.Relay.Replication, err)
}

// Task is work on the rows of one table.
type Task struct {
	maintenance.Work
	OID      uint32 // of the table as it was looked at
	Root     Root   // the table that is streamed, which has the other one as a partition or is it
	Identity Identity
	Sent     func(context.Context) error // proof.Config's

	// Before is asked for each batch that is proven, and returns those of the rows that the work
	// may be done on. nil: all.
	Before func(ctx context.Context, session *maintenance.Session, rows []proof.Row) ([]proof.Row, error)
}

// Once does work on all rows of a table that it selects and that are proven, and ends. On an
// error some rows may be done, which Done counts.
func (s *Service) Once(ctx context.Context, task *Task, tell func(Done)) (Done, error) {
	session, err := s.Session(ctx, task.Work, task.OID)
	if err != nil {
		return Done{}, err
	}
	defer session.Close()
	prover := s.Prover(task.Root.Table, task.Root.OID, task.Identity, false, task.Sent)
	if err := s.Ready(ctx, prover, session); err != nil { // also where nothing is due
		return Done{}, err
	}
	job := NewJob(session, &s.Limits, task.Waits)
	if task.Before != nil {
		job.before = func(ctx context.Context, rows []proof.Row) ([]proof.Row, error) {
			return task.Before(ctx, session, rows)
		}
	}
	return job.Run(ctx, prover, tell)
}

// Session opens the connection of a proof, to the table that was looked at.
func (s *Service) Session(ctx context.Context, work maintenance.Work, oid uint32) (*maintenance.Session, error) {
	session, err := maintenance.Open(ctx, s.Server, work)
	if err != nil {
		return nil, err
	}
	if err := s.same(ctx, session, work.Table, oid); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// OpenRoot opens the connection that makes and removes partitions of the table that was looked at.
func (s *Service) OpenRoot(ctx context.Context, root Root, id Identity) (*maintenance.Root, error) {
	session, err := maintenance.OpenRoot(ctx, s.Server, root.Table, id.SQL())
	if err != nil {
		return nil, err
	}
	if err := s.same(ctx, session.Session, root.Table, root.OID); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// same requires a connection to be to the table that was looked at, and reads the forks as they are now.
func (s *Service) same(ctx context.Context, session *maintenance.Session, table wal.Table, oid uint32) error {
	if session.OID() != oid {
		return replaced(table)
	}
	return s.Reader.Identify(ctx)
}
