package main

import (
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/cutover"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) cutoverCommand() *cobra.Command {
	var o cutover.Options
	var way cutoverWay
	out := backfill.Output{Result: a.stdout, Meanwhile: a.stderr}
	cmd := &cobra.Command{
		Use:   "cutover",
		Short: "Cut over from a publisher that polls the table (dry run unless --yes)",
		Long: `cutover is for a table that a polling publisher sends. Run it instead of setup.
Without --yes it prints what it would do and changes nothing. An interrupted cutover
continues when it is called again.

With --stopped the publisher has ended. The table is watched for a while, and cutover
refuses if a publisher is still active. Then it sends the rows that the publisher left, as
backfill --unpublished does.

With --mark-new the publisher runs on. A trigger marks each new row as published, so that
the publisher does not see it, and the slot has exactly those rows. The publisher sends the
rest; then cutover creates the slot from which run streams. No row is lost, none is sent by both,
and of each key the publisher's rows come first. Writers wait while the trigger is created,
at most two seconds.

--compare N shows how the relay's records would differ from the last ones that the publisher
sent, and with --yes goes on only if topic, key and value are the same. A publisher
that was killed may have sent rows and not marked them: --skip-present leaves out rows whose
event is in its topic already. Both need READ and DESCRIBE on the topics.

--back undoes --mark-new, with the relay stopped: it delivers what the slot has, removes the
trigger, and leaves later rows to the publisher.

Exit codes: 0 done, or the plan is printed; 1 not finished, run it again; 2 usage or
configuration, nothing was changed; 3 the environment refuses; 4 a person has to decide.`,
		Example: `  cdc-relay cutover --mark-new               # what would happen
  cdc-relay cutover --mark-new --yes
  cdc-relay cutover --stopped --yes          # instead, once every instance has ended
  cdc-relay run`,
		Args:        cobra.NoArgs,
		Annotations: logs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			if o.Mode, err = way.mode(); err != nil {
				return err
			}
			if o.GivenUp = cutover.GivenUp(way.givenUp); o.Mode == cutover.Stopped && !cmd.Flags().Changed("watch") {
				o.Watch = 10 * time.Second
			}
			check, err := setup.Mappable(cfg)
			if err != nil {
				return err
			}
			c := cutover.Cutover{Settings: cfg.Relay(), Options: o, Out: out, Log: a.newLogger(cfg.Log, cfg.Relay().Pipeline).Level(zerolog.WarnLevel)}
			c.Settings.Version, c.Prepare.Check = build().Version, check
			return asGiven(cmd, c.Run(cmd.Context()))
		},
	}
	cutoverFlags(cmd, &o, &way)
	cmd.Flags().BoolVar(&out.JSON, "json", false, "print plan, steps and progress as JSON, one object per line")
	return cmd
}

// cutoverWay is which way the flags say.
type cutoverWay struct {
	markNew, stopped, back bool
	givenUp                string
}

func (w *cutoverWay) mode() (cutover.Mode, error) {
	switch {
	case w.markNew && w.back, w.markNew && w.stopped, w.back && w.stopped:
		return "", &advice.Usage{Err: errors.New("only one of --stopped, --mark-new and --back is allowed")}
	case w.stopped:
		return cutover.Stopped, nil
	case w.markNew:
		return cutover.MarkNew, nil
	case w.back:
		return cutover.Back, nil
	}
	return "", nil
}

func cutoverFlags(cmd *cobra.Command, o *cutover.Options, way *cutoverWay) {
	f := cmd.Flags()
	f.BoolVar(&o.Yes, "yes", false, "do it")
	f.BoolVar(&way.stopped, "stopped", false, "every instance of the publisher has ended")
	f.BoolVar(&way.markNew, "mark-new", false, "the publisher runs on, and does not see new rows")
	f.BoolVar(&way.back, "back", false, "give the table back to the publisher, after --mark-new")
	f.StringSliceVar(&o.Marks, "mark", nil, "`columns` that mark published rows: first the one that the publisher asks for, then others that it sets (default: found in the table)")
	f.StringVar(&o.Published, "published", "", "the `status` of a published row (default: the one that is found)")
	f.StringVar(&way.givenUp, "given-up", "", "rows that the publisher gave up: leave them as they are, or, with --stopped, send them")
	complete(cmd, "given-up", []string{"leave", "send"})
	f.DurationVar(&o.Watch, "watch", 3*time.Second, "how long the plan watches the table, at least twice the publisher's interval (with --stopped: 10s)")
	f.DurationVar(&o.Settle, "settle", 30*time.Second, "how long a publisher without locks may take to send what it has read")
	f.DurationVar(&o.Stall, "stall", 2*time.Second, "with --back: how long writers may wait")
	f.IntVar(&o.Compare, "compare", 0, "compare what the relay would send of the newest `N` published rows of each table with what the publisher sent; 0: do not")
	f.StringVar(&o.IDField, "id-field", "", "the `member` of a record's JSON value that has the event id, if the publisher's records have no header id")
	f.BoolVar(&o.AcceptDifference, "accept-difference", false, "with --compare: go on although topic, key or value differ")
	f.BoolVar(&o.SkipPresent, "skip-present", false, "with --stopped: leave out rows whose event is in its topic already, unless the order of a key would suffer")
	f.BoolVar(&o.AcceptWAL, "accept-wal", false, "with --stopped: as for backfill")
	f.BoolVar(&o.AcceptOrder, "accept-order", false, "with --stopped: as for backfill")
}
