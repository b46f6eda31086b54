package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
)

func (a *app) checkCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check configuration, PostgreSQL and Kafka for problems (read-only)",
		Long: `check asks PostgreSQL and Kafka for everything that streaming depends on, looks at
the newest rows of the tables and prints one line a check: ok, warn or fail, what was
seen, and what to do. It changes nothing and may run beside a relay.

It works as the relay's own role. Looking at rows needs SELECT on the tables as well;
the GRANT is printed where it is missing. No line shows anything of a row but names
and sizes; --show-record prints the record that the newest row would become.

Exit codes: 0 nothing failed, 1 it was told to stop, 2 the configuration is wrong, 3 something failed.`,
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
			if err := checkRooms(cfg); err != nil {
				return err
			}
			return a.check(cmd.Context(), cfg, o)
		},
	}
	cmd.Flags().BoolVar(&o.offline, "offline", false, "check the configuration alone")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&o.problems, "problems", "q", false, "print only what is not ok")
	cmd.Flags().BoolVar(&o.problems, "quiet", false, "the same as --problems")
	cmd.Flags().BoolVar(&o.showRecord, "show-record", false, "also print the record, payload and all, that each table's newest row would become")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long it may take in all")
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

// doctor is one invocation of check.
type doctor struct {
	app      *app
	cfg      *config.Config
	settings relay.Config
	options  checkOptions
	expected topics.Expected // what would be sent, as far as the tables tell
	mapped   bool            // there is a table whose mapping fits
	unread   bool            // and one whose rows may not be read
	inText   bool            // the stream sends values in text, bytea in hexadecimal

	findings advice.Findings
	records  []*explain.Record
}

func (a *app) check(ctx context.Context, cfg *config.Config, o checkOptions) error {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	d := &doctor{app: a, cfg: cfg, settings: cfg.Relay(), options: o}
	d.file(cfg)
	if !o.offline {
		d.slowly("PostgreSQL at "+hosts(d.settings.Replication), func() { d.postgres(limited) })
		if limited.Err() == nil {
			d.slowly("Kafka at "+strings.Join(d.settings.Kafka.Brokers, ", "), func() { d.kafka(limited) })
			d.slowly("the checkpoints", func() { d.checkpoints(limited) })
		} else {
			d.add("kafka.connection", advice.Fail, "put right what failed before it, or give more time with --timeout", "not looked at: the %v of --timeout are over", o.timeout)
		}
	}
	if ctx.Err() != nil {
		return errors.New("check: it was told to stop; what it had seen until then is left out")
	}
	if err := d.print(); err != nil {
		return err
	}
	if d.findings.Count(advice.Fail) > 0 {
		return &quietError{exitRefused}
	}
	return nil
}

// patience is how long check looks at something before it says so.
const patience = 2 * time.Second

// slowly runs look, and says what is being looked at if that takes long: everything is
// printed at the end.
func (d *doctor) slowly(what string, look func()) {
	began := time.Now()
	ticker := time.NewTicker(patience)
	defer ticker.Stop()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(d.app.stderr, "cdc-relay: still looking at %s, for %s\n", what, time.Since(began).Round(time.Second))
				ticker.Reset(10 * time.Second)
			case <-done:
				return
			}
		}
	}()
	look()
	close(done)
	<-ended
}

// hosts are the servers that the URL names; none of its secrets.
func hosts(cfg postgres.Config) string {
	if hosts, err := postgres.Hosts(cfg); err == nil {
		return strings.Join(hosts, ", ")
	}
	return "postgres.url"
}

// shown are the findings that are printed.
func (d *doctor) shown() advice.Findings {
	if !d.options.problems {
		return d.findings
	}
	shown := advice.Findings{}
	for _, f := range d.findings {
		if f.Level != advice.OK {
			shown = append(shown, f)
		}
	}
	return shown
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

// colours says whether a stream gets any.
func (a *app) colours(out io.Writer) bool { return terminal(out) && a.getenv("NO_COLOR") == "" }

func (d *doctor) add(check string, level advice.Level, next, seen string, args ...any) {
	d.findings.Add(check, level, next, seen, args...)
}

func (d *doctor) ok(check, seen string, args ...any) { d.findings.OK(check, seen, args...) }

// file tells what loading the configuration found; had it found an error, there
// would be no checks.
func (d *doctor) file(cfg *config.Config) {
	from := cfg.Path
	if from == "" {
		from = "the environment"
	}
	d.ok("configuration", "read from %s", from)
	for _, warning := range cfg.Warnings {
		d.add("configuration", advice.Warn, "unless that is meant, correct it", "%s", warning)
	}
}

func (d *doctor) postgres(ctx context.Context) {
	own := d.ownRelay(ctx)
	report := preflight.Check(ctx, d.settings.Replication)
	for _, f := range report.Findings {
		if f.Check == "slot.owner" && f.Level == advice.Warn && holdsSlot(own) {
			f.Level, f.Advice = advice.OK, ""
			f.Seen += ", which is the relay of this configuration"
		}
		d.findings = append(d.findings, f)
	}
	d.relay(own)
	d.tables(ctx, report.Tables)
}

func (d *doctor) kafka(ctx context.Context) {
	own := 0
	if d.settings.OnReject == relay.DeadLetterOnReject {
		d.expected.DeadLetters(d.settings.DeadLetterTopic, d.settings.ParkKey)
		own++
	}
	for _, f := range topics.Check(ctx, topics.CheckConfig{
		Connection: d.settings.Kafka.Connection, CreateTopics: d.settings.Kafka.CreateTopics,
		Compression: d.settings.Kafka.Compression, MaxMessageBytes: d.settings.Kafka.MaxMessageBytes,
	}, d.expected) {
		d.findings = append(d.findings, f)
	}
	if d.settings.KeepsPositions() {
		prefix := ""
		if d.settings.Guarantee == relay.ExactlyOnce {
			prefix = checkpoint.TransactionalPrefix
		}
		for _, f := range topics.CheckCheckpoints(ctx, d.settings.Kafka.Connection, d.settings.CheckpointTopic, prefix) {
			d.findings = append(d.findings, f)
		}
	}
	if d.mapped && len(d.expected.Topics()) == own {
		const next = "create what will be needed, or set kafka.create_topics.enabled"
		if d.unread {
			d.add("topic", advice.Warn, next+"; with SELECT on the tables (table.select) this check sees which", "no topic is known: their names are made of rows, which may not be read")
		} else {
			d.ok("topic", "no topic is known: their names are made of rows, and there is none to look at; %s", next)
		}
	}
}

func (d *doctor) print() error {
	if d.options.asJSON {
		out := json.NewEncoder(d.app.stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		return out.Encode(struct {
			OK       int               `json:"ok"`
			Warn     int               `json:"warn"`
			Fail     int               `json:"fail"`
			Findings advice.Findings   `json:"findings"`
			Records  []*explain.Record `json:"records,omitempty"`
		}{d.findings.Count(advice.OK), d.findings.Count(advice.Warn), d.findings.Count(advice.Fail), d.shown(), d.records})
	}
	lines := tabwriter.NewWriter(d.app.stdout, 0, 0, 2, ' ', 0)
	colours := d.app.colours(d.app.stdout)
	for _, f := range d.shown() {
		text := f.Seen
		if f.Advice != "" {
			text += " → " + f.Advice
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\n", coloured(f.Level, colours), f.Check, wording.Printable(strings.ReplaceAll(text, "\n", " ")))
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	for _, r := range d.records {
		if err := r.Print(d.app.stdout); err != nil {
			return err
		}
	}
	between := "\n"
	if len(d.shown()) == 0 {
		between = ""
	}
	_, err := fmt.Fprintf(d.app.stdout, between+"%d ok, %d warn, %d fail\n", d.findings.Count(advice.OK), d.findings.Count(advice.Warn), d.findings.Count(advice.Fail))
	return err
}
