package proof

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Session is one connection to the primary. Once the connection is lost, every method fails:
// a session that is opened in its place is another one.
type Session interface {
	// Lineage is that of the server, as the connection was opened.
	Lineage() wal.Lineage

	// Name selects versions that are committed, in a transaction of its own. After that it reads the
	// fence: the insert position of the WAL, without the header of a page that holds nothing. No rows:
	// there is nothing to do.
	Name(ctx context.Context) (rows []Row, fence wal.LSN, err error)

	// Slots shows those of the names that exist.
	Slots(ctx context.Context, names []string) ([]Slot, error)

	// Fence is the end of the WAL, as Name has it.
	Fence(ctx context.Context) (wal.LSN, error)

	// Nudge commits a transaction that writes no row. The flush position of a quiet server
	// reaches the insert position then.
	Nudge(ctx context.Context) error

	// Act does its work on those of the versions that still exist and that nobody has
	// locked, and returns how many.
	Act(ctx context.Context, rows []Row) (int, error)
}

// Records reads what the brokers keep.
type Records interface {
	// Kept reads the topic up to where it ends at the call.
	Kept(ctx context.Context, slots []Slot) (*Kept, error)

	// Waiting reads the dead letters up to where their topic ends at the call.
	Waiting(ctx context.Context) (Waiting, error)
}

// Config is about one table.
type Config struct {
	Table     uint32      // OID, of a partitioned table that of its root
	Slots     []string    // of the configuration: one, or that of each shard
	Others    []string    // slots of other pipelines on the table; their positions are believed, unless rows before them are unsent
	Positions stored.Kind // that the relay keeps

	// Skipped: rows that were rejected are left out (relay.on_reject: skip), and nobody knows
	// which. They are taken for delivered when SkippedAreDelivered. That rows were left out
	// under an earlier configuration shows nowhere, nor that the relay ran for a while without
	// this table: whoever uses a Prover takes the record of what lies before the slot back then
	// (stored.BeforeUnknown).
	Skipped             bool
	SkippedAreDelivered bool

	// Sent is asked between the proof of rows and what is done to them: whether rows of the table
	// may be in no stream, although the slots have passed them. nil: nobody is asked.
	Sent func(context.Context) error

	Wait       time.Duration // for the slots; 60s
	Poll       time.Duration // between two looks at them; 100ms
	NudgeAfter time.Duration // of waiting; 200ms
}

// all are the slots that every row has to have passed.
func (c *Config) all() []string { return slices.Concat(c.Slots, c.Others) }

const (
	defaultWait       = time.Minute
	defaultPoll       = 100 * time.Millisecond
	defaultNudgeAfter = 200 * time.Millisecond
)

// Outcome counts the rows of a pass.
type Outcome struct {
	Named int
	Held  int // whose dead letter waits
	Acted int // others were updated, deleted or locked meanwhile
}

// Prover runs passes over one table.
type Prover struct {
	cfg     Config
	records Records
}

// New checks nothing: a configuration that proves nothing fails each pass.
func New(cfg Config, records Records) *Prover {
	if cfg.Wait <= 0 {
		cfg.Wait = defaultWait
	}
	if cfg.Poll <= 0 {
		cfg.Poll = defaultPoll
	}
	if cfg.NudgeAfter <= 0 {
		cfg.NudgeAfter = defaultNudgeAfter
	}
	return &Prover{cfg, records}
}

// Pass proves one batch and acts on it, as Passes.Next does.
func (p *Prover) Pass(ctx context.Context, s Session) (Outcome, error) {
	return p.Passes(s, 0).Next(ctx)
}

// readKept reads what the brokers keep, after the slots: a relay at work moves the checkpoint topic
// first, and a letter is acknowledged before a slot passes its row.
func (p *Prover) readKept(ctx context.Context, s Looker, slots []Slot) (Waiting, error) {
	kept, err := p.records.Kept(ctx, slots)
	if err != nil {
		return Waiting{}, err
	}
	end, err := s.Fence(ctx) // after the positions: whoever streams records none beyond it
	if err != nil {
		return Waiting{}, err
	}
	if err := p.cfg.checkKept(s.Lineage(), slots, kept, end); err != nil {
		return Waiting{}, err
	}
	waiting, err := p.records.Waiting(ctx)
	if err != nil {
		return Waiting{}, err
	}
	return waiting, waiting.full()
}

// Looker is what Ready has to see of a server.
type Looker interface {
	Lineage() wal.Lineage
	Slots(ctx context.Context, names []string) ([]Slot, error)
	Fence(ctx context.Context) (wal.LSN, error)
}

// Ready explains why passes would do nothing, as far as that does not depend on the rows; nil when
// nothing is in the way. It waits for no slot.
func (p *Prover) Ready(ctx context.Context, s Looker) error {
	if err := p.cfg.refuseSkipped(); err != nil {
		return err
	}
	names := p.cfg.all()
	slots, err := s.Slots(ctx, names)
	if err != nil {
		return err
	}
	if _, err := slotsUsable(names, slots, 0); err != nil {
		return err
	}
	_, err = p.readKept(ctx, s, slots)
	return err
}

// Waiter is what Await has to see and do of a server.
type Waiter interface {
	Slots(ctx context.Context, names []string) ([]Slot, error)
	Nudge(ctx context.Context) error
}

// Await returns the slots as they stood when the last of them was past the fence.
func (p *Prover) Await(ctx context.Context, s Waiter, fence wal.LSN) ([]Slot, error) {
	var waited wait
	for pause := time.Duration(0); ; pause = p.cfg.Poll {
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
		slots, passed, err := p.pollSlots(ctx, s, fence, &waited)
		if err != nil || passed {
			return slots, err
		}
	}
}

// wait is one for the slots.
type wait struct {
	began  time.Time // zero: not yet
	nudged bool
}

// pollSlots looks at the slots once, and reports whether all are past the fence. It fails when the wait
// has taken too long, and nudges a server whose slots get no further by themselves.
func (p *Prover) pollSlots(ctx context.Context, s Waiter, fence wal.LSN, w *wait) (slots []Slot, passed bool, err error) {
	if w.began.IsZero() {
		w.began = time.Now()
	}
	names := p.cfg.all()
	if slots, err = s.Slots(ctx, names); err != nil {
		return nil, false, err
	}
	behind, err := slotsUsable(names, slots, fence)
	if err != nil {
		return nil, false, err
	}
	if behind == nil {
		return slots, true, nil
	}
	waited := time.Since(w.began)
	if waited >= p.cfg.Wait {
		return nil, false, &fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonSlotBehind, Op: "prove rows delivered", Subject: subject(behind.Name), LSN: behind.Confirmed,
			Err: fmt.Errorf("it did not reach %s, where the rows are, in time", fence), Hint: hintBehind(behind),
		}
	}
	if !w.nudged && behind.Active && waited >= p.cfg.NudgeAfter {
		w.nudged = true
		return nil, false, s.Nudge(ctx)
	}
	return nil, false, nil
}

func hintBehind(s *Slot) string {
	if !s.Active {
		return "nobody streams from it: start the relay; if it runs, it may be blocked: see `cdc-relay status`"
	}
	return ""
}
