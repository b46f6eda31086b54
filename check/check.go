package check

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Options say how much is looked at.
type Options struct {
	Offline     bool          // the configuration alone
	ShowRecords bool          // also the record that each table's newest row would become
	Timeout     time.Duration // of all together

	Own     func(context.Context) *status.Status // the status of the relay that has this configuration, or nil
	RunStep func(what string, step func())       // runs step; it may say what takes long
}

// Report is what was found.
type Report struct {
	Findings advice.Findings
	Records  []*explain.Record
}

// checker is one invocation of check.
type checker struct {
	cfg      *config.Config
	settings relay.Config
	options  Options
	expected topics.Expected // what would be sent, as far as the tables tell
	mapped   bool            // there is a table whose mapping fits
	unread   bool            // and one whose rows may not be read
	inText   bool            // the stream sends values in text, bytea in hexadecimal

	own *status.Status // of the relay that has this configuration; nil: none answers

	findings advice.Findings
	records  []*explain.Record
}

func (d *checker) add(check string, level advice.Level, next, seen string, args ...any) {
	d.findings.Add(check, level, next, seen, args...)
}

func (d *checker) ok(check, seen string, args ...any) { d.findings.OK(check, seen, args...) }

// file reports what loading the configuration found; had it found an error, there
// would be no checks.
func (d *checker) file(cfg *config.Config) {
	from := cfg.Path
	if from == "" {
		from = "the environment"
	}
	d.ok("configuration", "read from %s", from)
	for _, warning := range cfg.Warnings {
		d.add("configuration", advice.Warn, "unless that is meant, correct it", "%s", warning)
	}
}

func (d *checker) postgres(ctx context.Context) {
	own := d.options.Own(ctx)
	d.own = own
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

func (d *checker) kafka(ctx context.Context) {
	own := 0
	if d.settings.OnReject == relay.DeadLetterOnReject {
		d.expected.DeadLetters(d.settings.DeadLetterTopic, d.settings.ParkKey)
		own++
	}
	d.findings = append(d.findings, topics.Check(ctx, topics.CheckConfig{
		Connection: d.settings.Kafka.Connection, CreateTopics: d.settings.Kafka.CreateTopics,
		Compression: d.settings.Kafka.Compression, MaxMessageBytes: d.settings.Kafka.MaxMessageBytes,
	}, d.expected)...)
	if d.settings.KeepsPositions() {
		prefix := ""
		if d.settings.Guarantee == relay.ExactlyOnce {
			prefix = stored.TransactionalPrefix
		}
		d.findings = append(d.findings, topics.CheckCheckpoints(ctx, d.settings.Kafka.Connection, d.settings.CheckpointTopic, prefix)...)
	}
	if !d.failed("kafka.connection") {
		d.overtaken(ctx)
	}
	if d.mapped && len(d.expected.Topics()) == own {
		const next = "create what will be needed, or set kafka.create_topics.enabled"
		if d.unread {
			d.add("topic", advice.Warn, next+"; with SELECT on the tables (table.select) this check sees which", "no topic is known: topic names come from rows, and the role may not read them")
		} else {
			d.ok("topic", "no topic is known: topic names come from rows, and no row of the tables gives one; %s", next)
		}
	}
}

// failed reports whether a check before has failed.
func (d *checker) failed(check string) bool {
	return slices.ContainsFunc(d.findings, func(f advice.Finding) bool { return f.Check == check && f.Level == advice.Fail })
}

// Run looks at everything: configuration, PostgreSQL, Kafka, checkpoints, work on delivered rows.
func Run(ctx context.Context, cfg *config.Config, o Options) *Report {
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	d := &checker{cfg: cfg, settings: cfg.Relay(), options: o}
	d.file(cfg)
	if !o.Offline {
		o.RunStep("PostgreSQL at "+hosts(d.settings.Replication), func() { d.postgres(limited) })
		if limited.Err() == nil {
			o.RunStep("Kafka at "+strings.Join(d.settings.Kafka.Brokers, ", "), func() { d.kafka(limited) })
			o.RunStep("the checkpoints", func() { d.checkpoints(limited) })
			o.RunStep("the work on delivered rows", func() { d.upkeep(limited) })
		} else {
			d.add("kafka.connection", advice.Fail, "fix what failed before it, or allow more time with --timeout", "not looked at: the %v of --timeout are over", o.Timeout)
		}
	}
	return &Report{Findings: d.findings, Records: d.records}
}

// hosts are the servers that the URL names; none of its secrets.
func hosts(cfg postgres.Config) string {
	if hosts, err := postgres.Hosts(cfg); err == nil {
		return strings.Join(hosts, ", ")
	}
	return "postgres.url"
}
