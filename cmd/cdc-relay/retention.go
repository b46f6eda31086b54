package main

import (
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) retentionCommand() *cobra.Command {
	var once, asJSON bool
	var table string
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Delete or archive rows that are delivered and old enough; prints the plan without --once",
		Long: `retention works on the tables whose outbox[].retention.then is delete or archive. It removes
a row that is older than keep if the relay has moved every slot past the row and no dead
letter of the row waits. Without --once it prints which rows are due and what prevents their
removal, and changes nothing. The relay may run at the same time, and has to run for new rows
to become due. Run retention as often as you like: one process at a time works on a table.

Exit codes: 0 done, nothing due, or plan printed; 1 not finished, run it again; 2 usage or
configuration, nothing changed; 3 the environment refuses; 4 a person has to decide about
dead letters.`,
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
			run := &upkeepRun{app: a, json: asJSON, reports: []any{}}
			if len(policies) == 0 {
				return run.end("no table has retention.then: delete or archive")
			}
			service, err := retention.Open(cmd.Context(), settings, zerolog.Nop())
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
				verb := map[retention.Then]string{retention.Delete: "deleted", retention.Archive: "archived"}[p.Then]
				run.once(cmd.Context(), upkeepReport{Table: p.Table.String(), Then: string(p.Then)}, verb, done, err)
			}
			return run.end("")
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "remove the rows that are due, then exit")
	cmd.Flags().StringVar(&table, "table", "", "only this configured table")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
