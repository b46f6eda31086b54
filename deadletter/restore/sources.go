package restore

import (
	"context"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
)

// Sources distinguishes the sources of the configured database and slot, or of the slot's shards,
// from others. One goroutine uses it.
type Sources struct {
	cfg      postgres.Config
	system   string // identifier of the configured database cluster; empty: not asked for yet
	database string // OID of the configured database; known with system
}

// NewSources asks nobody; see Identify.
func NewSources(cfg postgres.Config) *Sources { return &Sources{cfg: cfg} }

// Identify asks PostgreSQL, once, which database of which cluster the configuration reads.
func (s *Sources) Identify(ctx context.Context) (err error) {
	if s.system == "" {
		s.system, s.database, err = catalog.Identity(ctx, s.cfg)
	}
	return err
}

// Own reports whether a source is of the configuration. Before Identify none is.
func (s *Sources) Own(source string) bool {
	system, database, slot := deadletter.SplitSource(source)
	return s.system != "" && system == s.system && database == s.database && s.cfg.OwnSlot(slot)
}

// mayOwn reports whether a source of the tasks has the name of an own slot.
func (s *Sources) mayOwn(tasks []deadletter.Task) bool {
	return slices.ContainsFunc(tasks, func(task deadletter.Task) bool {
		_, _, slot := deadletter.SplitSource(task.Entries[0].Source)
		return s.cfg.OwnSlot(slot)
	})
}

// Claim locks the own slots whose dead letters are in tasks, so that a redrive is alone with
// them, and has them read again: what another redrive did until then is known by now. The
// context that it returns ends when a lock is lost; release gives the locks back. There is no
// lock for dead letters of other sources.
func (s *Sources) Claim(ctx context.Context, read func(context.Context) error, tasks func() []deadletter.Task) (guarded context.Context, release func(), err error) {
	slots, err := s.slots(ctx, tasks())
	if err != nil || len(slots) == 0 {
		return ctx, func() {}, err
	}
	x, err := watch.OpenExclusion(ctx, s.cfg, s.system)
	if err != nil {
		return ctx, nil, unlocked(err)
	}
	for len(slots) > 0 {
		for _, slot := range slots {
			if err := x.Take(ctx, slot); err != nil {
				x.Close()
				return ctx, nil, unlocked(err)
			}
		}
		if err = read(ctx); err == nil {
			slots, err = s.slots(ctx, tasks())
		}
		if err != nil {
			x.Close()
			return ctx, nil, err
		}
		slots = slices.DeleteFunc(slots, x.Holds)
	}
	guarded, release = x.Watch(ctx)
	return guarded, release, nil
}

// slots are those of the tasks' dead letters that the configured database has. It is asked
// who it is only where a slot's name could be ours.
func (s *Sources) slots(ctx context.Context, tasks []deadletter.Task) (slots []string, err error) {
	for _, task := range tasks {
		source := task.Entries[0].Source
		_, _, slot := deadletter.SplitSource(source)
		if slices.Contains(slots, slot) || !s.cfg.OwnSlot(slot) {
			continue
		}
		if err := s.Identify(ctx); err != nil {
			return nil, unlocked(err)
		}
		if s.Own(source) {
			slots = append(slots, slot)
		}
	}
	return slots, nil
}

// unlocked adds what a redrive needs PostgreSQL for. A lock that somebody else has, or that
// cannot be taken there, is for a person.
func unlocked(err error) error {
	if postgres.KindOf(err) != fault.KindRetry {
		return &advice.Refused{Err: err}
	}
	return fmt.Errorf("%w; redrive takes a PostgreSQL lock so that only one runs for its source; if the server is gone for good and nobody else re-drives, use --source SYSTEM/DATABASE/SLOT and --without-lock", err)
}
