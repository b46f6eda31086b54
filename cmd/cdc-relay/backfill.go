package main

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) backfillCommand() *cobra.Command {
	var o backfill.Options
	var late bool
	var toTopic string
	out := backfill.Output{Result: a.stdout, Meanwhile: a.stderr}
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Create the slot and send the rows from before it (dry run unless --yes)",
		Long: `backfill is for a table that already has rows. Run it instead of setup: it creates the
publication and sends the rows that were written before the slot, keeping the order of
each key. When the brokers have acknowledged all of them, it creates the slot from which
run streams, without a gap or an overlap. Without --yes it prints what it would do and
changes nothing.

backfill uses a slot of its own, named like the configured slot with the suffix _backfill.
While that slot exists, run and setup refuse to start. An interrupted backfill continues
when it is called again in the same way. With exactly_once it repeats no row; with detect_moved_slot it
repeats the rows of about one second (with --online: of the bucket at work, or of the stream
since it); otherwise it starts from the beginning.

While backfill runs, its slot holds back the WAL and its snapshot holds back vacuum. With
--online it sends one bucket of keys after the other and streams in between, so that it holds
back little; nobody may delete a row, or change a key, before its bucket is sent.

--late is for a slot that exists: it sends the rows of --where beside the relay, each
marked with the header cdc-relay-backfill, and changes neither the slot nor the relay. The
rows keep their order among themselves, but newer rows of a key may be in Kafka already, or
wait as dead letters: if there are any, one of --to-topic and --accept-order is needed.

Exit codes: 0 sent, nothing to do, or the plan is printed; 1 not finished, run it again;
2 usage or configuration; 3 the environment refuses; 4 a row cannot be sent.`,
		Example: `  cdc-relay backfill --unpublished            # what would happen
  cdc-relay backfill --unpublished --yes
  cdc-relay backfill --where "created_at >= '2026-01-01'" --yes
  cdc-relay run
  cdc-relay backfill --late --where "created_at < '2026-01-01'" --to-topic orders-old --yes`,
		Args:        cobra.NoArgs,
		Annotations: logs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			if cmd.Flags().Changed("where") && o.Where == "" {
				return &advice.Usage{Err: errors.New("--where is empty; --all sends all rows")}
			}
			log := a.newLogger(cfg.Log, cfg.Relay().Pipeline).Level(zerolog.WarnLevel)
			if late {
				return backfillBeside(cmd, cfg.Relay(), &o, toTopic, out, log)
			}
			if toTopic != "" {
				return &advice.Usage{Err: errors.New("--to-topic is for --late: the rows from before a new slot belong before those of its stream")}
			}
			check, err := setup.Mappable(cfg)
			if err != nil {
				return err
			}
			b := backfill.Backfill{Settings: cfg.Relay(), Options: o, Out: out, Log: log}
			b.Settings.Version, b.Prepare.Check = build().Version, check
			return asGiven(cmd, b.Run(cmd.Context()))
		},
	}
	backfillFlags(cmd, &o)
	f := cmd.Flags()
	f.BoolVar(&late, "late", false, "send the rows of --where beside a relay that streams from the slot")
	f.StringVar(&toTopic, "to-topic", "", "with --late: send the records to this `topic`, and not to their own")
	f.BoolVar(&out.JSON, "json", false, "print plan, steps and progress as JSON, one object per line")
	return cmd
}

// backfillBeside is backfill --late.
func backfillBeside(cmd *cobra.Command, settings relay.Config, o *backfill.Options, toTopic string, out backfill.Output, log zerolog.Logger) error {
	options, err := o.Beside(toTopic)
	if err != nil {
		return err
	}
	settings.Version = build().Version
	b := backfill.Beside{Settings: settings, Options: options, Out: out, Log: log}
	return asGiven(cmd, b.Run(cmd.Context()))
}

func backfillFlags(cmd *cobra.Command, o *backfill.Options) {
	f := cmd.Flags()
	f.BoolVar(&o.Yes, "yes", false, "do it")
	f.StringVar(&o.Table, "table", "", "this `table` of the configuration only")
	f.StringVar(&o.Where, "where", "", "rows that meet this SQL `condition`")
	f.BoolVar(&o.Unpublished, "unpublished", false, "rows that a column such as published_at marks as not published; the default if there is one such column")
	f.BoolVar(&o.All, "all", false, "all rows")
	f.StringSliceVar(&o.Order, "order", nil, "`columns` that order the rows and that no update changes (default: a key drawn from a sequence, else the creation time and the key)")
	f.IntVar(&o.MaxRate, "max-rate", 0, "maximum rows per second; 0: no limit")
	f.BoolVar(&o.AcceptWAL, "accept-wal", false, "start even if the slot may be lost before the end (max_slot_wal_keep_size)")
	f.BoolVar(&o.AcceptOrder, "accept-order", false, "start although no column gives the order of writing; with --late, also send after newer records of a key, or ahead of its dead letters that wait")
	f.BoolVar(&o.Online, "online", false, "send one bucket of keys after the other and stream from the slot in between, so that it holds back little WAL; needs --all and --rows-are-kept")
	f.BoolVar(&o.RowsAreKept, "rows-are-kept", false, "with --online: nobody deletes a row, or changes a key, before its bucket is sent; the server's count of deleted rows is watched")
	f.IntVar(&o.Buckets, "buckets", 0, "with --online: the `number` of buckets, up to 256; 0: by the number of rows, at least 16")
	f.BoolVar(&o.AcceptDeletes, "accept-deletes", false, "with --online: go on although rows were deleted since the last bucket; those of a later bucket are never sent")
	f.BoolVar(&o.Restart, "restart", false, "start from the beginning if an interrupted backfill cannot continue; rows that it sent are repeated")
}
