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
	cmd.Flags().BoolVar(&once, "once", false, "do what is due and end")
	cmd.Flags().StringVar(&table, "table", "", "only this one of the configured tables")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
