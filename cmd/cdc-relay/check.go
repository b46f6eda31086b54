package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/check"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
)

func (a *app) checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check configuration, PostgreSQL and Kafka for problems (read-only)",
		Long: `check compares PostgreSQL, Kafka and the newest rows of the tables with everything that
streaming needs, and prints one line per check: ok, warn or fail, the finding, and the
next step. It changes nothing and may run while a relay runs.

The relay's role has enough rights to run check. Reading rows also needs SELECT on the
tables; check prints the missing GRANT. Lines show names and sizes, never values of rows;
--show-record prints the record that the newest row would become.

Exit codes: 0 nothing failed, 1 interrupted by a signal, 2 the configuration is wrong,
3 something failed.`,
		Example: `  cdc-relay check
  cdc-relay check --offline -c relay.yaml   # the file alone, no server
  cdc-relay check --problems                # warn and fail alone
  cdc-relay check --json | jq '.findings[] | select(.level != "ok")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.timeout <= 0 {
				return notPositive("timeout", o.timeout)
			}
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if err := checkSettings(cfg); err != nil {
				return err
			}
			return a.check(cmd.Context(), cfg, o)
		},
	}
	cmd.Flags().BoolVar(&o.offline, "offline", false, "check the configuration alone")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&o.problems, "problems", "q", false, "print only what is not ok")
	cmd.Flags().BoolVar(&o.problems, "quiet", false, "same as --problems")
	cmd.Flags().BoolVar(&o.showRecord, "show-record", false, "also print the record that each table's newest row would become, with its payload")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "time limit for all checks")
	cmd.MarkFlagsMutuallyExclusive("offline", "show-record")
	return cmd
}

type checkOptions struct {
	offline    bool
	asJSON     bool
	problems   bool // only warn and fail
	showRecord bool
	timeout    time.Duration
}

func (a *app) check(ctx context.Context, cfg *config.Config, o checkOptions) error {
	report := check.Run(ctx, cfg, check.Options{
		Offline: o.offline, ShowRecords: o.showRecord, Timeout: o.timeout,
		Own: func(ctx context.Context) *status.Status { return ownRelay(ctx, cfg) }, RunStep: a.slowly,
	})
	if ctx.Err() != nil {
		return errors.New("check: interrupted by a signal; run it again for a result")
	}
	if err := a.printFindings(report, o); err != nil {
		return err
	}
	if report.Findings.Count(advice.Fail) > 0 {
		return &quietError{exitRefused}
	}
	return nil
}

// ownRelay is the status of the relay that answers at http.listen and has this
// configuration's slot, or nil.
func ownRelay(ctx context.Context, cfg *config.Config) *status.Status {
	c, err := configuredClient(cfg, 2*time.Second)
	if err != nil {
		return nil
	}
	s, err := fetchStatus(ctx, c)
	if err != nil || s.Slot != cfg.Relay().Replication.Shard.Slot {
		return nil
	}
	return &s.Status
}

// patience is how long check looks at something before it says so.
const patience = 2 * time.Second

// slowly runs step, and says what it looks at if that takes long: everything is printed at
// the end.
func (a *app) slowly(what string, step func()) {
	began := time.Now()
	ticker := time.NewTicker(patience)
	defer ticker.Stop()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(a.stderr, "cdc-relay: still looking at %s, for %s\n", what, time.Since(began).Round(time.Second))
				ticker.Reset(10 * time.Second)
			case <-done:
				return
			}
		}
	}()
	step()
	close(done)
	<-ended
}

// shown are the findings that are printed.
func shown(all advice.Findings, problems bool) advice.Findings {
	if !problems {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(f advice.Finding) bool { return f.Level == advice.OK })
}

// levelColours take the same number of bytes each, so that columns stay aligned.
var levelColours = map[advice.Level]string{advice.OK: "\x1b[32m", advice.Warn: "\x1b[33m", advice.Fail: "\x1b[31m"}

// coloured gives a level its colour.
func coloured(level advice.Level, on bool) string {
	if !on {
		return string(level)
	}
	return levelColours[level] + string(level) + "\x1b[0m"
}

// colours reports whether a stream gets any.
func (a *app) colours(out io.Writer) bool { return terminal(out) && a.takesColours() }

// takesColours reports whether a terminal is to get colours.
func (a *app) takesColours() bool { return a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" }

// findings are what check prints with --json, and the console gets.
type findings struct {
	OK       int               `json:"ok"`
	Warn     int               `json:"warn"`
	Fail     int               `json:"fail"`
	Findings advice.Findings   `json:"findings"`
	Records  []*explain.Record `json:"records,omitempty"`
}

// jsonFindings counts all findings, and has those that are shown.
func jsonFindings(all, shown advice.Findings, records []*explain.Record) findings {
	return findings{all.Count(advice.OK), all.Count(advice.Warn), all.Count(advice.Fail), shown, records}
}

func (a *app) printFindings(report *check.Report, o checkOptions) error {
	all := report.Findings
	seen := shown(all, o.problems)
	ok, warn, fail := all.Count(advice.OK), all.Count(advice.Warn), all.Count(advice.Fail)
	if o.asJSON {
		return a.printJSON(jsonFindings(all, seen, report.Records))
	}
	lines := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	colours := a.colours(a.stdout)
	for _, f := range seen {
		text := f.Seen
		if f.Advice != "" {
			text += " → " + f.Advice
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\n", coloured(f.Level, colours), f.Check, wording.Printable(strings.ReplaceAll(text, "\n", " ")))
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	for _, r := range report.Records {
		if err := r.Print(a.stdout); err != nil {
			return err
		}
	}
	between := "\n"
	if len(seen) == 0 {
		between = ""
	}
	_, err := fmt.Fprintf(a.stdout, between+"%d ok, %d warn, %d fail\n", ok, warn, fail)
	return err
}
