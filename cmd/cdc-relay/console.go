package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/check"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/ways"
)

// consolePatience is how long a page waits for the servers.
const consolePatience = 20 * time.Second

// consoleTools are what the console's pages do, by what the commands do.
func (a *app) consoleTools(cfg *config.Config, settings relay.Config, timings func() (ages, produce figures.Buckets)) admin.Tools {
	tables, named := consoleTables(settings)
	tools := admin.Tools{
		Tables: tables,
		Source: postgres.Where(settings.Replication), Timings: timings, Log: a.logTail, Letters: letterTools(cfg, settings),
		TopicLimit: func(ctx context.Context, topic string) (int, error) {
			return check.TopicLimit(ctx, settings.Kafka.Connection, topic)
		},
		Facts: ways.Facts{
			DeadLetterTopic: settings.DeadLetterTopic, CheckpointTopic: settings.CheckpointTopic,
			Brokers: strings.Join(settings.Kafka.Brokers, ","), Principal: principal(settings), File: configFile(cfg.Path),
			Secured: settings.Kafka.TLS != nil || settings.Kafka.SASL.Mechanism != "",
			Stops:   settings.OnReject == relay.StopOnReject || settings.OnReject == "", KeepsPositions: settings.KeepsPositions(),
		},
		Configuration: func() (string, error) {
			var out strings.Builder
			err := cfg.Print(&out)
			return out.String(), err
		},
		Check: func(ctx context.Context) (any, error) {
			report := check.Run(ctx, cfg, check.Options{
				Timeout: consolePatience, RunStep: func(_ string, step func()) { step() },
				Own: func(ctx context.Context) *status.Status { return ownRelay(ctx, cfg) },
			})
			if ctx.Err() != nil {
				return nil, errors.New("the servers did not answer in time; run `cdc-relay check` to wait longer")
			}
			return jsonFindings(report.Findings, report.Findings, nil), nil
		},
		Explain: func(ctx context.Context, table string, values bool) (any, error) {
			explainer, err := explain.New(cfg, explain.Options{Table: named[table], NoRecord: !values})
			if err != nil {
				return nil, err
			}
			reports, err := explainer.Tables(ctx)
			if len(reports) == 0 {
				return nil, err
			}
			return map[string]any{"tables": reports}, nil
		},
	}
	for _, table := range settings.Replication.Tables {
		tools.Facts.Tables = append(tools.Facts.Tables, ways.Identifier(table.Schema)+"."+ways.Identifier(table.Name))
	}
	return tools
}

// consoleTables are the configured tables and prefixes of messages as the status names them, and what each is
// called in the configuration: there a name has quotes where SQL needs them.
func consoleTables(settings relay.Config) (shown []string, named map[string]string) {
	named = make(map[string]string)
	add := func(name, configured string) {
		shown = append(shown, name)
		named[name] = configured
	}
	for _, table := range settings.Replication.Tables {
		add(table.Schema+"."+table.Name, table.String())
	}
	for i, prefix := range settings.Replication.Messages {
		add(wal.MessageRelation(prefix, len(settings.Replication.Tables)+i).Qualified(), prefix)
	}
	return shown, named
}

// configFile is what commands name the file by, wherever they are run; empty: there is none.
func configFile(path string) string {
	if whole, err := filepath.Abs(path); path != "" && err == nil {
		return whole
	}
	return ""
}

// principal is the relay's in ACLs, as far as the configuration tells.
func principal(settings relay.Config) string {
	if user := settings.Kafka.SASL.Username; user != "" {
		return "User:" + user
	}
	return ""
}
