package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) retentionCommand() *cobra.Command {
	var once, asJSON bool
	var table string
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Delete or archive rows that are delivered and old enough; prints the plan without --once",
		Long: `retention acts on the tables whose outbox[].retention.then is delete or archive. A row goes
when it is older than keep, when every slot has passed it by the relay's own work, and when
no dead letter of it waits. Without --once it prints what is due and what stands in the way,
and changes nothing. It may run while the relay runs, which it needs to get ahead, and as
often as you like: one process at a time works on a table.

Exit codes: 0 done, nothing was due, or the plan is printed; 1 not finished, run it again;
2 usage or configuration, nothing was touched; 3 the environment refuses; 4 a person has to
decide about dead letters.`,
		Example: `  cdc-relay retention
  cdc-relay retention --once
  cdc-relay retention --once --table public.outbox --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if !asJSON {
				a.warn(cfg)
			}
			all, settings := cfg.Retention()
			policies, err := retention.Tables(all, table)
			if err != nil {
				return &advice.Usage{Err: err}
			}
			run := &retentionRun{app: a, json: asJSON, reports: []any{}}
			if len(policies) == 0 {
				return run.end("no table has retention.then: delete or archive")
			}
			service, err := retention.Open(cmd.Context(), settings, zerolog.Nop())
			if err != nil {
				return retentionError(err)
			}
			defer service.Close()
			for i := range policies {
				if once {
					run.once(cmd.Context(), service, &policies[i])
				} else {
					run.plan(cmd.Context(), service, &policies[i])
				}
			}
			return run.end("")
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "do what is due and end")
	cmd.Flags().StringVar(&table, "table", "", "only this one of the configured tables")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// retentionRun is one invocation: its tables one after the other, each whatever became of
// those before it.
type retentionRun struct {
	app     *app
	json    bool
	reports []any
	errs    []error
}

func (r *retentionRun) plan(ctx context.Context, s *retention.Service, p *retention.Policy) {
	plan, refused, err := s.Plan(ctx, p)
	if err != nil {
		r.failed(ctx, err)
		return
	}
	for _, one := range refused { // the plan says why
		r.errs = append(r.errs, &quietError{exitCode(retentionError(one))})
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
func (r *retentionRun) failed(ctx context.Context, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			r.failed(ctx, one)
		}
		return
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted by a signal; what has not gone yet stays: run it again")
	} else {
		err = retentionError(err)
	}
	r.errs = append(r.errs, err)
}

// retentionReport is what was done in one table.
type retentionReport struct {
	Table   string         `json:"table"`
	Then    retention.Then `json:"then"`
	Rows    int            `json:"rows"`
	Held    int            `json:"held_back"`
	Passed  int            `json:"passed_over"`
	Seconds float64        `json:"seconds"`
	Reason  string         `json:"reason,omitempty"` // why it ended early
	Error   string         `json:"error,omitempty"`
}

func (r *retentionRun) once(ctx context.Context, s *retention.Service, p *retention.Policy) {
	told := time.Now()
	done, err := s.Once(ctx, p, func(d upkeep.Done) {
		if time.Since(told) >= 10*time.Second {
			told = time.Now()
			fmt.Fprintf(r.app.stderr, "cdc-relay: %s: %s so far\n", p.Table, wording.Count(d.Rows, "row"))
		}
	})
	report := retentionReport{Table: p.Table.String(), Then: p.Then, Rows: done.Rows, Held: done.Held, Passed: done.Passed, Seconds: done.Took.Seconds()}
	if err != nil {
		r.failed(ctx, err)
		report.Reason, report.Error = retentionReason(err), err.Error()
	}
	r.reports = append(r.reports, report)
	if r.json {
		return
	}
	verb := map[retention.Then]string{retention.Delete: "deleted", retention.Archive: "archived"}[p.Then]
	line := fmt.Sprintf("%s: %s %s", p.Table, verb, wording.Count(done.Rows, "row"))
	if done.Held > 0 {
		line += fmt.Sprintf("; %d held back by dead letters", done.Held)
	}
	if done.Passed > 0 {
		line += fmt.Sprintf("; %d changed or locked by others, left for another run", done.Passed)
	}
	fmt.Fprintln(r.app.stdout, line)
}

// end prints what is left to print. The exit code is that of the worst table.
func (r *retentionRun) end(nothing string) error {
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

func retentionReason(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return postgres.Reason(e)
	}
	return "error"
}

// retentionError sorts what keeps rows from going.
func retentionError(err error) error {
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
