package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/audit/match"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Audit is one invocation.
type Audit struct {
	Settings relay.Config
	Options  Options
	Out      Output

	Every time.Duration // of the progress lines; defaults to 10s
}

// work is an audit under way.
type work struct {
	*Audit
	*parsed
	settings relay.Config
	holder   *snapshot.Holder
	routes   *resolve.Router
	match    *match.Match
	hasher   *match.Hasher
	topics   match.Numbers
	sides    []*side

	read   counter
	result Result
	topic  []match.Topic // parallel to topics.Names
	varies bool          // values may be of earlier versions of their schemas, and are not compared
	cut    bool          // the topics have records before those that were read

	start time.Time
	stage string
	began time.Time // of the stage
	said  time.Time
}

// counter counts without a lock: one goroutine has it.
type counter int64

// Add counts.
func (c *counter) Add(n int64) int64 {
	*c += counter(n)
	return int64(*c)
}

// Run audits, and shows what it found. Where that is a fault the error is a *FaultsError.
func (a *Audit) Run(ctx context.Context) error {
	if a.Every == 0 {
		a.Every = 10 * time.Second
	}
	settings := a.Settings.WithDefaults()
	p, err := a.Options.parse(&settings)
	if err != nil {
		return err
	}
	if heap := p.Memory / 5 * 4; heap < debug.SetMemoryLimit(-1) { // the program itself takes the rest
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(heap))
	}
	w := &work{Audit: a, parsed: p, settings: settings, hasher: match.NewHasher(), start: time.Now()}
	if w.routes, err = resolve.New(settings.Router); err != nil {
		return &relay.ConfigError{Err: err}
	}
	w.varies = slices.ContainsFunc(settings.Router.Mappings, func(m router.Mapping) bool { return m.Schema.Varies() })
	if w.varies {
		a.Out.say(Line{What: "warning", Text: "values are not compared, because a table is encoded by the latest version of a schema, and records may be of earlier ones; outbox[].schema.version: N has them compared"})
	}
	if w.holder, err = snapshot.OpenToRead(ctx, settings.Replication, "audit"); err != nil {
		return said(err)
	}
	defer w.holder.Close()
	w.begin()
	defer func() { w.match.Close() }()
	if err := w.do(ctx); err != nil {
		return said(err)
	}
	if p.Report != "" {
		if err := w.result.write(p.Report); err != nil {
			return err
		}
	}
	a.Out.show(&w.result, p.once)
	if w.result.Faults > 0 {
		return &FaultsError{w.result.Faults}
	}
	return nil
}

// begin takes rows and records from the first one on.
func (w *work) begin() {
	if w.match != nil {
		w.match.Close()
	}
	w.match = match.New(match.Config{Dir: w.Dir, Memory: int(w.Memory / 3), Once: w.once, Shared: w.shared()})
	w.read, w.result.Records, w.result.Foreign, w.result.Findings = 0, 0, 0, nil
}

// value is what of a record's value is compared.
func (w *work) value(value []byte) []byte {
	if w.varies {
		return nil
	}
	return value
}

// shared reports whether records of rows that are not looked at may have the ids of those that
// are: other tables, and logical messages, count on their own.
func (w *work) shared() bool {
	return len(w.settings.Replication.Tables) > len(w.tables) || len(w.settings.Replication.Messages) > 0
}

func refuse(err error, next string) error {
	if next != "" {
		err = advice.Give(err, next)
	}
	return &advice.Refused{Err: err}
}

// said gives an error of a server its kind: one that passes needs no person.
func said(err error) error {
	if sql, ok := errors.AsType[*snapshot.SQLError](err); ok {
		return &advice.Usage{Err: sql}
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind != fault.KindRetry {
		return fault.Refuse(err)
	}
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Class != sink.Retry {
		return &advice.Refused{Err: err}
	}
	return err
}

// maxTables is how many tables a row's note of its table can tell apart.
const maxTables = 1 << 8

func (w *work) do(ctx context.Context) error {
	if n := len(w.tables); n > maxTables {
		return refuse(fmt.Errorf("%d tables are configured, and one audit compares %d at most", n, maxTables), "name some of them with --table")
	}
	for _, index := range w.tables {
		s, err := w.look(ctx, index)
		if err != nil {
			return err
		}
		w.sides = append(w.sides, s)
		w.result.Tables = append(w.result.Tables, s.Name.String())
	}
	if err := w.fence(ctx); err != nil {
		return err
	}
	for _, s := range w.sides { // not before: while the slots are waited for, a change of a table need not wait
		if err := w.holder.LockTables(ctx, s.Table); err != nil {
			return err
		}
	}
	limits := len(w.result.Limits)
	counts, err := w.compare(ctx, w.since)
	if alone := counts.By[match.Missing] + counts.By[match.BeforeSlot] + counts.By[match.Gone]; err == nil && alone > 0 && w.cut {
		// The time of a row is what somebody wrote into it, and no proof of when that was.
		w.say("%s without a record since an hour before %s: reading the topics from their beginnings", wording.Count(alone, "row"), w.Since)
		w.result.Limits = w.result.Limits[:limits]
		w.begin()
		counts, err = w.compare(ctx, time.Time{})
	}
	if err != nil {
		return err
	}
	return w.conclude(ctx, counts)
}

// compare takes rows, and records from an hour before a time on, zero for all, and compares them.
func (w *work) compare(ctx context.Context, since time.Time) (counts match.Counts, err error) {
	for i, s := range w.sides {
		if err := w.rows(ctx, uint8(i), s); err != nil {
			return counts, err
		}
	}
	if err := w.records(ctx, since); err != nil {
		return counts, err
	}
	facts := make([]match.Table, len(w.sides))
	for i, s := range w.sides {
		facts[i] = s.facts
	}
	r := &w.result
	w.say("comparing %s with %s", wording.Count(int64(w.read), "row"), wording.Count(r.Records, "record"))
	return w.match.Finish(facts, w.topic, func(f match.Finding) { r.add(f, r.Tables, w.topics.Names) })
}

// fence takes the snapshot and waits until every slot has passed it.
func (w *work) fence(ctx context.Context) error {
	if _, err := w.holder.Begin(ctx, ""); err != nil {
		return err
	}
	fence, err := w.holder.WALInserted(ctx)
	if err != nil {
		return err
	}
	w.result.Fence = fence.String()
	surveyor, err := maintenance.OpenSurvey(ctx, w.settings.Replication)
	if err != nil {
		return err
	}
	defer surveyor.Close()
	here := w.holder.Origin()
	if surveyor.Lineage() != here.Lineage() {
		return &fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonForeignServer, Op: "audit",
			Err: errors.New("two connections led to two servers, or to one before and after a failover"), Hint: "run it again",
		}
	}
	cfg := proof.Config{Wait: max(w.Wait, time.Millisecond), Positions: stored.Promises}
	if w.settings.Guarantee == relay.ExactlyOnce {
		cfg.Positions = stored.Checkpoints
	}
	for _, shard := range w.settings.Replication.Shards() {
		cfg.Slots = append(cfg.Slots, shard.Slot)
	}
	w.say("waiting until every slot has passed %s", fence)
	slots, err := proof.New(cfg, nil).Await(ctx, surveyor, fence)
	if err != nil {
		return w.holder.ExplainMissing(ctx, err)
	}
	return w.origins(ctx, cfg, here, slots)
}

// origins finds the tables of which nobody recorded what happened to the rows before the slots.
func (w *work) origins(ctx context.Context, cfg proof.Config, here wal.Origin, slots []proof.Slot) error {
	known := &proof.Kept{Here: here, Before: make(map[string]stored.BeforeSlot)}
	values := make(map[string]map[string][]byte)
	if w.settings.KeepsPositions() {
		ledger, err := topics.NewLedger(w.settings.Kafka.Connection, w.settings.CheckpointTopic)
		if err != nil {
			return err
		}
		defer ledger.Close()
		within, cancel := context.WithTimeout(ctx, checkpoints.Patience(len(slots)))
		defer cancel()
		for _, slot := range slots {
			if values[slot.Name], err = ledger.Read(within, stored.BeforeSlotSuffix(here.SystemID, slot.Name)); err != nil {
				return err
			}
		}
	}
	for _, s := range w.sides {
		cfg.Table = s.OID
		clear(known.Before)
		for _, slot := range slots {
			value := values[slot.Name][stored.BeforeSlotKey(here.SystemID, slot.Name, s.OID)]
			if rec, err := stored.ParseBeforeSlot(value); value != nil && err == nil {
				known.Before[slot.Name] = rec
			}
			s.facts.BeforeUnknown = s.facts.BeforeUnknown || cfg.Before(known, slot.Name, slot.Confirmed) != nil
		}
		if s.facts.BeforeUnknown {
			w.limit("nobody knows whether the rows of %s from before the slot are delivered (`cdc-relay check`, slot.origin); those without a record, older than every row that has one, are before_slot", s.Name)
		}
	}
	return nil
}

func (w *work) limit(format string, args ...any) {
	w.result.Limits = append(w.result.Limits, fmt.Sprintf(format, args...))
}

// say prints what begins.
func (w *work) say(format string, args ...any) {
	w.Out.say(Line{What: "progress", Text: fmt.Sprintf(format, args...)})
}

// progress prints now and then how far a stage is.
func (w *work) progress(stage string, done int64) {
	if done%4096 != 0 {
		return
	}
	now := time.Now()
	if stage != w.stage {
		w.stage, w.said, w.began = stage, now, now
	}
	if now.Sub(w.said) < w.Every {
		return
	}
	w.said = now
	rate := float64(done) / now.Sub(w.began).Seconds()
	w.Out.say(Line{What: "progress", Text: fmt.Sprintf("%s %d · %.0f/s", stage, done, rate), Rows: done, Rate: rate})
}

// conclude makes the result.
func (w *work) conclude(ctx context.Context, counts match.Counts) error {
	r := &w.result
	if counts.Assumed > 0 {
		r.Advice = append(r.Advice, "if several writers write rows of one key at a time, they may commit in another order than the rows have: repeat the audit with --concurrent-writers")
	}
	r.Rows, r.Proven, r.Extra, r.Resent, r.Late, r.DiskUsed = counts.Rows, counts.Proven, counts.Extra, counts.Resent, counts.Late, counts.DiskUsed
	r.Verdicts = make(map[string]int64)
	for v, n := range counts.By {
		r.Verdicts[string(v)] = n
		if v.Fault(w.once) {
			r.Faults += n
		}
	}
	if r.Expect = AtLeastOnce; w.once {
		r.Expect = Once
	}
	r.sorted()
	w.limits()
	if err := w.name(ctx, r.Findings); err != nil {
		return err
	}
	r.Seconds = time.Since(w.start).Seconds()
	return nil
}

// limits says what no audit can compare.
func (w *work) limits() {
	if w.settings.OnReject == relay.SkipOnReject {
		w.limit("rows that were skipped (relay.on_reject: skip) are recorded nowhere: they are missing, or rejected by the present mapping")
	}
	if w.sample > 1 {
		w.limit("but one of %d events, chosen anew in each run", w.sample)
	}
	for i, s := range w.sides {
		switch {
		case s.facts.NoOrder:
			w.limit("the order of %s: no column has the order of writing", s.Name)
		case !s.facts.Ordered && !w.settings.Router.PositionHeaders:
			w.limit("the order of %s: its columns do not tell for certain which of two rows committed first; what seems wrong is order_unclear", w.result.Tables[i])
		}
	}
}
