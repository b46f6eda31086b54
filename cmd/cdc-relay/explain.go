package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/spf13/cobra"
)

func (a *app) explainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what each table is taken for, and the record its newest row would become",
		Long: `explain reads the columns of each configured table and says which preset fits, what
every column is to the relay and who decided so, and what the record of the newest
row would be. It sends nothing and changes nothing. The record shows the payload of
that row; --no-record leaves it out.

Reading the newest row needs SELECT on the table, which run does not. Without it,
explain prints the GRANT and explains the rest (exit code 3).

--sample FILE.json takes a row from a file instead: a JSON object of column and
value, which the server brings into the form of the columns' types. What it leaves
out is NULL.

Values show as they are sent, control characters as ␊ and the like; --json is exact.`,
		Example: `  cdc-relay explain
  cdc-relay explain --table public.outbox --sample row.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			return a.explain(cmd.Context(), cfg, o)
		},
	}
	cmd.Flags().StringVar(&o.sample, "sample", "", "JSON `file` with a row to explain instead of the newest one; - is standard input")
	cmd.Flags().StringVar(&o.table, "table", "", "explain only this one of the configured tables")
	cmd.Flags().BoolVar(&o.noRecord, "no-record", false, "leave the record, and with it the payload, out")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("sample", "no-record")
	return cmd
}

type explainOptions struct {
	sample   string
	table    string
	noRecord bool
	asJSON   bool
}

// explainer is one invocation of explain.
type explainer struct {
	cfg      *config.Config
	settings relay.Config
	routes   *router.Router
	options  explainOptions
	sample   []byte // content of the sample
}

func (a *app) explain(ctx context.Context, cfg *config.Config, o explainOptions) error {
	e := &explainer{cfg: cfg, settings: cfg.Relay(), options: o}
	chosen, err := e.choose()
	if err != nil {
		return &advice.Usage{Err: err}
	}
	if o.sample != "" {
		if e.sample, err = readSample(o.sample); err != nil {
			return &advice.Usage{Err: err}
		}
	}
	if e.routes, err = router.New(e.settings.Router); err != nil {
		return &relay.ConfigError{Err: err}
	}
	var reports []*tableReport
	var failures []error
	unshown := false
	for _, i := range chosen {
		report, err := e.table(ctx, i)
		if err != nil {
			failures = append(failures, err)
		}
		unshown = unshown || report.Problem != ""
		reports = append(reports, report)
	}
	if err := a.printExplanation(reports, o.asJSON); err != nil {
		return err
	}
	if len(failures) == 0 && unshown {
		return &quietError{exitRefused} // the report says why
	}
	return errors.Join(failures...)
}

// names are the tables' names, and behind them the prefixes of logical messages.
func (e *explainer) names() []string {
	var names []string
	for _, t := range e.settings.Replication.Tables {
		names = append(names, t.String())
	}
	return append(names, e.settings.Replication.Messages...)
}

// choose gives the indexes of the tables to explain.
func (e *explainer) choose() ([]int, error) {
	names := e.names()
	if wanted := e.options.table; wanted != "" {
		if t, err := wal.ParseTable(wanted); err == nil && slices.Contains(names, t.String()) {
			wanted = t.String()
		}
		if i := slices.Index(names, wanted); i >= 0 {
			return []int{i}, nil
		}
		return nil, fmt.Errorf("--table: %s is not configured; there are %s", wanted, strings.Join(names, ", "))
	}
	all := make([]int, len(names))
	for i := range all {
		all[i] = i
	}
	if e.options.sample != "" && len(names) > 1 {
		return nil, fmt.Errorf("--sample: there are several tables; say with --table which one the row is of: %s", strings.Join(names, ", "))
	}
	return all, nil
}

// table explains one table. With an error the report is that of a table that
// cannot be explained.
func (e *explainer) table(ctx context.Context, i int) (*tableReport, error) {
	report := &tableReport{Table: e.names()[i], messages: e.messages(i)}
	rel, warnings, err := catalog.Describe(ctx, e.settings.Replication, i)
	if err != nil {
		report.Error = err.Error()
		return report, fault.Refuse(err)
	}
	made, err := e.routes.Check(rel)
	if err != nil {
		err = e.cfg.Locate(err)
		report.Error = err.Error()
		return report, &relay.ConfigError{Err: err}
	}
	report.fill(&tableView{cfg: e.cfg, mapping: e.settings.Router.Mappings[i], rel: rel, made: made})
	report.Warnings = append(report.Warnings, warnings...)
	if e.options.noRecord {
		return report, nil
	}
	return report, e.record(ctx, i, rel, report)
}

// record adds the record of the sample or of the newest row. What only keeps it
// from being shown goes into the report.
func (e *explainer) record(ctx context.Context, i int, rel *wal.Relation, report *tableReport) error {
	var row *wal.Row
	var err error
	from := "the newest row"
	if e.options.sample != "" {
		from = "the sample " + e.options.sample
		var missing []string
		if row, missing, err = sampleRow(rel, e.sample, e.messages(i)); err != nil {
			report.Error = err.Error()
			return sampleError(e.options.sample, err)
		}
		if !e.messages(i) {
			if err := sample.CastRow(ctx, e.settings.Replication, row); err != nil {
				report.Error = err.Error()
				return sampleError(e.options.sample, err)
			}
		}
		if missing = without(missing, report.Ignored); len(missing) > 0 {
			report.Warnings = append(report.Warnings, "the sample leaves out "+strings.Join(missing, ", ")+", taken as NULL")
		}
	} else if e.messages(i) {
		report.Note = "logical messages are kept nowhere; show one's body with --sample FILE.json"
		return nil
	} else if row, err = sample.NewestRow(ctx, e.settings.Replication, i); err != nil {
		report.Problem = "the newest row cannot be read: " + err.Error()
		if refusal, ok := errors.AsType[*fault.Error](err); ok && refusal.Reason == fault.ReasonPermission {
			report.Grant = strings.TrimPrefix(refusal.Hint, "run: ")
		}
		return nil
	}
	if row == nil {
		report.Note = "the table has no rows; show one with --sample FILE.json"
		return nil
	}
	var buf record.Buffer
	if err := e.routes.Route(&buf, row); err != nil {
		report.Problem = from + " would be rejected: " + rejection(err)
		return nil
	}
	if len(buf.Records) == 0 {
		report.Note = from + " would be dropped: a transform or a filter of debezium lets it go"
		return nil
	}
	report.Record = newRecordReport(from, &buf.Records[0]).withPositions(e.settings.PositionHeaders)
	return nil
}

func sampleError(file string, err error) error {
	if refusal, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Refuse(refusal)
	}
	return &advice.Usage{Err: fmt.Errorf("--sample %s: %w", file, err)}
}

// messages says that the i-th source is a prefix of logical messages.
func (e *explainer) messages(i int) bool { return i >= len(e.settings.Replication.Tables) }

// rejection is a routing error without the position, which the row does not have.
func rejection(err error) string {
	rejected, ok := errors.AsType[*record.RowError](err)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("%v (reason %s)", rejected.Err, rejected.Reason)
}

func without(names, unwanted []string) []string {
	var left []string
	for _, name := range names {
		found := false
		for _, u := range unwanted {
			found = found || u == name
		}
		if !found {
			left = append(left, name)
		}
	}
	return left
}

func readSample(file string) ([]byte, error) {
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(os.Stdin) }
	}
	content, err := read()
	if err != nil {
		return nil, fmt.Errorf("--sample: %w", err)
	}
	return content, nil
}

func (a *app) printExplanation(reports []*tableReport, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(a.stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		return out.Encode(map[string]any{"tables": reports})
	}
	for i, r := range reports {
		if r.Error != "" {
			continue // told on standard error
		}
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := r.print(a.stdout); err != nil {
			return err
		}
	}
	return nil
}
