package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// turn is what is done beside the stream for a few seconds. Turns follow each other within one
// measurement, so that whatever else the machine does falls on all kinds alike.
type turn int

const (
	alone   turn = iota // nothing
	proving             // the command works
	byHand              // its statements at its pace, without proof
	busy                // as much CPU time in a session of the server, at that pace, that touches no table
	turnKinds
)

// turnOrder has the turns of nothing in two groups: by how much those differ the machine does.
var turnOrder = []turn{alone, proving, busy, alone, byHand}

const (
	turnLength = 5 * time.Second
	turnSettle = 500 * time.Millisecond // of its beginning, which does not count: a command that was frozen makes up for 200 ms
	handPieces = 50                     // statements a second by hand
)

// spin takes 0.7 ms, as 100 rows by hand do. Beside it a delay shows what the processors are short of, and not what
// the work is.
const spin = "DO $$DECLARE till timestamptz := clock_timestamp() + interval '700 microseconds'; BEGIN WHILE clock_timestamp() < till LOOP END LOOP; END$$"

// turnCycles is how often the turns come: each kind of work gets the seconds of a measurement.
func turnCycles(seconds int) int { return max(1, (seconds+2)/5) }

// span is the part of a turn that counts.
type span struct {
	kind     turn
	group    int // half of turnOrder
	from, to time.Time
}

// turns are the delays of the stream, in milliseconds, and the rows that were written in a second,
// by what was done beside it.
type turns struct {
	delays, rates [turnKinds][]float64
	groups        [2]struct{ delays, rates []float64 } // those of nothing
	done          [turnKinds]int                       // rows that the work was done to
	server        [turnKinds]time.Duration             // CPU time of the sessions that did it
	command       time.Duration                        // CPU time of the command
	worked        [turnKinds]time.Duration
}

// work is what is done beside the stream. The command works all the time, and is frozen when it is
// not its turn.
type work struct {
	command *process
	hand    string // SQL that does as many rows as its parameter says, from the other end than the command
	rate    int    // rows a second
	left    string // SQL that counts the rows which are to be done, of those that were there before
}

// take measures the stream at a rate, with turns of work beside it.
func (s *beside) take(ctx context.Context, r *running, rate int, w *work, into *turns) error {
	if err := s.underWay(ctx, w); err != nil {
		return err
	}
	w.command.freeze(true)
	defer w.command.freeze(false)
	consumer, err := s.j.to.follow(ctx, s.j.topics)
	if err != nil {
		return err
	}
	defer consumer.Close()
	conn, err := pgx.Connect(ctx, s.w.url()) // for the work by hand
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	before, err := s.count(ctx, w.left)
	if err != nil {
		return err
	}
	spent, err := s.spent(ctx, w, conn)
	if err != nil {
		return err
	}
	cycles := turnCycles(s.b.seconds)
	m := newMeter()
	at := &standing{running: r, w: s.w, slot: s.j.slot, to: s.j.to, consumer: consumer}
	var spans []span
	handed := 0
	ended := make(chan error, 1)
	go func() {
		var err error
		spans, handed, err = w.turns(ctx, conn, cycles)
		ended <- err
	}()
	length := time.Duration(cycles*len(turnOrder)) * turnLength
	err = m.measure(ctx, at, rate, length)
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	if _, err := m.line(relayKafka, rate); err != nil { // every row once, and in order
		return err
	}
	after, err := s.count(ctx, w.left)
	if err != nil {
		return err
	}
	now, err := s.spent(ctx, w, conn)
	if err != nil {
		return err
	}
	into.server[proving] += now.server[proving] - spent.server[proving]
	into.server[byHand] += now.server[byHand] - spent.server[byHand]
	into.command += now.command - spent.command
	each := time.Duration(cycles) * turnLength
	into.done[proving], into.worked[proving] = into.done[proving]+before-after-handed, into.worked[proving]+each
	into.done[byHand], into.worked[byHand] = into.done[byHand]+handed, into.worked[byHand]+each
	into.add(m, spans)
	return nil
}

// underWay waits until the command has begun its work: its start is no part of it.
func (s *beside) underWay(ctx context.Context, w *work) error {
	all, err := s.count(ctx, w.left)
	if err != nil {
		return err
	}
	for pause(ctx, 50*time.Millisecond) {
		select {
		case <-w.command.done:
			return fmt.Errorf("%w: it ended before it did anything: %s", errUnverified, w.command.stderr)
		default:
		}
		if left, err := s.count(ctx, w.left); err != nil || left < all {
			return err
		}
	}
	return context.Cause(ctx)
}

// spent is the CPU time of the work so far. There is none where the server does not run here.
func (s *beside) spent(ctx context.Context, w *work, hand *pgx.Conn) (t turns, err error) {
	rows, err := s.w.conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cdc-relay maintenance'")
	if err != nil {
		return t, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || !s.b.pg.Ours() {
		return t, err
	}
	for _, pid := range pids {
		spent, _ := cpuTime(pid)
		t.server[proving] += spent
	}
	t.server[byHand], _ = cpuTime(int(hand.PgConn().PID()))
	t.command = cpuTimes(w.command.pid())
	return t, nil
}

// turns has each kind of work done in its turn.
func (w *work) turns(ctx context.Context, conn *pgx.Conn, cycles int) (spans []span, handed int, err error) {
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return nil, 0, err
	}
	pause(ctx, warmUp)
	for range cycles {
		for i, kind := range turnOrder {
			began := time.Now()
			end := began.Add(turnLength)
			spans = append(spans, span{kind, 2 * i / len(turnOrder), began.Add(turnSettle), end})
			switch kind {
			case proving:
				w.command.freeze(false)
				pause(ctx, turnLength)
				w.command.freeze(true)
			case byHand:
				err = paced(ctx, end, func() error {
					tag, err := conn.Exec(ctx, w.hand, w.rate/handPieces)
					handed += int(tag.RowsAffected())
					return err
				})
			case busy:
				err = paced(ctx, end, func() error {
					_, err := conn.Exec(ctx, spin)
					return err
				})
			case alone, turnKinds:
				pause(ctx, turnLength)
			}
			if err != nil {
				return nil, 0, err
			}
		}
	}
	return spans, handed, context.Cause(ctx)
}

// paced does something handPieces times a second.
func paced(ctx context.Context, end time.Time, do func() error) error {
	for next := time.Now(); time.Now().Before(end) && ctx.Err() == nil; next = next.Add(time.Second / handPieces) {
		pause(ctx, time.Until(next))
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// freeze stops a process where it is, or has it go on.
func (p *process) freeze(frozen bool) {
	signal := syscall.SIGCONT
	if frozen {
		signal = syscall.SIGSTOP
	}
	signalGroup(p.cmd, signal)
}

// add deals the rows of a measurement out to the turns in which they were sent.
func (t *turns) add(m *meter, spans []span) {
	rows := make([]int, len(spans))
	for n := range m.sent {
		at := m.sent[n].Load()
		i, _ := slices.BinarySearchFunc(spans, at, func(one span, at int64) int { return cmp.Compare(one.to.UnixNano(), at) })
		if at == 0 || i == len(spans) || at < spans[i].from.UnixNano() {
			continue
		}
		rows[i]++
		delay := float64(m.arrived[n]-at) / 1e6
		t.delays[spans[i].kind] = append(t.delays[spans[i].kind], delay)
		if spans[i].kind == alone {
			t.groups[spans[i].group].delays = append(t.groups[spans[i].group].delays, delay)
		}
	}
	for i, one := range spans {
		rate := float64(rows[i]) / one.to.Sub(one.from).Seconds()
		t.rates[one.kind] = append(t.rates[one.kind], rate)
		if one.kind == alone {
			t.groups[one.group].rates = append(t.groups[one.group].rates, rate)
		}
	}
}

// perSecond is how many rows the work was done to in a second of its turns.
func (t *turns) perSecond(kind turn) float64 { return float64(t.done[kind]) / t.worked[kind].Seconds() }

// p99 is by how much the command makes the stream later, and what it is held against.
func (t *turns) p99() (reached, reference string) {
	p99 := func(delays []float64) []float64 {
		sorted := slices.Sorted(slices.Values(delays))
		if len(sorted) == 0 {
			return []float64{0}
		}
		return []float64{sorted[int(0.99*float64(len(sorted)-1))]}
	}
	without, with, hand, spun := p99(t.delays[alone]), p99(t.delays[proving]), p99(t.delays[byHand]), p99(t.delays[busy])
	return fmt.Sprintf("%.1f ms (%s)", with[0], percent(with, without)),
		fmt.Sprintf("%.1f ms without; %s by hand at %.0f rows/s; %s by a loop of that CPU time without a table; %s between equal turns without", without[0], percent(hand, without), t.perSecond(byHand), percent(spun, without), percent(p99(t.groups[1].delays), p99(t.groups[0].delays)))
}

// written is how many rows writers lose by the command, and what it is held against.
func (t *turns) written() (reached, reference string) {
	without := t.rates[alone]
	return fmt.Sprintf("%.0f rows/s (%s)", median(t.rates[proving]), percent(t.rates[proving], without)),
		fmt.Sprintf("%.0f rows/s without; %s by hand at %.0f rows/s; %s between equal turns without", median(without), percent(t.rates[byHand], without), t.perSecond(byHand), percent(t.groups[1].rates, t.groups[0].rates))
}

// cost is the CPU time of a row, without what the server's decoding and its vacuum take.
func (t *turns) cost() (reached, reference string) {
	micros := func(spent time.Duration, kind turn) float64 {
		return float64(spent.Microseconds()) / float64(max(1, t.done[kind]))
	}
	return fmt.Sprintf("%.0f µs in the server, %.0f µs in the command", micros(t.server[proving], proving), micros(t.command, proving)),
		fmt.Sprintf("%.0f µs in the server by hand", micros(t.server[byHand], byHand))
}
