package config

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// keeping is a configuration with retention for its first table, and further lines.
func keeping(retention, more string) string {
	return "postgres: {url: postgres://relay@localhost/shop}\nkafka: {brokers: [localhost:9092]}\noutbox:\n  - table: public.outbox\n    retention: " + retention + "\n" + more
}

func loadKeeping(content string) (*Config, error) {
	return Load(Options{Path: "test.yaml", Environ: []string{}, ReadFile: func(string) ([]byte, error) { return []byte(content), nil }})
}

const guarded = "relay: {detect_moved_slot: true}\n"

func TestRetention_WrongValuesAreNamedWithTheirLine(t *testing.T) {
	for name, tt := range map[string]struct{ content, want string }{
		"no age":              {keeping("{then: delete}", guarded), "outbox[0].retention.keep: is missing; allowed: a number with a unit"},
		"age of zero":         {keeping("{then: delete, keep: 0}", guarded), `test.yaml:5:37: outbox[0].retention.keep: "0" has no unit; allowed: a number with a unit (m, h, d), at least 1h`},
		"age without unit":    {keeping("{then: delete, keep: 7}", guarded), `"7" has no unit`},
		"negative age":        {keeping("{then: delete, keep: -1d}", guarded), `"-1d" is not an age`},
		"short age":           {keeping("{then: delete, keep: 5m}", guarded), `"5m" is too short`},
		"export to nothing":   {keeping("{then: export, keep: 7d}", guarded), "outbox[0].retention.export.to: is missing; allowed: a directory"},
		"export elsewhere":    {keeping("{then: export, keep: 7d, export: {to: 'gs://bucket/x'}}", guarded), "outbox[0].retention.export.to: is a URL (gs://…) of another kind than s3; allowed: a directory, or a bucket"},
		"export to no bucket": {keeping("{then: export, keep: 7d, export: {to: 's3://Bucket/x'}}", guarded), `outbox[0].retention.export.to: "Bucket" is no name of a bucket`},
		"no prefix":           {keeping("{then: export, keep: 7d, export: {to: 's3://bucket/x//y'}}", guarded), `outbox[0].retention.export.to: "x//y" is no prefix`},
		"prefix of dots":      {keeping("{then: export, keep: 7d, export: {to: 's3://bucket/x/../y'}}", guarded), `outbox[0].retention.export.to: "x/../y" is no prefix`},
		"no region":           {keeping("{then: export, keep: 7d, export: {to: 's3://bucket', region: 'eu west'}}", guarded), `outbox[0].retention.export.region: "eu west" is no region`},
		"no endpoint":         {keeping("{then: export, keep: 7d, export: {to: 's3://bucket', endpoint: 'minio:9000'}}", guarded), "outbox[0].retention.export.endpoint: is no address of a store"},
		"secret in endpoint":  {keeping("{then: export, keep: 7d, export: {to: 's3://bucket', endpoint: 'http://me:hunter2@minio:9000'}}", guarded), "outbox[0].retention.export.endpoint: is no address of a store"},
		"endpoint of folder":  {keeping("{then: export, keep: 7d, export: {to: /x, endpoint: 'http://minio:9000'}}", guarded), "outbox[0].retention.export.endpoint: has no effect without outbox[0].retention.export.to: a bucket (s3://bucket/prefix)"},
		"style of folder":     {keeping("{then: export, keep: 7d, export: {to: /x, path_style: true}}", guarded), "outbox[0].retention.export.path_style: has no effect without outbox[0].retention.export.to: a bucket"},
		"region of deleted":   {keeping("{then: delete, keep: 7d, export: {region: eu-west-1}}", guarded), "outbox[0].retention.export.region: has no effect without outbox[0].retention.then: export"},
		"relative export":     {keeping("{then: export, keep: 7d, export: {to: files}}", guarded), `"files" is relative`},
		"slice":               {keeping("{then: export, keep: 7d, export: {to: /x, slice: 90m}}", guarded), "outbox[0].retention.export.slice: 1h30m is not allowed; allowed: 1h, 2h"},
		"export of deleted":   {keeping("{then: delete, keep: 7d, export: {to: /x}}", guarded), "outbox[0].retention.export.to: has no effect without outbox[0].retention.then: export"},
		"ahead of deleted":    {keeping("{then: delete, keep: 7d, create_ahead: 3}", guarded), "outbox[0].retention.create_ahead: has no effect without outbox[0].retention.then: drop_partition or detach_partition"},
		"too far ahead":       {keeping("{then: drop_partition, keep: 7d, create_ahead: 101}", guarded), "101 is not allowed; allowed: 0 to 100"},
		"rows of partitions":  {keeping("{then: drop_partition, keep: 7d, where: 'true'}", guarded), "outbox[0].retention.where: cannot choose rows where whole partitions go"},
		"scan of none":        {keeping("{scan: blocks}", guarded), "outbox[0].retention.scan: has no effect without outbox[0].retention.then: something else"},
		"scan of partitions":  {keeping("{then: drop_partition, keep: 7d, scan: blocks}", guarded), "outbox[0].retention.scan: has no effect without outbox[0].retention.then: delete, archive or export"},
		"unknown scan":        {keeping("{then: delete, keep: 7d, scan: pages}", guarded), `outbox[0].retention.scan: "pages" is not allowed; allowed: index, blocks`},
		"unknown then":        {keeping("{then: shred, keep: 7d}", guarded), `outbox[0].retention.then: "shred" is not allowed; allowed: none, delete, archive, export, drop_partition, detach_partition`},
		"keep without then":   {keeping("{keep: 7d}", guarded), "outbox[0].retention.keep: has no effect without outbox[0].retention.then: something else"},
		"open parenthesis":    {keeping(`{then: delete, keep: 7d, where: "(a"}`, guarded), "outbox[0].retention.where: is not a complete condition: a parenthesis is not closed; allowed: one SQL condition"},
		"left parentheses":    {keeping(`{then: delete, keep: 7d, where: "true) or (true"}`, guarded), "a parenthesis is closed that was not opened"},
		"second statement":    {keeping(`{then: delete, keep: 7d, where: "true; DROP TABLE x"}`, guarded), "it has a semicolon"},
		"no archive":          {keeping("{then: archive, keep: 7d}", guarded), "outbox[0].retention.archive_table: is missing"},
		"archive is table":    {keeping("{then: archive, keep: 7d, archive_table: outbox}", guarded), "outbox is the table itself"},
		"archive is sent":     {keeping("{then: archive, keep: 7d, archive_table: other}\n  - table: other", guarded), "other is an outbox table, whose rows are sent"},
		"archive for nothing": {keeping("{then: delete, keep: 7d, archive_table: old}", guarded), "outbox[0].retention.archive_table: has no effect without outbox[0].retention.then: archive"},
		"messages": {strings.Replace(keeping("{then: delete, keep: 7d}", guarded), "table: public.outbox", "message_prefix: outbox", 1),
			"outbox[0].retention.then: is for tables: logical messages leave no rows"},
		"no positions":        {keeping("{then: delete, keep: 7d}", ""), "relay.detect_moved_slot: has to be true with outbox[].retention or outbox[].mark, or relay.guarantee exactly_once"},
		"skipped rows":        {keeping("{then: delete, keep: 7d}", "relay: {detect_moved_slot: true, on_reject: skip, accept_loss: true}\n"), "maintenance.skipped: has to be treat_as_delivered"},
		"large batch":         {keeping("{then: delete, keep: 7d}", guarded+"maintenance: {batch_rows: 10001}\n"), "maintenance.batch_rows: 10001 is not allowed; allowed: 1 to 10000"},
		"negative rate":       {keeping("{then: delete, keep: 7d}", guarded+"maintenance: {max_rows_per_second: -1}\n"), "maintenance.max_rows_per_second: -1 is not allowed"},
		"no wait":             {keeping("{then: delete, keep: 7d}", guarded+"maintenance: {wait: 0s}\n"), "maintenance.wait: 0s is too short"},
		"no slot":             {keeping("{then: delete, keep: 7d}", guarded+"maintenance: {also_wait_for: [Other]}\n"), `maintenance.also_wait_for[0]: "Other" is not a slot name`},
		"password for nobody": {keeping("{then: delete, keep: 7d}", guarded+"maintenance: {password: hunter2}\n"), "maintenance.password: has no effect without maintenance.url"},
		"mark of messages":    {strings.Replace(keeping("{then: none}\n    mark: {column: published_at}", guarded), "table: public.outbox", "message_prefix: outbox", 1), "outbox[0].mark.column: is for tables: logical messages leave no rows"},
		"mark without column": {keeping("{then: none}\n    mark: {value: sent, batch_rows: 5}", guarded), "outbox[0].mark.batch_rows: has no effect without outbox[0].mark.column: a column"},
		"hasty mark":          {keeping("{then: none}\n    mark: {column: published_at, interval: 100ms}", guarded), "outbox[0].mark.interval: 100ms is too short; allowed: at least 1s"},
		"large mark":          {keeping("{then: none}\n    mark: {column: published_at, batch_rows: 0}", guarded), "outbox[0].mark.batch_rows: 0 is not allowed; allowed: 1 to 10000"},
		"mark of no position": {keeping("{then: none}\n    mark: {column: published_at}", ""), "relay.detect_moved_slot: has to be true with outbox[].retention or outbox[].mark"},
		"rejects of no mark":  {keeping("{then: none}\n    rejects: {error: last_error}", guarded), "outbox[0].rejects.error: has no effect without outbox[0].mark.column: a column"},
		"rejects of nobody":   {keeping("{then: none}\n    mark: {column: published_at}\n    rejects: {error: last_error}", guarded), "outbox[0].rejects.error: has no effect without relay.on_reject: dead_letter"},
		"attempts alone":      {keeping("{then: none}\n    mark: {column: published_at}\n    rejects: {attempts: retry_count}", guarded), "outbox[0].rejects.attempts: has no effect without outbox[0].rejects.error: a column"},
		"rejects are marks":   {keeping("{then: none}\n    mark: {column: status, value: sent}\n    rejects: {error: status}", "relay: {detect_moved_slot: true, on_reject: dead_letter}\n"), `outbox[0].rejects.error: "status" is the column of outbox[0].mark.column`},
		"one for both":        {keeping("{then: none}\n    mark: {column: sent}\n    rejects: {error: e, attempts: e}", "relay: {detect_moved_slot: true, on_reject: dead_letter}\n"), `outbox[0].rejects.attempts: "e" is the column of outbox[0].rejects.error`},
		"marks are events": {keeping("{then: none}\n    mark: {column: published_at}\n    debezium: {topic.prefix: a, provide.transaction.metadata: true, key.converter: org.apache.kafka.connect.storage.StringConverter, value.converter: org.apache.kafka.connect.storage.StringConverter, tombstones.on.delete: false}", guarded),
			"outbox[0].mark.column: the table's debezium options deliver updates as events"},
		"hasty":               {keeping("{then: delete, keep: 7d}", guarded+"maintenance: {interval: 500ms}\n"), "maintenance.interval: 500ms is too short; allowed: at least 1s"},
		"interval of nobody":  {keeping("{then: delete, keep: 7d}", guarded+"maintenance: {in_run: false, interval: 5m}\n"), "maintenance.interval: has no effect without maintenance.in_run: true"},
		"nothing to maintain": {keeping("{then: none}", "maintenance: {batch_rows: 10}\n"), "maintenance.batch_rows: has no effect without outbox[].retention.then or outbox[].mark.column"},
		"deletes are events": {keeping("{then: delete, keep: 7d}\n    debezium: {topic.prefix: a, provide.transaction.metadata: true, key.converter: org.apache.kafka.connect.storage.StringConverter, value.converter: org.apache.kafka.connect.storage.StringConverter, tombstones.on.delete: false}", guarded),
			"outbox[0].retention.then: the table's debezium options deliver deletes as events"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadKeeping(tt.content)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret shows: %v", err)
			}
		})
	}
}

func TestRetention_IsOfEachTable(t *testing.T) {
	cfg, err := loadKeeping(keeping("{then: archive, keep: 1d12h, by: written, where: \"status = 'sent'\", archive_table: audit.old}\n    mark: {column: state, value: sent, interval: 5s}\n  - message_prefix: m\n  - table: Two",
		guarded+"maintenance: {url: postgres://janitor@localhost/shop, max_rows_per_second: 0, also_wait_for: [other], pause_at_replica_lag: 0s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	marked, _ := cfg.Marks()
	if len(marked) != 2 || marked[0] != (marks.Policy{Target: upkeep.Target{Table: wal.Table{Schema: "public", Name: "outbox"}, Path: "outbox[0].mark"}, Column: "state", Value: "sent", Every: 5 * time.Second, BatchRows: 1000}) || marked[1].Column != "" || marked[1].Path != "outbox[2].mark" {
		t.Errorf("%+v", marked)
	}
	if every, inRun := cfg.MaintenanceInRun(); every != time.Minute || !inRun {
		t.Errorf("every %s, in run %t", every, inRun)
	}
	policies, settings := cfg.Retention()
	if len(policies) != 2 || policies[0] != (retention.Policy{
		Target: upkeep.Target{Table: wal.Table{Schema: "public", Name: "outbox"}, Path: "outbox[0].retention"}, Keep: 36 * time.Hour, By: "written", Where: "status = 'sent'",
		Then: retention.Archive, Archive: wal.Table{Schema: "audit", Name: "old"},
	}) || policies[1].Then != retention.None || policies[1].Index != 1 || policies[1].Path != "outbox[2].retention" {
		t.Errorf("%+v", policies)
	}
	l := settings.Limits
	if l.BatchRows != 1000 || l.MaxRowsPerSecond != 0 || l.Wait != time.Minute || len(l.AlsoWaitFor) != 1 || l.SkippedAreDelivered || l.PauseAtReplicaLag != 0 {
		t.Errorf("%+v", l)
	}
	if settings.Server.URL != "postgres://janitor@localhost/shop" || settings.Relay.Replication.URL != "postgres://relay@localhost/shop" || cfg.MaintenanceUser() != "janitor" {
		t.Errorf("it connects to %q", settings.Server.URL)
	}
}
