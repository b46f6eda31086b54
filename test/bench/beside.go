package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Figure is one line about what is done beside the stream: to rows from before it, and to
// rows that it has delivered.
type Figure struct {
	Section   string
	What      string
	Reached   string
	Reference string // of the same run; empty: there is none
	Target    string
}

// beside is a table that a relay streams from, whose slot `setup` has made: only then do the
// commands know what lies before it.
type beside struct {
	b      *bench
	w      *workload
	j      job
	before kadm.ListedOffsets
}

// detecting has the relay keep its positions, without which the commands prove nothing.
const detecting = "CDC_RELAY_RELAY_DETECT_MOVED_SLOT=true"

// aside makes database, topics and, unless made is false, the slot. change is SQL that comes before it.
func (b *bench) aside(ctx context.Context, name, change string, made bool) (*beside, error) {
	if err := needExactlyOnce(ctx, b); err != nil {
		return nil, err
	}
	to, err := b.brokers(ctx, toKafka)
	if err != nil {
		return nil, err
	}
	w, err := b.quiet(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &beside{b: b, w: w, j: job{w: w, slot: w.newName(), topics: w.topicNames(), to: to}}
	if _, err = w.conn.Exec(ctx, change); err == nil {
		err = to.topics(ctx, s.j.topics, 4)
	}
	if err == nil {
		s.before, _, err = to.offsets(ctx, s.j.topics)
	}
	if err == nil && made {
		err = s.do(ctx, nil, "setup")
	}
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// streaming has a relay stream from such a table while something is measured.
func (b *bench) streaming(ctx context.Context, name, change string, measure func(*beside, *running) error) (err error) {
	s, err := b.aside(ctx, name, change, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	r, err := s.relay(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	return measure(s, r)
}

func (s *beside) close(ctx context.Context) error {
	s.j.to.forget(context.WithoutCancel(ctx), s.j.topics)
	return errors.Join(s.w.drop(ctx, s.j.slot), s.w.close(ctx))
}

// begin starts a command of the binary. Its output is in its log.
func (s *beside) begin(env []string, args ...string) (*process, error) {
	cmd := exec.Command(s.b.binary, args...)
	cmd.Dir = s.b.dir
	cmd.Env = append(os.Environ(), relayEnv(s.j, append([]string{detecting}, env...)...)...)
	p, err := launch(cmd)
	if err == nil {
		p.drain()
	}
	return p, err
}

// do has a command end well.
func (s *beside) do(ctx context.Context, env []string, args ...string) error {
	p, err := s.begin(env, args...)
	if err != nil {
		return err
	}
	return s.finish(ctx, p, args...)
}

func (s *beside) finish(ctx context.Context, p *process, args ...string) error {
	if err := p.awaitEnd(ctx); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", strings.Join(args, " "), err), p.halt())
	}
	return nil
}

func (s *beside) relay(ctx context.Context, env ...string) (*running, error) {
	return startRelay(append([]string{detecting}, env...)...)(ctx, s.b, s.j)
}

// passed waits until the slot is past all that is written.
func (s *beside) passed(ctx context.Context, r *running) error {
	if err := s.w.mark(ctx); err != nil {
		return err
	}
	if _, err := s.w.conn.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil { // so that a quiet server gets there
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	return s.j.confirmed(ctx, r)
}

// readBack wants the rows 1 to n in the topics, once and in the order of their keys; rows that came
// more than once are allowed if repeats is not nil, and counted in it.
func (s *beside) readBack(ctx context.Context, n int, repeats *int) error {
	account := newLedger(n)
	if err := s.j.to.verify(ctx, s.j.topics, s.before, account); err != nil {
		return err
	}
	if repeats != nil {
		*repeats, account.repeated = account.repeated, 0
	}
	return account.verdict()
}

// count is a number that SQL gives.
func (s *beside) count(ctx context.Context, sql string) (n int, err error) {
	err = s.w.conn.QueryRow(ctx, sql).Scan(&n)
	return n, err
}

// old writes rows of two hours ago.
func (s *beside) old(ctx context.Context, first, last int) error {
	for _, sql := range []string{
		"ALTER TABLE outbox ALTER created_at SET DEFAULT clock_timestamp() - interval '2 hours'", // no two of one time
		fmt.Sprintf("SELECT bench_rows(%d, %d, 285, 4)", first, last),
		"ALTER TABLE outbox ALTER created_at SET DEFAULT now()",
		"VACUUM ANALYZE outbox",
	} {
		if _, err := s.w.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// follow measures a steady rate of the stream, verified; a rate that nobody reaches gives the
// throughput.
func (s *beside) follow(ctx context.Context, r *running, rate int) (Latency, error) {
	return s.followFor(ctx, r, rate, time.Duration(s.b.seconds)*time.Second)
}

// warm has the broker compile its code for small records, which takes a core, before delays are measured.
func (s *beside) warm(ctx context.Context, r *running) error {
	if s.b.followed {
		return nil
	}
	_, err := s.followFor(ctx, r, 1000, brokerWarmUp)
	s.b.followed = err == nil
	return err
}

func (s *beside) followFor(ctx context.Context, r *running, rate int, length time.Duration) (Latency, error) {
	consumer, err := s.j.to.follow(ctx, s.j.topics)
	if err != nil {
		return Latency{}, err
	}
	defer consumer.Close()
	m := newMeter()
	at := &standing{running: r, w: s.w, slot: s.j.slot, to: s.j.to, consumer: consumer}
	if err := m.measure(ctx, at, rate, length); err != nil {
		return Latency{}, err
	}
	return m.line(relayKafka, rate)
}

// flatOut is a rate that two cores do not reach.
const flatOut = 100_000

// figure notes a line.
func (b *bench) figure(section, what, reached, reference, target string) {
	f := Figure{Section: section, What: what, Reached: reached, Reference: reference, Target: target}
	fmt.Printf("   %s: %s; reference: %s; target: %s\n", what, reached, reference, target)
	b.results.Figures = append(b.results.Figures, f)
}

// quantiles are p50, p99 and the greatest of milliseconds.
func quantiles(all []float64) string {
	if len(all) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(all))
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1))] }
	return fmt.Sprintf("p50 %.1f, p99 %.1f, longest %.1f ms (%d)", at(0.5), at(0.99), at(1), len(sorted))
}

// percent is by how much with is above without.
func percent(with, without []float64) string {
	return fmt.Sprintf("%+.1f %%", 100*(median(with)/median(without)-1))
}

// keepFigures takes over the sections that r has not measured.
func (r *Results) keepFigures(old *Results, took func(section string)) {
	mine := map[string]bool{}
	for _, f := range r.Figures {
		mine[f.Section] = true
	}
	for _, f := range old.Figures {
		if !mine[f.Section] {
			r.Figures = append(r.Figures, f)
			took(f.Section)
		}
	}
	slices.SortStableFunc(r.Figures, func(a, b Figure) int { return cmp.Compare(place(a.Section), place(b.Section)) })
}

func (m *markdownWriter) figures() {
	section := ""
	for _, f := range m.r.Figures {
		if f.Section != section {
			if section != "" {
				m.line("")
			}
			section = f.Section
			what := "Beside the stream"
			if section == "subjects" {
				what = "Memory"
			}
			m.heading(section, "%s: `%s`", what, section)
			m.line("| figure | reached | reference | to reach |")
			m.line("|---|---|---|---|")
		}
		m.line("| %s | %s | %s | %s |", f.What, f.Reached, cmp.Or(f.Reference, "–"), cmp.Or(f.Target, "–"))
	}
	if section != "" {
		m.line("")
	}
}
