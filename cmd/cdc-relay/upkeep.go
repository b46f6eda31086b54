package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
)

// upkeepJob is one kind of work on delivered rows, as a command.
type upkeepJob struct {
	tables  int    // that have it
	nothing string // what is said without any
	open    func(context.Context) (upkeepService, error)
}

// upkeepService does the work. A table is named by its place among those of the job.
type upkeepService interface {
	plan(ctx context.Context, table int) (shown interface{ Lines() []string }, refused []error, err error)
	once(ctx context.Context, run *upkeepRun, table int)
	Close()
}

// upkeepCommand gives a command its flags. job finds out which tables are meant.
func (a *app) upkeepCommand(cmd *cobra.Command, does string, job func(cfg *config.Config, table string) (upkeepJob, error)) *cobra.Command {
	var once, asJSON bool
	var table string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		if !asJSON {
			a.warn(cfg)
		}
		work, err := job(cfg, table)
		if err != nil {
			return &advice.Usage{Err: err}
		}
		run := &upkeepRun{app: a, json: asJSON, reports: []any{}}
		if work.tables == 0 {
			return run.end(work.nothing)
		}
		service, err := work.open(cmd.Context())
		if err != nil {
			return upkeepError(err)
		}
		defer service.Close()
		for i := range work.tables {
			if once {
				service.once(cmd.Context(), run, i)
				continue
			}
			plan, refused, err := service.plan(cmd.Context(), i)
			run.plan(cmd.Context(), plan, refused, err)
		}
		return run.end("")
	}
	cmd.Flags().BoolVar(&once, "once", false, does)
	cmd.Flags().StringVar(&table, "table", "", "only this configured table")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// upkeepRun is one invocation: its tables one after the other, each whatever became of
// those before it.
type upkeepRun struct {
	app     *app
	json    bool
	reports []any
	errs    []error
}

// plan shows what would be done in a table.
func (r *upkeepRun) plan(ctx context.Context, plan interface{ Lines() []string }, refused []error, err error) {
	if err != nil {
		r.failed(ctx, err)
		return
	}
	for _, one := range refused { // the plan explains why
		r.errs = append(r.errs, &quietError{exitCode(upkeepError(one))})
	}
	r.reports = append(r.reports, plan)
	if r.json {
		return
	}
	for _, line := range plan.Lines() {
		fmt.Fprintln(r.app.stdout, wording.Printable(line))
	}
}

// failed keeps each reason by itself.
func (r *upkeepRun) failed(ctx context.Context, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			r.failed(ctx, one)
		}
		return
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted by a signal; the remaining rows stay as they are: run it again")
	} else {
		err = upkeepError(err)
	}
	r.errs = append(r.errs, err)
}

// upkeepReport is what was done in one table.
type upkeepReport struct {
	Table   string  `json:"table"`
	Then    string  `json:"then,omitempty"`
	Column  string  `json:"column,omitempty"`
	Rows    int     `json:"rows"`
	Held    int     `json:"held_back"`
	Passed  int     `json:"passed_over"`
	Others  int     `json:"marked_by_others,omitempty"`
	Made    *int    `json:"partitions_made,omitempty"`
	Removed *int    `json:"partitions_removed,omitempty"`
	Kept    *int    `json:"partitions_held_back,omitempty"`
	Bytes   int64   `json:"exported_bytes,omitempty"`
	Said    int     `json:"rejects_shown,omitempty"`
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason,omitempty"` // why it ended early
	Error   string  `json:"error,omitempty"`
}

// teller says now and then how far the work on a table is.
func (r *upkeepRun) teller(table wal.Table) func(upkeep.Done) {
	told := time.Now()
	return func(d upkeep.Done) {
		if time.Since(told) >= 10*time.Second {
			told = time.Now()
			fmt.Fprintf(r.app.stderr, "cdc-relay: %s: %s so far\n", table, wording.Count(d.Rows, "row"))
		}
	}
}

// once shows what was done in a table.
func (r *upkeepRun) once(ctx context.Context, report upkeepReport, verb string, done upkeep.Done, err error) {
	report.Bytes, report.Said, report.Others = done.Bytes, done.Rejected, done.Others
	report.Rows, report.Held, report.Passed, report.Seconds = done.Rows, done.Held, done.Passed, done.Took.Seconds()
	if err != nil {
		r.failed(ctx, err)
		report.Reason, report.Error = upkeep.Reason(err), err.Error()
	}
	if p := done.Parts; p != nil {
		report.Made, report.Removed, report.Kept = &p.Made, &p.Removed, &p.Held
	}
	r.reports = append(r.reports, report)
	if r.json {
		return
	}
	line := fmt.Sprintf("%s: %s %s", report.Table, verb, wording.Count(done.Rows, "row"))
	if p := done.Parts; p != nil {
		line = fmt.Sprintf("%s: %s %s", report.Table, verb, wording.Count(p.Removed, "partition"))
		if p.Held > 0 {
			line += fmt.Sprintf("; %d held back by dead letters", p.Held)
		}
		if p.Made > 0 {
			line += fmt.Sprintf("; made %d", p.Made)
		}
		if done.Rows > 0 {
			line += "; deleted " + wording.Count(done.Rows, "row") + " of the default partition"
		}
	}
	if done.Held > 0 {
		line += fmt.Sprintf("; %d held back by dead letters", done.Held)
	}
	if done.Rejected > 0 {
		line += fmt.Sprintf("; %d show their dead letter now", done.Rejected)
	}
	if done.Passed > 0 {
		line += fmt.Sprintf("; %d changed or locked by others, left for another run", done.Passed)
	}
	if done.Others > 0 {
		line += fmt.Sprintf("; %d marked by somebody else meanwhile", done.Others)
	}
	fmt.Fprintln(r.app.stdout, line)
}

// end prints what is left to print. The exit code is that of the worst table.
func (r *upkeepRun) end(nothing string) error {
	if r.json {
		if err := r.app.printJSON(map[string]any{"tables": r.reports}); err != nil {
			return err
		}
	} else if nothing != "" {
		fmt.Fprintln(r.app.stdout, nothing)
	}
	worst := exitOK
	for _, err := range r.errs {
		code := r.app.report(err)
		if rank(code) > rank(worst) {
			worst = code
		}
	}
	if worst == exitOK {
		return nil
	}
	return &quietError{worst}
}

// rank orders exit codes by how much of a person they need.
func rank(code int) int {
	return map[int]int{exitOK: 0, exitFailed: 1, exitRefused: 2, exitBlocked: 3, exitUsage: 4}[code]
}

// upkeepError sorts what keeps work on rows from being done.
func upkeepError(err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return brokersRefuse(err)
	}
	switch reason := postgres.Reason(e); reason {
	case fault.ReasonConfiguration:
	case fault.ReasonDeadLettersFull:
		return &relay.BlockedError{Reason: reason, Err: err}
	default:
		err = fmt.Errorf("%w (reason %s)", err, reason)
	}
	if upkeep.Unfinished(err) {
		return err
	}
	return fault.Refuse(err)
}
