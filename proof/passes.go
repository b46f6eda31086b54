package proof

import (
	"context"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Passes are passes over one table that overlap: while the rows of one wait for the slots, those of
// the next ones are named. Each step of all of them is on one session, and they end with it.
type Passes struct {
	*Prover
	session Session
	ahead   int // rows that wait, at most, and those of the batch that reaches it

	batches []*batch // the oldest first
	rows    int      // of all of them
	ended   bool     // the session has named the last row
	looked  time.Time
	checked time.Time
}

// batch is rows that were named together.
type batch struct {
	rows   []Row
	fence  wal.LSN // of Session.Name
	wait   wait
	proven bool
	free   []Row // of the rows that are proven, those that no letter waits for
}

// checkAgain is for how long Config.Sent counts for what was proven before it was asked.
const checkAgain = time.Second

// Passes begins passes that have ahead rows wait for the slots. One batch waits, whatever its size.
func (p *Prover) Passes(s Session, ahead int) *Passes {
	return &Passes{Prover: p, session: s, ahead: ahead}
}

// Next waits until the oldest batch is proven, and acts on it. At the end of the table it names no
// row, once, and begins again. On an error nothing was done to the batch, unless the error is that
// of Session.Act, and the others are given up. Errors that a person or the relay has to end are
// *fault.Error with one of the reasons of package fault.
func (p *Passes) Next(ctx context.Context) (Outcome, error) {
	if err := p.cfg.refuseSkipped(); err != nil {
		return Outcome{}, err
	}
	for {
		named, err := p.name(ctx, p.session)
		switch {
		case err != nil:
			return Outcome{}, err
		case len(p.batches) == 0:
			p.ended = false
			return Outcome{}, nil
		case p.batches[0].proven:
			return p.act(ctx, p.session)
		case named && time.Since(p.looked) < p.cfg.Poll:
			continue
		}
		if err := p.prove(ctx); err != nil {
			return Outcome{Named: len(p.batches[0].rows)}, err
		}
	}
}

// name names one more batch, if there is one and enough do not wait yet.
func (p *Passes) name(ctx context.Context, s Session) (bool, error) {
	if p.ended || p.rows > 0 && p.rows >= p.ahead {
		return false, nil
	}
	rows, fence, err := s.Name(ctx)
	if err != nil || len(rows) == 0 {
		p.ended = true
		return false, err
	}
	p.batches = append(p.batches, &batch{rows: rows, fence: fence})
	p.rows += len(rows)
	return true, nil
}

// prove asks for the slots, and proves the batches whose fences all of them have passed. What the
// brokers keep is read after that, and counts for no batch that is named later.
func (p *Passes) prove(ctx context.Context) error {
	if err := sleep(ctx, p.cfg.Poll-time.Since(p.looked)); err != nil {
		return err
	}
	first := p.batches[0]
	slots, passed, err := p.pollSlots(ctx, p.session, first.fence, &first.wait)
	p.looked = time.Now()
	if first.wait.nudged { // the others were named before that
		for _, b := range p.batches {
			b.wait.nudged = true
		}
	}
	if err != nil || !passed {
		return err
	}
	waiting, err := p.readKept(ctx, p.session, slots)
	if err != nil {
		return err
	}
	p.checked = time.Time{}
	names := p.cfg.all()
	for _, b := range p.batches {
		if behind, err := slotsUsable(names, slots, b.fence); behind != nil || err != nil {
			return err // of a later batch: its turn comes
		}
		b.proven, b.free = true, waiting.without(b.rows)
	}
	return nil
}

func (p *Passes) act(ctx context.Context, s Session) (out Outcome, err error) {
	b := p.batches[0]
	free := b.free
	out = Outcome{Named: len(b.rows), Held: len(b.rows) - len(free)}
	p.batches, p.rows = slices.Delete(p.batches, 0, 1), p.rows-len(b.rows)
	if len(free) == 0 {
		return out, nil
	}
	if err := p.check(ctx); err != nil {
		return out, err
	}
	out.Acted, err = s.Act(ctx, free)
	return out, err
}

// check asks whether the rows were sent, unless that was asked just now and after they were proven.
func (p *Passes) check(ctx context.Context) error {
	if p.cfg.Sent == nil || time.Since(p.checked) < checkAgain {
		return nil
	}
	err := p.cfg.Sent(ctx)
	p.checked = time.Now()
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
