package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/restore"
	"github.com/cdc-relay/cdc-relay/wording"
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
		Long: `redrive sends the selected dead letters to their topics, key by key. It keeps the commit
order within a key and starts with the key that has the oldest row. When the brokers have
acknowledged the letters of a key, redrive writes a marker after them: no later redrive
sends them again, and a parked key is free. redrive also sends other waiting letters of
the same topic and key; otherwise newer letters would overtake them. If the topic of a
waiting letter is unknown, it sends all waiting letters of that key.

Several pipelines may share one dead-letter topic. redrive takes the letters of this
configuration's database and slot; --source selects others. Letters of another source
are sent only if they are complete.

redrive reads what is missing in a letter from the table: it finds the row by its event id
and routes it with the current configuration. This needs SELECT on the table. The dry run
does the same, so it shows the topic or the reason why there is none. Refusals by the
brokers show only with --yes. RESULT warns if the row was changed after its letter was
written. A row with a different key is refused, and so is a row without a key and with a
different value: it may be another row with the same event id. If several rows have the
event id, redrive takes the one whose value the letter was made of, and no other.

redrive refuses a letter whose row was lost in a failover: the database does not have the
event. Discard the letter, and write the event again if it is to be sent.

With --yes redrive takes a PostgreSQL lock for each of its own slots whose letters it sends
or discards. It refuses to run while another redrive holds the lock, because two at a time
could send a record after newer ones of its key. Letters of other databases have no lock.

An interrupted redrive prints how far it came. It may have sent letters without marking
them; the next redrive sends those again. --discard sends nothing and marks the selected
letters as discarded: consumers never get those rows. Other letters of the same key keep
waiting unless --whole-key discards them too.`,
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
				return &advice.Usage{Err: errors.New("--whole-key is only allowed with --discard: a redrive always sends the whole key")}
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
	cmd.Flags().BoolVar(&o.all, "all", false, "every waiting dead letter of the source")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "really send them")
	cmd.Flags().BoolVar(&o.discard, "discard", false, "send nothing; mark the selected letters as discarded")
	cmd.Flags().BoolVar(&o.wholeKey, "whole-key", false, "with --discard: also the other waiting letters that redrive would send with them")
	cmd.Flags().BoolVar(&o.withoutLock, "without-lock", false, "take no lock at PostgreSQL; make sure yourself that no other redrive runs")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

// selects makes sure that the command line says what is to be re-driven, and once.
func (o redriveOptions) selects(filter deadletter.Filter, given []string) error {
	switch {
	case o.all && len(given) > 0:
		return &advice.Usage{Err: fmt.Errorf("--all selects every dead letter of the source, and %s only some; leave out --all, or the others", strings.Join(given, ", "))}
	case !o.all && filter.Empty():
		return &advice.Usage{Err: errors.New("select the dead letters to re-drive: filters such as --reason, or --all")}
	}
	return nil
}

func (l *letters) redrive(ctx context.Context, o redriveOptions) error {
	ctx, release, err := l.claim(ctx, o)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("the redrive stopped: %s; nothing was changed", restore.Cause(context.Cause(ctx)))
	case err != nil:
		return err
	}
	defer release()
	tasks := l.tasks(o)
	report := restore.NewReport(!o.yes, o.discard, tasks, l.backlog)
	if len(tasks) > 0 {
		if err := l.run(ctx, o, tasks, report); err != nil {
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
		return errors.Join(err, report.Interrupted())
	case err == nil && report.Failed > 0 && (!report.Plan || report.Hopeless()):
		return &quietError{exitFailed}
	}
	return err
}

// claim makes a redrive the only one of its slots.
func (l *letters) claim(ctx context.Context, o redriveOptions) (guarded context.Context, release func(), err error) {
	if !o.yes || o.withoutLock {
		return ctx, func() {}, nil
	}
	return l.sources.Claim(ctx, l.read, func() []deadletter.Task { return l.tasks(o) })
}

// tasks are what the options make of the letters.
func (l *letters) tasks(o redriveOptions) []deadletter.Task {
	if o.discard && !o.wholeKey {
		return l.backlog.Selected()
	}
	return l.backlog.Whole()
}

// run re-drives the tasks, or finds out what is known of them without sending.
func (l *letters) run(ctx context.Context, o redriveOptions, tasks []deadletter.Task, report *restore.Report) error {
	work := &restore.Work{Config: l.cfg, Settings: l.settings, Sources: l.sources, Discard: o.discard, DryRun: !o.yes, Waiting: l.waits}
	err := work.Run(ctx, tasks, report.NeedsRows(), report.Add)
	if stopped, ok := errors.AsType[*deadletter.Stopped](err); ok && o.yes {
		report.Stop(stopped)
		return nil
	}
	if err != nil {
		return brokersRefuse(err)
	}
	return nil
}

// waits says what a redrive waits for, as long as the brokers do not acknowledge records.
func (l *letters) waits(w deadletter.Wait) {
	why := "the brokers answer: the topic may be missing, or have no leader or too few replicas in sync"
	if w.Unreachable != nil {
		why = fmt.Sprintf("no broker can be reached: %v", w.Unreachable)
	}
	fmt.Fprintf(l.app.stderr, "cdc-relay: %s of topic %s not acknowledged for %s; %s\n", wording.Count(w.Records, "record"), wording.Printable(w.Topic), w.For, wording.Printable(why))
}

func (l *letters) printRedrive(report *restore.Report) error {
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
	fmt.Fprintln(l.app.stdout, report.Summary())
	l.printLeftOut(report)
	return nil
}

// printLeftOut names the letters that a reader may take for included.
func (l *letters) printLeftOut(report *restore.Report) {
	if n := report.Others; n > 0 {
		match := map[bool]string{true: "matches and is left out", false: "match and are left out"}[n == 1]
		fmt.Fprintf(l.app.stdout, "%s of other sources %s (--source %s); `cdc-relay deadletter list` names their sources\n", wording.Count(n, "dead letter"), match, l.source)
	}
}

func (l *letters) printGroups(report *restore.Report) error {
	lines := tabwriter.NewWriter(l.app.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "TABLE\tTOPIC\tLETTERS\tSELECTED\tFROM TABLE\tROWS\tRESULT")
	for _, g := range report.Groups {
		result := "planned"
		switch {
		case g.Error != "" && report.Plan:
			result = "would fail: " + wording.Printable(g.Error)
		case g.Error != "":
			result = fmt.Sprintf("%d done; %s", g.Done, wording.Printable(g.Error))
		case !report.Plan && g.Done < g.Letters:
			result = fmt.Sprintf("%d done", g.Done)
		case !report.Plan:
			result = "done"
		}
		result += g.Doubts()
		rows := g.From
		if g.Letters > 1 {
			rows += " to " + g.Through
		}
		fmt.Fprintf(lines, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", wording.Printable(g.Table), cmp.Or(wording.Printable(g.Topic), "-"), g.Letters, g.Selected, g.Incomplete, rows, result)
	}
	return lines.Flush()
}
