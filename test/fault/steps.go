package main

import (
	"context"
	"fmt"
)

// The steps of this file are those of commands that work on delivered rows: retention, mark and
// audit. Those of replay are backfill's, on whose way it sends.

// upkeepFailpoints are named like what has just been done. The relay comes to none of them where
// maintenance.in_run is false.
var upkeepFailpoints = []failpoint{
	at("up_named", "rows were named, and the end of the WAL was read", "proof/passes.go", "rows, fence, err := s.Name(ctx)"),
	ahead("up_proven", "rows are proven delivered, and nothing was done to them", "proof/passes.go", "out.Acted, err = s.Act(ctx, free)"),
	at("up_acted", "it was done to all rows of a pass", "proof/passes.go", "out.Acted, err = s.Act(ctx, free)"),
	{name: "up_asked", about: "the server has the statement that deletes or marks, and has not answered", patch: patch{"postgres/maintenance/act.go",
		"results, err := s.q.Conn.Exec(ctx, before+act+\" WHERE \"+where+returning).ReadAll()",
		"asked := s.q.Conn.Exec(ctx, before+act+\" WHERE \"+where+returning)\n\tfailpoint(\"up_asked\")\n\tresults, err := asked.ReadAll()"}},
	at("up_moved", "rows moved to the archive, and the transaction is open", "postgres/maintenance/act.go", "gone, taken, err := s.move(with, where)"),
	{name: "up_archived", about: "rows moved to the archive, and nobody knows", patch: patch{"postgres/maintenance/act.go",
		"return gone, s.archiveError(s.q.Exec(\"COMMIT\"))",
		"err := s.q.Exec(\"COMMIT\")\n\t\tfailpoint(\"up_archived\")\n\t\treturn gone, s.archiveError(err)"}},

	ahead("up_row_read", "a row is about to be written to a file", "retention/exporter.go", "return row(exported(columns, values))"),
	at("up_file_written", "a file has all rows, under a temporary name", "retention/export/folder.go", "trailer, err := f.writeFile(made, header, each)"),
	ahead("up_file_named", "a file has its name, and was not read again", "retention/export/folder.go", "there, err := verify(path)"),
	ahead("up_object_put", "an object was stored, and not looked at", "retention/export/writer.go", "head, err := b.head(ctx, key)"),
	ahead("up_exported", "a slice is in a file, and in the table", "retention/exporter.go", "e.bytes += size"),

	at("up_part_made", "a partition was made", "retention/partitions.go", "parts.Made++"),
	ahead("up_part_locked", "a partition is locked", "proof/partition.go", "if fence, err = s.Fence(ctx); err != nil { // after the lock"),
	ahead("up_part_proven", "all rows of a partition are delivered", "proof/partition.go", "if held, err = s.Holds(ctx, waiting); held || err != nil {"),
	ahead("up_part_dropped", "a partition is dropped, and the transaction is open", "postgres/maintenance/root.go", "return postgres.Classify(\"remove partition \"+r.Partition.Table.String(), r.q.Exec(\"COMMIT\"))"),
	at("up_part_gone", "a partition is gone", "retention/partitions.go", "parts.Removed++"),

	ahead("up_reject", "rows are about to say that they were rejected", "marks/rejects.go", "written, err = session.Reject(ctx, to, batch)"),
	at("up_rejected", "rows say that they were rejected", "marks/rejects.go", "written, err = session.Reject(ctx, to, batch)"),

	ahead("up_audit_fence", "an audit is about to take its snapshot", "audit/audit.go", "if err := w.fence(ctx); err != nil {"),
	ahead("up_audit_records", "an audit has read the rows", "audit/audit.go", "if err := w.records(ctx, since); err != nil {"),
	ahead("up_audit_conclude", "an audit has read the records", "audit/audit.go", "return w.match.Finish("),
}

// The commands, and the steps at which they die. NAME:N is the Nth time in one call.
func stepCases() []*stepCase {
	return []*stepCase{
		{
			name: "delete", about: "retention that deletes", command: retentionCommand,
			entry: func(*stepTable) string { return "retention: {then: delete, keep: 1h}" },
			steps: []string{"up_named:1", "up_proven:1", "up_asked:1", "up_asked:2", "up_acted:1", "up_named:2", "up_proven:2", "up_acted:2", "up_asked:3"},
		},
		{
			name: "archive", about: "retention that moves rows to an archive", command: retentionCommand, archive: true,
			entry: func(o *stepTable) string {
				return "retention: {then: archive, keep: 1h, archive_table: public." + o.name + "_archive}"
			},
			steps: []string{"up_named:1", "up_proven:1", "up_moved:1", "up_archived:1", "up_moved:2", "up_archived:2", "up_acted:1", "up_proven:2", "up_acted:2"},
		},
		{
			name: "export", about: "retention that exports to a folder", command: retentionCommand, files: true,
			entry: func(o *stepTable) string {
				return "retention: {then: export, keep: 1h, export: {to: " + absolute(o.folder()) + "}}"
			},
			steps: []string{"up_named:1", "up_row_read:1", "up_row_read:70", "up_file_written:1", "up_file_named:1", "up_exported:1", "up_asked:1", "up_asked:2", "up_acted:1", "up_file_written:1", "up_exported:1", "up_proven:1"},
		},
		{
			name: "bucket", about: "retention that exports to a bucket", command: retentionCommand, files: true, bucket: true,
			entry: func(o *stepTable) string {
				return "retention: {then: export, keep: 1h, export: {to: s3://" + bucketName + "/outbox, endpoint: \"" + o.storeURL + "\", path_style: true}}"
			},
			steps: []string{"up_named:1", "up_row_read:1", "up_row_read:70", "up_object_put:1", "up_exported:1", "up_asked:1", "up_asked:2", "up_acted:1", "up_object_put:1", "up_exported:1", "up_proven:1"},
		},
		{
			name: "drop", about: "retention that drops partitions", command: retentionCommand, partitions: true,
			entry: func(*stepTable) string { return "retention: {then: drop_partition, keep: 1h, create_ahead: 3}" },
			steps: []string{"up_part_locked:1", "up_part_proven:1", "up_part_dropped:1", "up_part_gone:1", "up_part_locked:2", "up_part_proven:2", "up_part_dropped:2", "up_part_gone:2"},
			first: []string{"up_part_made:1", "up_part_made:2"},
		},
		{
			name: "mark", about: "mark", command: markCommand,
			entry: func(*stepTable) string { return "mark: {column: published_at, batch_rows: 5}" },
			steps: []string{"up_named:1", "up_proven:1", "up_asked:1", "up_asked:2", "up_acted:1", "up_named:2", "up_proven:2", "up_acted:2", "up_asked:3"},
		},
		{
			name: "rejects", about: "mark that shows dead letters in their rows", command: markCommand, rejects: true,
			entry: func(*stepTable) string {
				return "mark: {column: published_at, batch_rows: 3}, rejects: {error: last_error, attempts: retry_count}"
			},
			steps: []string{"up_reject:1", "up_rejected:1", "up_reject:2", "up_rejected:2", "up_proven:1", "up_acted:1", "up_rejected:1", "up_reject:1"},
		},
		{
			name: "audit", about: "audit", command: []string{"audit"}, proves: true,
			entry: func(*stepTable) string { return "" },
			steps: []string{"up_audit_fence:1", "up_audit_records:1", "up_audit_conclude:1"},
		},
		{
			name: "replay", about: "replay to another topic", again: true, toTopic: true,
			entry: func(*stepTable) string { return "" },
		},
		{
			name: "replay_beside", about: "replay beside a relay at work", again: true, command: []string{"--accept-order"},
			entry: func(*stepTable) string { return "" },
		},
		{
			name: "replay_keys", about: "replay of whole keys while no relay runs", again: true, alone: true, command: []string{"--complete-keys"},
			entry: func(*stepTable) string { return "" },
			first: []string{"old_slots_taken:1"},
		},
	}
}

var (
	retentionCommand = []string{"retention", "--once"}
	markCommand      = []string{"mark", "--once"}
)

// replaySteps are those of one run that goes on after each of them.
func replaySteps(once bool) []string {
	steps := []string{"old_snapshot_taken:1", "old_begun:1", "old_page_read:1", "old_page_read:2"}
	if once {
		return append(steps, "old_position_set:2", "records_produced:1", "before_end:1", "after_end:1", "old_position_set:1")
	}
	return append(steps, "before_produce:1", "in_promise:20", "old_done_written:1", "in_promise:20")
}

// killsIn are the steps of one round. Some are come to in the first one alone.
func (c *stepCase) killsIn(round int, once bool) (steps []string) {
	if round == 0 || c.again {
		steps = append(steps, c.first...)
	}
	if c.again {
		return append(steps, replaySteps(once)...)
	}
	return append(steps, c.steps...)
}

// stepsAtOnce is how many commands are killed at a time: most of what they do is waiting.
const stepsAtOnce = 3

// stepKinds are one kind for each command, for plans that name it. N is how often it is killed, in
// thousands: what is below keeps tables of one run apart.
func stepKinds() (all []*kind) {
	for i, c := range stepCases() {
		all = append(all, &kind{name: "steps_" + c.name, about: "kill -9 of " + c.about + " at its named steps", takes: []string{fmt.Sprintf("steps_%d", i%stepsAtOnce)}, special: true, run: func(ctx context.Context, w *world, d *Done) error {
			return playSteps(ctx, w, d, c)
		}})
	}
	return all
}
