package main

import (
	"context"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) markCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mark",
		Short: "Set published_at and the like on rows that are delivered; prints the plan without --once",
		Long: `mark works on the tables that have outbox[].mark.column. It marks a row once the relay has
confirmed every slot past it and no dead letter of it waits; it never removes a mark. With
outbox[].rejects it also fills those columns of rows whose dead letter waits. Without
--once it prints how many rows have no mark and what prevents it, and changes nothing. The
relay may run at the same time, and has to run for further rows to become markable. Run mark
as often as you like: one process at a time works on a table.

Exit codes: 0 done, there was nothing to mark, or the plan is printed; 1 not finished, run it
again; 2 usage or configuration, nothing was changed; 3 the environment refuses; 4 a person
has to decide about dead letters.`,
		Example: `  cdc-relay mark
  cdc-relay mark --once
  cdc-relay mark --once --table public.outbox --json`,
	}
	return a.upkeepCommand(cmd, "mark the rows that are delivered, then exit", func(cfg *config.Config, table string) (upkeepJob, error) {
		all, settings := cfg.Marks()
		policies, err := marks.Tables(all, table)
		return upkeepJob{len(policies), "no table has mark.column", func(ctx context.Context) (upkeepService, error) {
			service, err := marks.Open(ctx, settings, zerolog.Nop())
			return &markWork{service, policies}, err
		}}, err
	})
}

type markWork struct {
	*marks.Service
	policies []marks.Policy
}

func (w *markWork) plan(ctx context.Context, table int) (interface{ Lines() []string }, []error, error) {
	return w.Plan(ctx, &w.policies[table])
}

func (w *markWork) once(ctx context.Context, run *upkeepRun, table int) {
	p := &w.policies[table]
	done, err := w.Once(ctx, p, run.teller(p.Table))
	run.once(ctx, upkeepReport{Table: p.Table.String(), Column: p.Column}, "marked", done, err)
}
