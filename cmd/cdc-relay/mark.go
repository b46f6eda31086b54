package main

import (
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) markCommand() *cobra.Command {
	var once, asJSON bool
	var table string
	cmd := &cobra.Command{
		Use:   "mark",
		Short: "Set published_at and the like on rows that are delivered; prints the plan without --once",
		Long: `mark acts on the tables that have outbox[].mark.column. A row gets its mark when every slot has
passed it by the relay's own work, and when no dead letter of it waits; a mark is never taken
back. Without --once it prints how many rows have none and what stands in the way, and
changes nothing. It may run while the relay runs, which it needs to get ahead, and as often
as you like: one process at a time works on a table.

Exit codes: 0 done, there was nothing to mark, or the plan is printed; 1 not finished, run it
again; 2 usage or configuration, nothing was changed; 3 the environment refuses; 4 a person
has to decide about dead letters.`,
		Example: `  cdc-relay mark
  cdc-relay mark --once
  cdc-relay mark --once --table public.outbox --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if !asJSON {
				a.warn(cfg)
			}
			all, settings := cfg.Marks()
			policies, err := marks.Tables(all, table)
			if err != nil {
				return &advice.Usage{Err: err}
			}
			run := &upkeepRun{app: a, json: asJSON, reports: []any{}}
			if len(policies) == 0 {
				return run.end("no table has mark.column")
			}
			service, err := marks.Open(cmd.Context(), settings, zerolog.Nop())
			if err != nil {
				return upkeepError(err)
			}
			defer service.Close()
			for i := range policies {
				p := &policies[i]
				if !once {
					plan, refused, err := service.Plan(cmd.Context(), p)
					run.plan(cmd.Context(), plan, refused, err)
					continue
				}
				done, err := service.Once(cmd.Context(), p, run.teller(p.Table))
				run.once(cmd.Context(), upkeepReport{Table: p.Table.String(), Column: p.Column}, "marked", done, err)
			}
			return run.end("")
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "mark the rows that are delivered, then exit")
	cmd.Flags().StringVar(&table, "table", "", "only this configured table")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
