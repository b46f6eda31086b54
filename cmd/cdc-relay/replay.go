package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/selection"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func (a *app) replayCommand() *cobra.Command {
	var o backfill.ReplayOptions
	var since, until, ids string
	out := backfill.Output{Result: a.stdout, Meanwhile: a.stderr}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Send chosen rows of the table again (dry run unless --yes)",
		Long: `replay reads rows from the table, routes them with the present mapping, and sends them
again with the header cdc-relay-replay. Without --yes it prints what it would send, and
sends nothing. Rows that are no longer in the table cannot be sent.

A record that is sent again lies after newer ones of its key. One flag decides about the
order: --to-topic sends to another topic; --complete-keys also sends every newer row of
the same keys, so that each key ends with its newest row; --accept-order sends the records
after the newer ones. Without one of them replay refuses if a key has newer rows. Unless
--to-topic or --accept-order is set, stop the relay first: replay uses its slot meanwhile,
and confirms nothing. Rows of keys with dead letters that wait need one of the two as well.

An interrupted replay continues with the same flags and --resume RUN, if the configuration
keeps positions in Kafka. With exactly_once it repeats no row; with detect_moved_slot it
repeats up to a second of rows.

Exit codes: 0 sent, or the plan is printed; 1 not finished, or rows could not be sent;
2 usage or configuration; 3 the environment refuses.`,
		Example: `  cdc-relay replay --since 2026-01-31T08:00:00Z --until 2026-01-31T09:00:00Z
  cdc-relay replay --ids ids.txt --to-topic orders-again --yes
  cdc-relay replay --key customer-7 --complete-keys --yes`,
		Args: cobra.NoArgs, Annotations: logs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if !out.JSON {
				a.warn(cfg)
			}
			if o.Since, o.Until, err = selection.Between(since, until); err != nil {
				return err
			}
			if cmd.Flags().Changed("ids") {
				if o.IDs, err = readIDs(ids, os.Stdin); err != nil {
					return &advice.Usage{Err: fmt.Errorf("--ids: %w", err)}
				}
			}
			settings := cfg.Relay()
			settings.Version = build().Version
			r := backfill.Replay{Settings: settings, Options: o, Out: out, Log: a.newLogger(cfg.Log, settings.Pipeline).Level(zerolog.WarnLevel)}
			return asGiven(cmd, r.Run(cmd.Context()))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Yes, "yes", false, "send them")
	f.StringVar(&o.Table, "table", "", "this `table` of the configuration")
	f.StringVar(&since, "since", "", "rows from this `time` on, with its zone (RFC 3339)")
	f.StringVar(&until, "until", "", "rows from before this `time`")
	f.StringVar(&o.By, "by", "", "`column` with the time of a row, for --since and --until (default: a column with a usual name for the creation time)")
	f.StringVar(&ids, "ids", "", "rows of these events: a `file` with an id in each line, or - for the standard input")
	f.StringArrayVar(&o.Keys, "key", nil, "rows with this `key`; may be repeated")
	f.StringVar(&o.Topic, "topic", "", "rows that the mapping sends to this `topic`")
	f.StringVar(&o.Where, "where", "", "rows that meet this SQL `condition`")
	f.StringSliceVar(&o.Order, "order", nil, "`columns` that order the rows and that no update changes (default: a key drawn from a sequence, else the creation time and the key)")
	f.StringVar(&o.ToTopic, "to-topic", "", "send the records to this `topic`, and not to their own")
	f.BoolVar(&o.CompleteKeys, "complete-keys", false, "send every newer row of the same keys too")
	f.BoolVar(&o.AcceptOrder, "accept-order", false, "send after newer records of the same keys, or ahead of dead letters of theirs that wait, also while a relay runs")
	f.IntVar(&o.MaxRate, "max-rate", 0, "maximum rows per second; 0: no limit")
	f.IntVar(&o.MaxRows, "max-rows", 100_000, "refuse to send more rows than these")
	f.StringVar(&o.Resume, "resume", "", "continue this `run`, which was interrupted")
	f.BoolVar(&out.JSON, "json", false, "print plan, steps and progress as JSON, one object per line")
	return cmd
}

// readIDs reads an id from each line that is not empty.
func readIDs(name string, stdin io.Reader) (ids []string, err error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if id := strings.TrimSpace(lines.Text()); id != "" {
			ids = append(ids, id)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, errors.New("there is no id in it")
	}
	return ids, nil
}
