package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// Retention returns the policy of each table, and the connection and limits of the job.
func (c *Config) Retention() ([]retention.Policy, upkeep.Config) {
	var policies []retention.Policy
	table := 0
	for i, o := range c.settings.Outbox {
		if o.MessagePrefix != "" {
			continue
		}
		r := o.Retention
		p := retention.Policy{
			Target: upkeep.Target{Table: c.tables[table], Index: table, Path: fmt.Sprintf("outbox[%d].retention", i)},
			Keep:   time.Duration(r.Keep), By: r.By, Where: r.Where, Then: retention.Then(r.Then), Blocks: r.Scan == "blocks",
		}
		if p.Then == retention.Export {
			p.Export = r.Export.files()
		}
		if p.Then.Partitions() {
			p.Ahead = r.CreateAhead
		}
		if p.Then == retention.Archive {
			p.Archive, _ = wal.ParseTable(r.ArchiveTable) // it was checked
		}
		policies = append(policies, p)
		table++
	}
	return policies, c.upkeep()
}

// Marks is which column says of each table's rows that they are delivered, and with which
// connection and pace it is set.
func (c *Config) Marks() ([]marks.Policy, upkeep.Config) {
	var policies []marks.Policy
	table := 0
	for i, o := range c.settings.Outbox {
		if o.MessagePrefix != "" {
			continue
		}
		policies = append(policies, marks.Policy{
			Target: upkeep.Target{Table: c.tables[table], Index: table, Path: fmt.Sprintf("outbox[%d].mark", i)},
			Column: o.Marking.Column, Value: o.Marking.Value, Every: time.Duration(o.Marking.Interval), BatchRows: o.Marking.BatchRows,
			Error: o.Rejects.Error, Attempts: o.Rejects.Attempts,
		})
		table++
	}
	return policies, c.upkeep()
}

func (c *Config) upkeep() upkeep.Config {
	m := &c.settings.Maintenance
	return upkeep.Config{
		Relay: c.Relay(), Server: c.maintenance(),
		Limits: upkeep.Limits{
			BatchRows: m.BatchRows, MaxRowsPerSecond: m.MaxRowsPerSecond, Wait: time.Duration(m.Wait), AlsoWaitFor: slices.Clone(m.AlsoWaitFor),
			SkippedAreDelivered: m.Skipped == "treat_as_delivered", PauseAtReplicaLag: time.Duration(m.PauseAtReplicaLag),
		},
	}
}

// MaintenanceInRun is how often `run` looks for rows that are due; false: it does not.
func (c *Config) MaintenanceInRun() (every time.Duration, inRun bool) {
	m := &c.settings.Maintenance
	return time.Duration(m.Interval), m.InRun
}

// maintenance is the server as the role of maintenance.url connects to it.
func (c *Config) maintenance() postgres.Config {
	cfg, m := c.replication(), &c.settings.Maintenance
	if m.URL != "" {
		cfg.URL, cfg.Password = string(m.URL), c.secretFunc(m.Password, m.PasswordFile, nil)
	}
	return cfg
}

// MaintenanceUser is the user in maintenance.url, empty when it does not say.
func (c *Config) MaintenanceUser() string {
	parts, _ := c.settings.Maintenance.URL.parse()
	return parts.user
}

func (l *loader) checkRetention() {
	some, table := false, -1
	for i := range l.cfg.settings.Outbox {
		o := &l.cfg.settings.Outbox[i]
		path := fmt.Sprintf("outbox[%d].retention", i)
		if o.MessagePrefix == "" {
			table++
		}
		some = l.checkMark(i, table) || some
		if o.Retention.Then == string(retention.None) {
			l.checkNoRetention(path, &o.Retention)
			continue
		}
		some = true
		if o.MessagePrefix != "" {
			l.refuse(path+".then", "is for tables: logical messages leave no rows; remove it from an entry with message_prefix")
			continue
		}
		l.checkPolicy(path, table, &o.Retention)
	}
	if some {
		l.checkProof()
	}
	l.checkMaintenance(some)
}

// checkMark reports whether the rows of a table get a mark.
func (l *loader) checkMark(i, table int) bool {
	o := &l.cfg.settings.Outbox[i]
	m, usual, path := &o.Marking, l.usualMark(), fmt.Sprintf("outbox[%d].mark", i)
	l.checkRejectColumns(fmt.Sprintf("outbox[%d].rejects", i), o)
	if m.Column == "" {
		for _, key := range []struct {
			name string
			set  bool
		}{{"value", m.Value != ""}, {"interval", m.Interval != usual.Interval}, {"batch_rows", m.BatchRows != usual.BatchRows}} {
			if key.set {
				l.noEffect(path+"."+key.name, path+".column", "a column")
			}
		}
		return false
	}
	if o.MessagePrefix != "" {
		l.refuse(path+".column", "is for tables: logical messages leave no rows; allowed beside message_prefix: none")
		return true
	}
	if len(m.Column) > 63 {
		l.refuse(path+".column", "%q is no column; allowed: 1 to 63 bytes", m.Column)
	}
	if w := l.cfg.wants(); w != nil && w[table].Update {
		l.refuse(path+".column", "the table's debezium options deliver updates as events, and each mark would be one; allowed: none")
	}
	if m.Interval < duration(time.Second) {
		l.refuse(path+".interval", "%v is too short; allowed: at least 1s", m.Interval)
	}
	if m.BatchRows < 1 || m.BatchRows > maxBatchRows {
		l.refuse(path+".batch_rows", "%d is not allowed; allowed: 1 to %d", m.BatchRows, maxBatchRows)
	}
	return true
}

// checkRejectColumns wants the columns to be others than the mark, and somebody who writes them.
func (l *loader) checkRejectColumns(path string, o *outboxSettings) {
	r, column := &o.Rejects, strings.TrimSuffix(path, "rejects")+"mark.column"
	if r.Error == "" {
		if r.Attempts != "" {
			l.noEffect(path+".attempts", path+".error", "a column")
		}
		return
	}
	for _, key := range []pair{{"error", r.Error}, {"attempts", r.Attempts}} {
		switch {
		case len(key.Value) > 63:
			l.refuse(path+"."+key.Name, "%q is no column; allowed: 1 to 63 bytes", key.Value)
		case key.Value != "" && key.Value == o.Marking.Column:
			l.refuse(path+"."+key.Name, "%q is the column of %s; allowed: another one", key.Value, column)
		}
	}
	if r.Attempts == r.Error {
		l.refuse(path+".attempts", "%q is the column of %s.error; allowed: another one", r.Attempts, path)
	}
	if o.Marking.Column == "" {
		l.noEffect(path+".error", column, "a column")
	}
	if l.cfg.settings.Relay.OnReject != string(relay.DeadLetterOnReject) {
		l.noEffect(path+".error", "relay.on_reject", string(relay.DeadLetterOnReject))
	}
}

func (l *loader) usualMark() (usual markSettings) {
	l.applyDefaults(reflect.ValueOf(&usual).Elem())
	return usual
}

// checkNoRetention refuses keys of a table whose rows stay.
func (l *loader) checkNoRetention(path string, r *retentionSettings) {
	for _, key := range []struct {
		name string
		set  bool
	}{
		{"keep", r.Keep != 0}, {"by", r.By != retention.DefaultBy}, {"where", r.Where != ""}, {"archive_table", r.ArchiveTable != ""},
		{"scan", r.Scan != l.usualRetention().Scan}, {"create_ahead", r.CreateAhead != l.usualRetention().CreateAhead},
	} {
		if key.set {
			l.noEffect(path+"."+key.name, path+".then", "something else")
		}
	}
	l.checkNoExport(path+".export", "something else", r)
}

func (l *loader) checkPolicy(path string, table int, r *retentionSettings) {
	if r.Keep == 0 {
		l.refuse(path+".keep", "is missing; allowed: %s", ageForm)
	}
	if r.By == "" || len(r.By) > 63 {
		l.refuse(path+".by", "%q is not a column; allowed: 1 to 63 bytes", r.By)
	}
	if err := retention.CheckCondition(r.Where); err != nil {
		l.refuse(path+".where", "is not a complete condition: %v; allowed: one SQL condition, for example status = 'sent'", err)
	}
	if w := l.cfg.wants(); w != nil && w[table].Delete {
		l.refuse(path+".then", "the table's debezium options deliver deletes as events, and each row that goes would be one; allowed: none")
	}
	l.checkPartitions(path, r)
	l.checkExport(path+".export", r)
	l.checkArchive(path, table, r)
}

// maxAhead bounds how many partitions a table may get that nobody needs yet.
const maxAhead = 100

func (l *loader) checkPartitions(path string, r *retentionSettings) {
	whole := retention.Then(r.Then).Partitions()
	switch {
	case !whole && r.CreateAhead != l.usualRetention().CreateAhead:
		l.noEffect(path+".create_ahead", path+".then", "drop_partition or detach_partition")
	case r.CreateAhead < 0 || r.CreateAhead > maxAhead:
		l.refuse(path+".create_ahead", "%d is not allowed; allowed: 0 to %d", r.CreateAhead, maxAhead)
	}
	if whole && r.Scan != l.usualRetention().Scan {
		l.noEffect(path+".scan", path+".then", "delete, archive or export")
	}
	if whole && r.Where != "" {
		l.refuse(path+".where", "cannot choose rows where whole partitions go; allowed with then: delete or archive")
	}
}

func (l *loader) usualRetention() (usual retentionSettings) {
	l.applyDefaults(reflect.ValueOf(&usual).Elem())
	return usual
}

func (l *loader) checkArchive(path string, table int, r *retentionSettings) {
	path += ".archive_table"
	if r.Then != string(retention.Archive) {
		if r.ArchiveTable != "" {
			l.noEffect(path, strings.TrimSuffix(path, "archive_table")+"then", "archive")
		}
		return
	}
	if r.ArchiveTable == "" {
		l.refuse(path, "is missing; allowed: the table that rows move to, as schema.name")
		return
	}
	archive, err := wal.ParseTable(r.ArchiveTable)
	switch {
	case err != nil:
		l.refuse(path, "%v", err)
	case archive == l.cfg.tables[table]:
		l.refuse(path, "%s is the table itself; allowed: another table", r.ArchiveTable)
	case slices.Contains(l.cfg.tables, archive):
		l.refuse(path, "%s is an outbox table, whose rows are sent; allowed: a table that no publication has", r.ArchiveTable)
	}
}

// checkProof requires what tells delivered rows from others.
func (l *loader) checkProof() {
	r := &l.cfg.settings.Relay
	if relay.Guarantee(r.Guarantee) != relay.ExactlyOnce && !r.DetectMovedSlot {
		l.refuse("relay.detect_moved_slot", "has to be true with outbox[].retention or outbox[].mark, or relay.guarantee exactly_once: without recorded positions a slot that somebody moved would pass for delivered rows")
	}
	if r.OnReject == string(relay.SkipOnReject) && l.cfg.settings.Maintenance.Skipped == "refuse" {
		l.refuse("maintenance.skipped", "has to be treat_as_delivered with outbox[].retention or outbox[].mark and relay.on_reject: skip, because nothing names the rows that are left out; or set relay.on_reject: dead_letter")
	}
}

func emptyList(v reflect.Value) bool { return v.Kind() == reflect.Slice && v.Len() == 0 }

// maxBatchRows bounds what one transaction locks.
const maxBatchRows = 10_000

func (l *loader) checkMaintenance(used bool) {
	m := &l.cfg.settings.Maintenance
	if !used {
		given, usual := reflect.ValueOf(*m), reflect.ValueOf(l.usual().Maintenance)
		for _, k := range keysOf(given.Type()) {
			if !reflect.DeepEqual(given.Field(k.index).Interface(), usual.Field(k.index).Interface()) && !emptyList(given.Field(k.index)) {
				l.noEffect("maintenance."+k.name, "outbox[].retention.then or outbox[].mark.column", "a value")
			}
		}
	}
	if m.BatchRows < 1 || m.BatchRows > maxBatchRows {
		l.refuse("maintenance.batch_rows", "%d is not allowed; allowed: 1 to %d", m.BatchRows, maxBatchRows)
	}
	if m.MaxRowsPerSecond < 0 {
		l.refuse("maintenance.max_rows_per_second", "%d is not allowed; allowed: 1 and more, or 0 for no limit", m.MaxRowsPerSecond)
	}
	if m.Interval < duration(time.Second) {
		l.refuse("maintenance.interval", "%v is too short; allowed: at least 1s, for example 1m", m.Interval)
	}
	if usual := l.usual().Maintenance; !m.InRun && m.Interval != usual.Interval {
		l.noEffect("maintenance.interval", "maintenance.in_run", "true")
	}
	if m.Wait <= 0 {
		l.refuse("maintenance.wait", "%v is too short; allowed: more than 0s, for example 60s", m.Wait)
	}
	for i, slot := range m.AlsoWaitFor {
		if !slotName.MatchString(slot) {
			l.refuse(fmt.Sprintf("maintenance.also_wait_for[%d]", i), "%q is not a slot name; allowed: a-z, 0-9 and _, 1 to 63 of them", slot)
		}
	}
	l.checkSecret("maintenance.password", m.Password, m.PasswordFile, nil)
	if m.URL != "" {
		l.checkDSN("maintenance.url", m.URL)
		return
	}
	for _, o := range []pair{{"password", string(m.Password)}, {"password_file", m.PasswordFile}} {
		if o.Value != "" {
			l.noEffect("maintenance."+o.Name, "maintenance.url", "a URL")
		}
	}
}
