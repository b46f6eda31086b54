package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/restore"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/wording"
)

const (
	// mostConsoleLetters bounds what of a topic the relay's own process reads: about 20 MB. The
	// command has a process of its own and no bound.
	mostConsoleLetters = 50_000

	shownGroups = 50 // of a plan or a job
)

// consoleLetters does on the page what the command does. It reads and acts as deadletter does,
// with its lock.
type consoleLetters struct {
	cfg      *config.Config
	settings relay.Config
}

// letterTools are nil for a relay that sets no row aside.
func letterTools(cfg *config.Config, settings relay.Config) *admin.LetterTools {
	if settings.OnReject != relay.DeadLetterOnReject {
		return nil
	}
	c := &consoleLetters{cfg, settings}
	return &admin.LetterTools{Topic: settings.DeadLetterTopic, Read: c.list, Show: c.show, Plan: c.plan, Act: c.act}
}

// read takes the letters as they are in the topic now.
func (c *consoleLetters) read(ctx context.Context, filter deadletter.Filter) (*deadletter.Backlog, error) {
	b, err := deadletter.ReadBacklogUpTo(ctx, c.settings.Kafka.Connection, c.settings.DeadLetterTopic, filter, mostConsoleLetters)
	return b, consoleFailure(err)
}

// consoleFailure gives an error the status that says whose turn it is.
func consoleFailure(err error) error {
	if err == nil {
		return nil
	}
	if _, many := errors.AsType[*deadletter.TooManyError](err); many {
		return &admin.Failure{Code: http.StatusConflict, Problem: "too_many_letters", Err: fmt.Errorf("%w: too many for this process; run `cdc-relay deadletter`", err)}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &admin.Failure{Code: http.StatusServiceUnavailable, Problem: "not_answered", Err: errors.New("the brokers did not answer in time; run `cdc-relay deadletter` to wait longer")}
	}
	err = brokersRefuse(err)
	if _, refused := errors.AsType[*advice.Refused](err); refused {
		return &admin.Failure{Code: http.StatusConflict, Problem: "refused", Err: err}
	}
	return &admin.Failure{Code: http.StatusServiceUnavailable, Problem: "not_answered", Err: err}
}

func (c *consoleLetters) list(ctx context.Context) (*admin.LetterList, error) {
	b, err := c.read(ctx, deadletter.Filter{})
	if err != nil {
		return nil, err
	}
	list := &admin.LetterList{Letters: make([]admin.Letter, 0, len(b.Entries)), Foreign: b.Foreign}
	for _, e := range b.Entries {
		list.Letters = append(list.Letters, consoleLetter(e))
	}
	return list, nil
}

func consoleLetter(e *deadletter.Entry) admin.Letter {
	r := newLetterReport(e)
	return admin.Letter{
		Partition: r.Partition, Offset: r.Offset, Time: r.Time, Reason: r.Reason, Table: r.Table, Topic: r.Topic,
		LSN: r.LSN, Seq: r.Seq, Source: r.Source, EventID: r.EventID, Bytes: r.Bytes, Missing: r.Missing, State: r.State,
	}
}

func (c *consoleLetters) show(ctx context.Context, at admin.Place, values bool) (*admin.ShownLetter, error) {
	place := deadletter.Location{Partition: at.Partition, Offset: at.Offset}
	b, err := c.read(ctx, deadletter.Filter{Places: map[deadletter.Location]bool{place: true}})
	if err != nil {
		return nil, err
	}
	for _, e := range b.Entries {
		if !e.Matched {
			continue
		}
		whole, err := deadletter.ReadLetters(ctx, c.settings.Kafka.Connection, c.settings.DeadLetterTopic, []*deadletter.Entry{e})
		if err != nil {
			return nil, consoleFailure(err)
		}
		letter, ok := whole[place]
		if !ok {
			return nil, nil // expired meanwhile
		}
		shown := &admin.ShownLetter{Letter: consoleLetter(e), Message: letter.Message, Headers: []string{}}
		for _, h := range letter.Record.Headers {
			shown.Headers = append(shown.Headers, h.Key)
		}
		if values {
			record := explain.NewRecord("the letter", &letter.Record)
			record.Value.Hidden = letter.ValueBytes > 0
			shown.Record = record
		}
		return shown, nil
	}
	return nil, nil
}

// deadLetters are those that a plan's filter selects, as they are now; of this relay's slots alone.
type deadLetters struct {
	*consoleLetters
	sources *restore.Sources
	filter  deadletter.Filter
	backlog *deadletter.Backlog
}

func (c *consoleLetters) selected(ctx context.Context, filter admin.LetterFilter) (*deadLetters, error) {
	d := &deadLetters{consoleLetters: c, sources: restore.NewSources(c.settings.Replication)}
	if err := d.sources.Identify(ctx); err != nil {
		return nil, &admin.Failure{Code: http.StatusServiceUnavailable, Problem: "not_answered", Err: fmt.Errorf("%w; PostgreSQL's system identifier and the database's OID select the dead letters of this relay", err)}
	}
	d.filter = deadletter.Filter{Reason: filter.Reason, Table: filter.Table, Topic: filter.Topic, Since: filter.Since, Source: d.sources.Own}
	if filter.Places != nil {
		d.filter.Places = map[deadletter.Location]bool{}
		for _, at := range filter.Places {
			d.filter.Places[deadletter.Location{Partition: at.Partition, Offset: at.Offset}] = true
		}
	}
	return d, d.again(ctx)
}

func (d *deadLetters) again(ctx context.Context) (err error) {
	d.backlog, err = d.read(ctx, d.filter)
	return err
}

func (d *deadLetters) tasks(discard bool) []deadletter.Task {
	if discard {
		return d.backlog.Selected()
	}
	return d.backlog.Whole()
}

func (c *consoleLetters) plan(ctx context.Context, filter admin.LetterFilter) (*admin.Plan, error) {
	d, err := c.selected(ctx, filter)
	if err != nil {
		return nil, err
	}
	tasks := d.tasks(false)
	report := restore.NewReport(true, false, tasks, d.backlog)
	work := &restore.Work{Config: c.cfg, Settings: c.settings, Sources: d.sources, DryRun: true}
	if err := work.Run(ctx, tasks, report.NeedsRows(), report.Add); err != nil {
		return nil, consoleFailure(err)
	}
	discarding := d.tasks(true)
	p := &admin.Plan{Others: report.Others, Digest: planDigest(tasks, discarding)}
	p.Redrive = planned("RE-DRIVE", tasks, report)
	p.Discard = planned("DISCARD", discarding, restore.NewReport(true, true, discarding, d.backlog))
	return p, nil
}

// planned is what a task list comes to.
func planned(verb string, tasks []deadletter.Task, report *restore.Report) admin.PlannedAction {
	a := admin.PlannedAction{Words: fmt.Sprintf("%s %d", verb, report.Letters), Letters: report.Letters, Keys: len(tasks), Left: report.Behind(), WouldFail: report.Failed, Groups: groups(report)}
	for _, task := range tasks {
		for _, e := range task.Entries {
			if !e.Matched {
				a.Along++
			}
		}
	}
	return a
}

// groups are the first of a report, as they are now.
func groups(report *restore.Report) []any {
	all := []any{}
	for _, g := range report.Groups[:min(len(report.Groups), shownGroups)] {
		if text, err := json.Marshal(g); err == nil { // a group refers to its letters, a text does not
			all = append(all, json.RawMessage(text))
		}
	}
	return all
}

func planDigest(redrive, discard []deadletter.Task) string {
	one, other := deadletter.Digest(redrive), deadletter.Digest(discard)
	return hex.EncodeToString(one[:]) + hex.EncodeToString(other[:])
}

// act is the command's redrive: it takes the lock, looks at the letters again, and does nothing
// where they are not those of the plan any more.
func (c *consoleLetters) act(ctx context.Context, p *admin.Plan, discard bool, begun func(), progress func(admin.Progress), halted func() bool) error {
	d, err := c.selected(ctx, p.Filter)
	if err != nil {
		return err
	}
	ctx, release, err := d.sources.Claim(ctx, d.again, func() []deadletter.Task { return d.tasks(discard) })
	if err != nil {
		if _, refused := errors.AsType[*advice.Refused](err); refused {
			return &admin.Failure{Code: http.StatusConflict, Problem: "locked", Err: err}
		}
		return consoleFailure(err)
	}
	defer release()
	if planDigest(d.tasks(false), d.tasks(true)) != p.Digest {
		return &admin.Failure{Code: http.StatusConflict, Problem: "plan_changed", Err: errors.New("the dead letters changed since the plan: " + changes(p, d) + "; plan again")}
	}
	tasks := d.tasks(discard)
	report := &watchedReport{Report: restore.NewReport(false, discard, tasks, d.backlog), tell: progress}
	begun()
	work := &restore.Work{Config: c.cfg, Settings: c.settings, Sources: d.sources, Discard: discard, Halted: halted}
	err = work.Run(ctx, tasks, report.NeedsRows(), report.add)
	stopped, ended := errors.AsType[*deadletter.Stopped](err)
	switch {
	case ended && errors.Is(err, deadletter.ErrHalted):
		report.show(fmt.Sprintf("cancelled between two keys: %s of %s done", wording.Count(report.Done, "dead letter"), wording.Count(report.Letters, "dead letter")))
		return admin.ErrHalted
	case ended:
		report.Stop(stopped)
		return report.Interrupted()
	case err != nil:
		return consoleFailure(err)
	}
	report.show(report.Summary())
	return nil
}

// changes says what is not any more as the plan had it.
func changes(p *admin.Plan, d *deadLetters) string {
	now := restore.NewReport(true, false, d.tasks(false), d.backlog)
	if now.Letters == p.Redrive.Letters {
		return "other letters wait, or in another order"
	}
	return fmt.Sprintf("%s waited then, with those of the same keys, and %d do now", wording.Count(p.Redrive.Letters, "dead letter"), now.Letters)
}

// watchedReport is how far it came with each key.
type watchedReport struct {
	*restore.Report
	tell func(admin.Progress)
}

func (r *watchedReport) add(out deadletter.Outcome) {
	r.Add(out)
	r.show(fmt.Sprintf("%d of %s done", r.Done, wording.Count(r.Letters, "dead letter")))
}

// show copies what is shown: the report goes on changing.
func (r *watchedReport) show(text string) {
	r.tell(admin.Progress{Done: r.Done, Records: r.Records, Failed: r.Failed, Keys: len(r.Groups), Groups: groups(r.Report), Text: text})
}
