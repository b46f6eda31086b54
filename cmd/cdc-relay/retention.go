package main

import (
	"context"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) retentionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Remove rows that are delivered and old enough; prints the plan without --once",
		Long: `retention works on the tables whose outbox[].retention.then is not none. It removes a row
that is older than keep if the relay has moved every slot past the row and no dead letter of
the row waits. With drop_partition and detach_partition it removes whole partitions of such
rows, and makes new ones ahead of time. Without --once it prints which rows are due and what
prevents their removal, and changes nothing. The relay may run at the same time, and has to
run for new rows to become due. Run retention as often as you like: one process at a time
works on a table.

Exit codes: 0 done, nothing due, or plan printed; 1 not finished, run it again; 2 usage or
configuration, nothing changed; 3 the environment refuses; 4 a person has to decide about
dead letters.`,
		Example: `  cdc-relay retention
  cdc-relay retention --once
  cdc-relay retention --once --table public.outbox --json`,
	}
	return a.upkeepCommand(cmd, "remove the rows that are due, then exit", func(cfg *config.Config, table string) (upkeepJob, error) {
		all, settings := cfg.Retention()
		policies, err := retention.Tables(all, table)
		return upkeepJob{len(policies), "no table has a retention.then but none", func(ctx context.Context) (upkeepService, error) {
			service, err := retention.Open(ctx, settings, zerolog.Nop())
			return &retentionWork{service, policies}, err
		}}, err
	})
}

type retentionWork struct {
	*retention.Service
	policies []retention.Policy
}

func (w *retentionWork) plan(ctx context.Context, table int) (interface{ Lines() []string }, []error, error) {
	return w.Plan(ctx, &w.policies[table])
}

func (w *retentionWork) once(ctx context.Context, run *upkeepRun, table int) {
	p := &w.policies[table]
	done, err := w.Once(ctx, p, run.teller(p.Table))
	verb := map[retention.Then]string{retention.Delete: "deleted", retention.Archive: "archived", retention.Export: "exported and deleted", retention.DropPartition: "dropped", retention.DetachPartition: "detached"}[p.Then]
	run.once(ctx, upkeepReport{Table: p.Table.String(), Then: string(p.Then)}, verb, done, err)
}
