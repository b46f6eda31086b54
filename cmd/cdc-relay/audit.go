package main

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/audit"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/spf13/cobra"
)

func (a *app) auditCommand() *cobra.Command {
	var o audit.Options
	var memory string
	out := audit.Output{Result: a.stdout, Meanwhile: a.stderr}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Prove the table against the topics, row by row; only reads",
		Long: `audit compares every row with the records of its event id: whether there is one, in
the right topic, with the key, value and headers that the mapping makes, once or at least
once, and in the order of its key. It takes a snapshot of the table, waits until the relay
has passed it, and reads the topics to their ends. The last line is "proven N of M".

It only reads, beside a relay at work, and needs no right to replicate. What does not fit
into --memory goes to files in --dir that are gone afterwards: some 10 GB for 100 million
rows. The snapshot holds back vacuum while audit runs.

Exit codes: 0 no fault; 1 not finished, run it again; 2 usage or configuration; 3 the
environment refuses; 4 faults were found. Where records are missing because a topic removed
them, or because the row's dead letter waits, the row is neither a fault nor proven.`,
		Example: `  cdc-relay audit
  cdc-relay audit --since 2026-01-31T00:00:00Z --until 2026-02-01T00:00:00Z
  cdc-relay audit --sample 1/100
  cdc-relay audit --table public.outbox --where "tenant_id = 7" --show-ids --report audit.ndjson`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if !out.JSON {
				a.warn(cfg)
			}
			if o.Memory, err = config.ParseSize(memory); err != nil {
				return &advice.Usage{Err: fmt.Errorf("--memory: %w", err)}
			}
			run := audit.Audit{Settings: cfg.Relay(), Options: o, Out: out}
			return asGiven(cmd, run.Run(cmd.Context()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Table, "table", "", "this `table` of the configuration only")
	f.StringVar(&o.Where, "where", "", "rows that meet this SQL `condition`")
	f.StringVar(&o.Since, "since", "", "rows from this `time` on, with its zone (RFC 3339)")
	f.StringVar(&o.Until, "until", "", "rows from before this `time`")
	f.StringVar(&o.By, "by", "", "`column` with the time of a row, for --since and --until (default: a column with a usual name for the creation time)")
	f.StringSliceVar(&o.Order, "order", nil, "`columns` that order the rows and that no update changes (default: a key drawn from a sequence, else the creation time and the key)")
	f.BoolVar(&o.ConcurrentWriters, "concurrent-writers", false, "writers of one key may overlap: a wrong order is then order_unclear, not out_of_order")
	f.StringVar(&o.Sample, "sample", "", "one of N events (`1/N`), chosen by the hash of its id")
	f.StringVar(&o.Expect, "expect", "", "once: a second record is a fault; at-least-once: it is not (default: once with relay.guarantee: exactly_once)")
	complete(cmd, "expect", []string{audit.Once, audit.AtLeastOnce})
	f.StringVar(&memory, "memory", "256MiB", "approximate limit of memory")
	f.StringVar(&o.Dir, "dir", "", "`directory` for what does not fit into memory (default: the system's for temporary files)")
	f.StringVar(&o.Report, "report", "", "write the result to this `file`: a line of JSON for each finding, the counts last; an older one is replaced")
	f.BoolVar(&o.ShowIDs, "show-ids", false, "show event ids, instead of the first digits of their SHA-256")
	f.DurationVar(&o.Wait, "wait", time.Minute, "how long the slots may take to pass the snapshot")
	f.BoolVar(&out.JSON, "json", false, "print progress and result as JSON, one object per line")
	return cmd
}
