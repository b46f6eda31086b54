package main

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) backfillCommand() *cobra.Command {
	var o backfill.Options
	out := backfill.Output{Result: a.stdout, Meanwhile: a.stderr}
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Make the slot, and send the rows from before it (dry run unless --yes)",
		Long: `backfill is for a table that has rows already: in the place of setup it makes
publication and slot, and sends the rows from before the slot in the order of each
key. When all are acknowledged it makes the slot from which run streams, without a gap
or an overlap. Without --yes it says what it would do, and touches nothing.

It works with a slot named as the configured one with the ending _backfill. As long as
that exists run and setup refuse. Interrupted, it goes on where it was when it is
called again: with exactly_once without repeating a row, with detect_moved_slot
repeating a second's. Otherwise it begins anew.

The slot holds back the WAL meanwhile, and the snapshot holds back vacuum.`,
		Example: `  cdc-relay backfill --unpublished            # what would happen
  cdc-relay backfill --unpublished --yes
  cdc-relay backfill --where "created_at >= '2026-01-01'" --yes
  cdc-relay run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			if cmd.Flags().Changed("where") && o.Where == "" {
				return &advice.Usage{Err: errors.New("--where is empty; --all sends all rows")}
			}
			check, err := setup.Mappable(cfg)
			if err != nil {
				return err
			}
			b := backfill.Backfill{Settings: cfg.Relay(), Options: o, Out: out, Log: a.newLogger(cfg.Log, cfg.Relay().Pipeline).Level(zerolog.WarnLevel)}
			b.Settings.Version, b.Prepare.Check = build().Version, check
			return asGiven(cmd, b.Run(cmd.Context()))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Yes, "yes", false, "do it")
	f.StringVar(&o.Table, "table", "", "this `table` of the configuration alone")
	f.StringVar(&o.Where, "where", "", "rows that meet this SQL `condition`")
	f.BoolVar(&o.Unpublished, "unpublished", false, "rows that a column such as published_at shows as not published; the default where there is such a column")
	f.BoolVar(&o.All, "all", false, "all rows")
	f.StringSliceVar(&o.Order, "order", nil, "`columns` by which rows are ordered, which no update changes (default: a key that is drawn from a sequence, else the time of creation and the key)")
	f.IntVar(&o.MaxRate, "max-rate", 0, "rows a second at most; 0: no limit")
	f.BoolVar(&o.AcceptWAL, "accept-wal", false, "begin also where the slot may be lost before the end (max_slot_wal_keep_size)")
	f.BoolVar(&o.AcceptOrder, "accept-order", false, "begin also where no column has the order of writing")
	f.BoolVar(&o.Restart, "restart", false, "begin anew where an interrupted backfill cannot go on; rows that it sent come again")
	f.BoolVar(&out.JSON, "json", false, "plan, steps and progress as JSON, one object a line")
	return cmd
}
