package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type reshardFlags struct {
	from int
	wait time.Duration
}

func (f reshardFlags) check(flags *pflag.FlagSet) error {
	switch given := flags.Changed("reshard-from"); {
	case given && (f.from < 1 || f.from > postgres.MaxShards):
		return &advice.Usage{Err: fmt.Errorf("--reshard-from %d is not allowed; allowed: the number of shards so far, from 1 to %d", f.from, postgres.MaxShards)}
	case flags.Changed("wait") && !given:
		return &advice.Usage{Err: errors.New("--wait is not allowed by itself; allowed: with --reshard-from, as nothing else waits")}
	case f.wait <= 0:
		return notPositive("wait", f.wait)
	}
	return nil
}

// reshard changes the number of shards to that of the configuration.
func (a *app) reshard(cmd *cobra.Command, settings relay.Config, options provision.SetupOptions, f reshardFlags) error {
	switch {
	case settings.Guarantee == relay.ExactlyOnce:
		return &advice.Usage{Err: errors.New("--reshard-from is not possible with relay.guarantee: exactly_once: the checkpoints belong to the old slots, and rows from behind the least of them would be sent twice")}
	case settings.ParkKey:
		return &advice.Usage{Err: errors.New("--reshard-from is not possible with relay.park_key: the new slots would not know the parked keys; re-drive all of them, set relay.park_key: false, and set it again afterwards")}
	}
	report, err := provision.Reshard(cmd.Context(), settings.Replication, f.from, provision.ReshardOptions{
		Columns: options.Columns,
		OnStep: func(s provision.Step) {
			switch {
			case s.Exists:
				fmt.Fprintf(a.stdout, "-- %s %s exists\n", s.Object, s.Name)
			case s.Object == provision.DroppedSlot:
				fmt.Fprintf(a.stdout, "dropped slot %s\n", s.Name)
			default:
				fmt.Fprintf(a.stdout, "created %s %s\n", s.Object, s.Name)
			}
		},
		OnWait: func(text string) { fmt.Fprintf(a.stdout, "waiting: %s\n", text) },
		Wait:   f.wait,
	})
	if report != nil {
		a.printReport(report)
	}
	if err != nil {
		return fault.Refuse(err)
	}
	fmt.Fprintf(a.stdout, "done: start `cdc-relay run` with postgres.shards: %d\n", max(1, settings.Replication.Shard.Count))
	return nil
}
