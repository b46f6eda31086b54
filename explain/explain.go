package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// Options say what is explained, and with which row.
type Options struct {
	Table    string // only this one; empty: all that are configured
	Sample   string // name of the file with a row; empty: the newest row of each table
	Read     func(file string) ([]byte, error)
	NoRecord bool // leave the record, and with it the payload, out
}

// Explainer explains the tables of a configuration.
type Explainer struct {
	cfg      *config.Config
	settings relay.Config
	routes   *resolve.Router
	options  Options
	sample   []byte
	chosen   []int // indexes of the tables, and after them of the messages
}

// New chooses the tables, reads the sample and compiles the mappings. It touches no server.
func New(cfg *config.Config, o Options) (*Explainer, error) {
	e := &Explainer{cfg: cfg, settings: cfg.Relay(), options: o}
	var err error
	if e.chosen, err = e.choose(); err != nil {
		return nil, &advice.Usage{Err: err}
	}
	if o.Sample != "" {
		if e.sample, err = o.Read(o.Sample); err != nil {
			return nil, &advice.Usage{Err: err}
		}
	}
	if e.routes, err = resolve.New(e.settings.Router); err != nil {
		return nil, &relay.ConfigError{Err: err}
	}
	return e, nil
}

// Tables explains one table after the other. The error is that of all that cannot be
// explained; what can be is in the reports nevertheless.
func (e *Explainer) Tables(ctx context.Context) (reports []*Table, err error) {
	var failures []error
	for _, i := range e.chosen {
		report, err := e.table(ctx, i)
		same := func(known error) bool { return err != nil && known.Error() == err.Error() } // of the server, not of the table
		if err != nil && !slices.ContainsFunc(failures, same) {
			failures = append(failures, err)
		}
		reports = append(reports, report)
	}
	return reports, errors.Join(failures...)
}

// names are the tables' names, and after them the prefixes of logical messages.
func (e *Explainer) names() []string {
	var names []string
	for _, t := range e.settings.Replication.Tables {
		names = append(names, t.String())
	}
	return append(names, e.settings.Replication.Messages...)
}

// choose gives the indexes of the tables to explain.
func (e *Explainer) choose() ([]int, error) {
	names := e.names()
	if wanted := e.options.Table; wanted != "" {
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
	if e.options.Sample != "" && len(names) > 1 {
		return nil, fmt.Errorf("--sample: there are several tables; name the row's table with --table: %s", strings.Join(names, ", "))
	}
	return all, nil
}

// table explains one table. With an error the report is that of a table that
// cannot be explained.
func (e *Explainer) table(ctx context.Context, i int) (*Table, error) {
	report := &Table{Table: e.names()[i], messages: e.messages(i)}
	rel, warnings, err := catalog.Describe(ctx, e.settings.Replication, i)
	if err != nil {
		report.Error = err.Error()
		return report, fault.Refuse(err)
	}
	made, err := e.routes.Pin(rel)
	if err != nil {
		err = e.cfg.Locate(err)
		report.Error = err.Error()
		return report, &relay.ConfigError{Err: err}
	}
	report.describe(&tableView{cfg: e.cfg, mapping: e.settings.Router.Mappings[i], rel: rel, made: made})
	report.Warnings = append(report.Warnings, warnings...)
	report.Published = published(rel)
	if e.options.NoRecord {
		return report, nil
	}
	return report, e.record(ctx, i, rel, report)
}

// published are the columns that may say which rows a polling publisher has sent.
func published(rel *wal.Relation) (names []string) {
	var shape snapshot.Shape
	for _, c := range rel.Columns {
		kind := c.TypeName
		if kind == "bool" {
			kind = "boolean"
		}
		shape.Columns = append(shape.Columns, snapshot.Column{Name: c.Name, Type: kind, Nullable: true}) // or so the catalog may say
	}
	for _, m := range shape.PublishedColumns() {
		names = append(names, m.Column)
	}
	return names
}

// sampleName is what a report calls the row of --sample.
func sampleName(file string) string {
	if file == "-" {
		return "the sample from the standard input"
	}
	return "the sample " + file
}

// record adds the record of the sample or of the newest row. What only keeps it
// from being shown goes into the report.
func (e *Explainer) record(ctx context.Context, i int, rel *wal.Relation, report *Table) error {
	var row *wal.Row
	var err error
	from := "the newest row"
	if e.options.Sample != "" {
		from = sampleName(e.options.Sample)
		var missing []string
		if row, missing, err = sample.ParseRow(rel, e.sample, e.messages(i)); err != nil {
			report.Error = err.Error()
			return sampleError(e.options.Sample, err)
		}
		if !e.messages(i) {
			if err := sample.CastRow(ctx, e.settings.Replication, row); err != nil {
				report.Error = err.Error()
				return sampleError(e.options.Sample, err)
			}
		}
		if missing = Without(missing, report.Ignored); len(missing) > 0 {
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
	err = e.routes.Route(ctx, &buf, row)
	if unmet, ok := errors.AsType[*schemas.Unmet](err); ok {
		report.Problem = from + " is not encoded: " + unmet.Error()
		return nil
	}
	if err != nil {
		report.Problem = from + " would be rejected: " + Rejection(err)
		return nil
	}
	if len(buf.Records) == 0 {
		report.Note = from + " would be dropped by a transform or a filter of debezium"
		return nil
	}
	report.Record = NewRecord(from, &buf.Records[0]).WithPositions(e.settings.Router.PositionHeaders)
	if value := buf.Records[0].Value; value != nil {
		report.Record.WithSchema(e.routes.Decode(i, value))
	}
	return nil
}

// messages reports whether the i-th source is a prefix of logical messages.
func (e *Explainer) messages(i int) bool { return i >= len(e.settings.Replication.Tables) }

func sampleError(file string, err error) error {
	if refusal, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Refuse(refusal)
	}
	return &advice.Usage{Err: fmt.Errorf("--sample %s: %w", file, err)}
}

// Rejection is a routing error without the position, which the row does not have.
func Rejection(err error) string {
	rejected, ok := errors.AsType[*record.RowError](err)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("%v (reason %s)", rejected.Err, rejected.Reason)
}

func Without(names, unwanted []string) []string {
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
