package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

type redriveOptions struct {
	all, yes, discard, wholeKey, withoutLock, asJSON bool
}

func (a *app) deadletterRedrive() *cobra.Command {
	var flags letterFlags
	var o redriveOptions
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Send dead letters to the topics of their records (dry run unless --yes)",
		Long: `redrive sends the selected dead letters to their topics, key by key: those of a key in
the order in which their rows were committed, and the key with the oldest row first.
Once the brokers have acknowledged them it writes a marker behind them, so that no later
redrive sends them again and a parked key is free. Other waiting letters of the same
topic and key are sent too: a letter that was left behind would be overtaken.

Several pipelines may share one dead-letter topic. redrive takes the letters of this
configuration's database and slot; --source selects others. Letters of another source
are sent only when they are complete.

What is missing in a letter is read from the table: the row by its event id, routed
with the present configuration. That needs SELECT on the table. The dry run does it too,
so it shows the topic, or why there is none. What only the brokers can refuse shows
with --yes. RESULT warns of a row that was changed after its letter was written. A row
with another key is refused, and so is one without a key that has another value: it may
be another row with the same event id.

With --yes it takes a lock at PostgreSQL for each own slot whose letters it sends or
discards, and is refused while another redrive has it: two at a time may send a record
behind newer ones of its key. For letters of other databases there is no such lock.

A redrive that is interrupted says how far it came. It may have sent letters without
marking them; the next one sends them again. --discard sends nothing and marks the selected letters as done with:
those rows are lost to consumers. Other letters of the same key keep waiting, unless
--whole-key discards them too.`,
		Example: `  cdc-relay deadletter redrive --reason record_too_large          # what would be sent
  cdc-relay deadletter redrive --reason record_too_large --yes
  cdc-relay deadletter redrive --partition 3 --offset 17 --discard --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter(cmd)
			if err != nil {
				return err
			}
			if err := o.selects(filter, flags.given(cmd)); err != nil {
				return err
			}
			if o.wholeKey && !o.discard {
				return &usageError{errors.New("--whole-key has an effect with --discard only: a redrive always takes the whole key")}
			}
			l, err := a.readLetters(cmd, &flags)
			if err != nil {
				return err
			}
			if err := l.there(); err != nil {
				return err
			}
			return l.redrive(cmd.Context(), o)
		},
	}
	flags.add(cmd, ownSources)
	cmd.Flags().BoolVar(&o.all, "all", false, "every dead letter of the source that waits")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "really send them")
	cmd.Flags().BoolVar(&o.discard, "discard", false, "send nothing, mark the selected letters as done with")
	cmd.Flags().BoolVar(&o.wholeKey, "whole-key", false, "with --discard, also the other waiting letters of the same topic and key")
	cmd.Flags().BoolVar(&o.withoutLock, "without-lock", false, "do not ask PostgreSQL for the lock that keeps a second redrive away; make sure that there is none")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// selects makes sure that the command line says what is to be re-driven, and once.
func (o redriveOptions) selects(filter deadletter.Filter, given []string) error {
	switch {
	case o.all && len(given) > 0:
		return &usageError{fmt.Errorf("--all selects every dead letter of the source, and %s only some; leave out --all, or the others", strings.Join(given, ", "))}
	case !o.all && filter.Empty():
		return &usageError{errors.New("select the dead letters to re-drive: filters such as --reason, or --all")}
	}
	return nil
}

// redriveReport is what happened, or would, to each group that the redrive reached.
type redriveReport struct {
	Plan    bool           `json:"plan"`
	Discard bool           `json:"discard"`
	Letters int            `json:"letters"`
	Done    int            `json:"done"`
	Records int            `json:"records"`       // that the brokers acknowledged
	Failed  int            `json:"failed"`        // of a plan: what is known to fail
	Others  int            `json:"other_sources"` // letters that the filters select and --source does not
	Left    int            `json:"left_of_keys"`  // letters of the same keys that a discard leaves waiting
	Groups  []redriveGroup `json:"groups"`
	Stopped *stoppedReport `json:"stopped,omitempty"`
	tasks   []deadletter.Task
}

type redriveGroup struct {
	Table      string `json:"table"`
	Topic      string `json:"topic"` // where it goes, or was to go
	Source     string `json:"source"`
	Letters    int    `json:"letters"`
	Selected   int    `json:"selected"` // the others share their topic and key
	Incomplete int    `json:"incomplete"`
	From       string `json:"from"` // lsn/seq
	Through    string `json:"through"`
	Done       int    `json:"done"`
	Changed    int    `json:"changed"`  // rows that were changed after their letters were written
	Unproven   int    `json:"unproven"` // rows of which neither key nor value shows that they are the letters'
	Error      string `json:"error,omitempty"`

	task    *deadletter.Task
	reached map[*deadletter.Entry]bool
}

// describe fills in what the group is: what was reached, and what still waits behind it. A
// letter that another redrive was done with meanwhile is neither.
func (g *redriveGroup) describe() {
	var entries []*deadletter.Entry
	for _, e := range g.task.Entries {
		if g.reached[e] || e.Done == "" {
			entries = append(entries, e)
		}
	}
	first, last := entries[0], entries[len(entries)-1]
	g.Table, g.Source, g.From, g.Through = first.Table, first.Source, first.String(), last.String()
	g.Letters, g.Selected, g.Incomplete = len(entries), 0, 0
	for _, e := range entries {
		if e.Matched {
			g.Selected++
		}
		if !e.Complete() {
			g.Incomplete++
		}
	}
}

func (l *letters) redrive(ctx context.Context, o redriveOptions) error {
	ctx, release, err := l.claim(ctx, o)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("the redrive stopped: %s; nothing was touched", toldWhy(context.Cause(ctx)))
	case err != nil:
		return err
	}
	defer release()
	report := &redriveReport{Plan: !o.yes, Discard: o.discard, Groups: []redriveGroup{}, tasks: l.tasks(o)}
	for _, task := range report.tasks {
		report.Letters += len(task.Entries)
		report.Left += task.Left
	}
	for _, e := range l.backlog.Entries {
		if e.Other && e.Done == "" {
			report.Others++
		}
	}
	if len(report.tasks) > 0 {
		if err := l.run(ctx, o, report); err != nil {
			return err
		}
	} else {
		l.hint(false)
	}
	if o.asJSON {
		err = l.app.printJSON(report)
	} else {
		err = l.printRedrive(report)
	}
	switch {
	case report.Stopped != nil:
		return errors.Join(err, report.interrupted())
	case err == nil && report.Failed > 0 && (!report.Plan || report.hopeless()):
		return &quietError{exitFailed}
	}
	return err
}

// needsRows says whether a letter has to be completed from a table.
func (r *redriveReport) needsRows() bool {
	for _, task := range r.tasks {
		for _, e := range task.Entries {
			if !e.Complete() {
				return true
			}
		}
	}
	return false
}

// run re-drives the tasks, or finds out what is known of them without sending.
func (l *letters) run(ctx context.Context, o redriveOptions, report *redriveReport) error {
	var history wal.Origin
	if !o.discard && report.needsRows() {
		err := l.identify(ctx)
		if err == nil {
			history, err = catalog.ReadOrigin(ctx, l.settings.Replication)
		}
		if err != nil {
			return fmt.Errorf("%w; PostgreSQL is needed, because some letters are not complete", err)
		}
	}
	rows := newRestorer(l.cfg, l.settings)
	defer rows.finder.Close()
	r := &deadletter.Redriver{
		Topic: l.settings.DeadLetterTopic, Discard: o.discard, DryRun: !o.yes, Own: l.own,
		Lost:    func(id deadletter.ID) bool { return id.Timeline > 0 && history.TimelineOf(id.Commit) != id.Timeline },
		Restore: rows.restore,
		Fill: func(ctx context.Context, entries []*deadletter.Entry) (map[deadletter.Place]*deadletter.Letter, error) {
			return deadletter.Fill(ctx, l.settings.Kafka.Connection, l.settings.DeadLetterTopic, entries)
		},
	}
	if o.yes {
		kafka, err := kafka.New(l.settings.Kafka, zerolog.Nop())
		if err != nil {
			return err
		}
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = kafka.Close(closing) // every outcome is known
		}()
		r.Sink = kafka
	}
	err := r.Run(ctx, report.tasks, report.add)
	if stopped, ok := errors.AsType[*deadletter.Stopped](err); ok && o.yes {
		report.Stopped = newStoppedReport(stopped)
		report.Failed = report.Letters - report.Done
		return nil
	}
	if err != nil {
		return brokersRefuse(err)
	}
	return nil
}

// add takes up what was done for the letters of a group, or would be. The pieces of a large
// group come one after another.
func (r *redriveReport) add(out deadletter.Outcome) {
	if n := len(r.Groups); n == 0 || r.Groups[n-1].task != out.Task {
		r.Groups = append(r.Groups, redriveGroup{task: out.Task, Topic: out.Entries[0].Record.Topic, reached: make(map[*deadletter.Entry]bool)})
	}
	g := &r.Groups[len(r.Groups)-1]
	if len(g.reached) == 0 && out.Topic != "" {
		g.Topic = out.Topic
	}
	if out.Err != nil && g.Error == "" { // what is behind it was left for its sake
		g.Error = toldWhy(out.Err)
	}
	for _, e := range out.Entries {
		g.reached[e] = true
	}
	g.Changed += out.Changed
	g.Unproven += out.Unproven
	g.describe()
	if !r.Plan {
		g.Done += out.Done
		r.Done += out.Done
		r.Records += out.Records
	}
	r.Failed += len(out.Entries) - out.Done
}

func (l *letters) printRedrive(report *redriveReport) error {
	if report.Letters == 0 {
		fmt.Fprintf(l.app.stdout, "no dead letter that waits in topic %s matches; %d in all wait there\n", l.settings.DeadLetterTopic, l.waiting())
		l.printLeftOut(report)
		return nil
	}
	if len(report.Groups) > 0 {
		if err := l.printGroups(report); err != nil {
			return err
		}
	}
	fmt.Fprintln(l.app.stdout, report.summary())
	l.printLeftOut(report)
	return nil
}

// hopeless says of a plan that no letter of it can be sent.
func (r *redriveReport) hopeless() bool { return r.Plan && r.Letters > 0 && r.Failed == r.Letters }

// summary counts over all waiting letters of the keys that the redrive is about.
func (r *redriveReport) summary() string {
	all := r.Letters + r.Left
	verb := "re-driven"
	if r.Discard {
		verb = "discarded"
	}
	left := ""
	if r.Left > 0 {
		left = ": re-drive them, or discard them too with --whole-key"
	}
	of := wording.Count(all, "dead letter") + " of the selected keys"
	if r.Plan {
		if r.Failed > 0 {
			left = fmt.Sprintf(" (%d would fail)", r.Failed) + left
		}
		next := "repeat with --yes"
		if r.hopeless() {
			next = "--yes would change nothing: first mend what RESULT names"
		}
		return fmt.Sprintf("%d of %s would be %s, %d would be left%s; nothing was touched, %s", r.Letters-r.Failed, of, verb, r.Failed+r.Left, left, next)
	}
	return fmt.Sprintf("%d of %s %s, %d left%s", r.Done, of, verb, all-r.Done, left)
}

// printLeftOut names the letters that a reader may take for included.
func (l *letters) printLeftOut(report *redriveReport) {
	if n := report.Others; n > 0 {
		match := map[bool]string{true: "matches and is left out", false: "match and are left out"}[n == 1]
		fmt.Fprintf(l.app.stdout, "%s of other sources %s (--source %s); `cdc-relay deadletter list` names their sources\n", wording.Count(n, "dead letter"), match, l.source)
	}
}

// doubts says which rows are not, or may not be, what they were when their letters were
// written.
func (g *redriveGroup) doubts() (text string) {
	if n := g.Changed; n > 0 {
		text += fmt.Sprintf("; warning: %s changed after the dead letter was written; the record has the present value", wording.Count(n, "row"))
	}
	if n := g.Unproven; n > 0 {
		text += fmt.Sprintf("; warning: %s found by event id alone: without a key and a known value nothing shows that a reused id is not another row", wording.Count(n, "row"))
	}
	return text
}

func (l *letters) printGroups(report *redriveReport) error {
	lines := tabwriter.NewWriter(l.app.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "TABLE\tTOPIC\tLETTERS\tSELECTED\tFROM TABLE\tROWS\tRESULT")
	for _, g := range report.Groups {
		result := "planned"
		switch {
		case g.Error != "" && report.Plan:
			result = "would fail: " + printable(g.Error)
		case g.Error != "":
			result = fmt.Sprintf("%d done; %s", g.Done, printable(g.Error))
		case !report.Plan && g.Done < g.Letters:
			result = fmt.Sprintf("%d done", g.Done)
		case !report.Plan:
			result = "done"
		}
		result += g.doubts()
		rows := g.From
		if g.Letters > 1 {
			rows += " to " + g.Through
		}
		fmt.Fprintf(lines, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", printable(g.Table), orDash(printable(g.Topic)), g.Letters, g.Selected, g.Incomplete, rows, result)
	}
	return lines.Flush()
}
