package main

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/teardown"
	"github.com/spf13/cobra"
)

func (a *app) teardownCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "teardown",
		Short: "Drop slot and publication, never a table or topic (dry run unless --yes)",
		Long: `teardown drops the replication slot and the publication. It refuses while a relay
streams from the slot. Rows committed from then on are not sent by a later relay.

It also drops the slot that an interrupted backfill or cutover has left, which gives that up:
rows that it has not sent are not sent. It refuses while one is under way, and while rows of
a cutover wait in the slot.

teardown drops the slot first, which needs REPLICATION, and then the publication, which
only its owner may drop. A role with REPLICATION that does not own the publication drops
the slot and exits with 3; if the publication is correct, continue with setup.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			steps, err := teardown.Run(cmd.Context(), cfg.Relay().Replication, yes)
			a.printTeardown(steps, yes)
			if err != nil {
				return fault.Refuse(err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "really drop them")
	return cmd
}

func (a *app) printTeardown(steps []provision.Step, done bool) {
	verb, left := "would drop", false
	if done {
		verb = "dropped"
	}
	for _, s := range steps {
		if !s.Exists {
			fmt.Fprintf(a.stdout, "%s %s does not exist\n", s.Object, s.Name)
			continue
		}
		left = true
		fmt.Fprintf(a.stdout, "%s %s %s", verb, s.Object, s.Name)
		interrupted := s.Of.Name != ""
		if interrupted {
			fmt.Fprintf(a.stdout, ", which an interrupted %s has left", s.Of.What())
		}
		fmt.Fprintln(a.stdout)
		if !done && s.SQL != "" {
			fmt.Fprintf(a.stdout, "    %s;\n", s.SQL)
		}
		if !done && interrupted {
			fmt.Fprintf(a.stdout, "    to complete the %s instead: %s\n", s.Of.What(), s.Of.Command())
		}
	}
	if left && !done {
		fmt.Fprintln(a.stdout, "nothing was changed; repeat with --yes")
	}
}
