package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// mutant is a bug that is planted into the relay. A programme that does not find
// it would not find its like either.
type mutant struct {
	name    string
	about   string
	patches []patch
	faults  []string // that bring it out; empty: any
	test    string   // package and test that finds it instead of a seed
	version string   // of PostgreSQL; empty: 15
	link    bool     // needs a network device
}

// unchecked takes away the guard that refuses a position beyond what was handed
// out, which would otherwise find several mutants at once.
var unchecked = patch{"replication/status.go", "if confirmed > s.handed {", "if false {"}

var mutants = []mutant{
	{name: "confirm_unacknowledged", about: "a commit is confirmed when it is read", faults: []string{"relay_kill", "broker_hold", "net_kafka_stall"},
		patches: []patch{{"checkpoint/tracker.go", "t.bytes += e.Bytes\n", "t.bytes += e.Bytes\n\tt.confirm(e.Through)\n"}}},
	{name: "confirm_out_of_order", about: "a later acknowledgement confirms what comes before it", faults: []string{"relay_kill", "produce_*", "acl_revoked"},
		patches: []patch{{"checkpoint/tracker.go", "s.done = true\n", "s.done = true\n\tt.confirm(s.Through)\n"}}},
	{name: "confirm_latest_keepalive", about: "with nothing in flight, whatever was received is confirmed", faults: []string{"relay_kill*", "net_kafka_stall", "broker_hold"},
		patches: []patch{unchecked, {"relay/session.go", "lsn := s.tracker.Confirmable()", "lsn := s.tracker.Confirmable()\n\tif !s.delivery.Outstanding() {\n\t\tlsn = max(lsn, s.src.Received())\n\t}"}}},
	{name: "confirm_on_error", about: "an answer that is an error counts as an acknowledgement", faults: []string{"produce_*", "acl_revoked", "limit_lowered", "record_too_large"},
		patches: []patch{{"relay/delivery/in_flight.go", "func (d *Delivery) done(s *send, err error) {\n", "func (d *Delivery) done(s *send, err error) {\n\terr = nil\n"}}},
	{name: "write_as_flush", about: "what was written is reported as flushed", faults: []string{"relay_kill", "broker_hold", "net_kafka_stall"},
		patches: []patch{{"replication/status.go", "binary.BigEndian.PutUint64(body[9:], uint64(s.flush))", "binary.BigEndian.PutUint64(body[9:], uint64(s.write))"}}},
	{name: "confirm_at_stop", about: "a clean stop confirms all that was received", faults: []string{"relay_term*", "net_kafka_slow", "broker_hold"},
		patches: []patch{unchecked, {"relay/session_end.go", "closed := s.src.Close(final, s.confirmed())", "closed := s.src.Close(final, max(s.confirmed(), s.src.Received()))"}}},
	{name: "carry_over_a_reconnect", about: "a new session begins with what the old one had received", faults: []string{"net_pg_cut*", "pg_terminate_walsender", "pg_kill"},
		patches: []patch{unchecked, {"relay/session.go", "checkpoint.New(src.StartLSN(), ", "checkpoint.New(max(src.StartLSN(), carried), "},
			{"relay/session.go", "s.src.Abort()\n", "s.src.Abort()\n\tcarried = max(carried, s.src.Received())\n"},
			{"relay/session.go", "func newSession(", "var carried wal.LSN\n\nfunc newSession("}}},
	{name: "alias_column_bytes", about: "rows keep the read buffer instead of a copy",
		patches: []patch{{"replication/pgoutput/decoder.go", "copy(own, data)\n", "own = data\n"}}},
	{name: "stale_relation", about: "a relation that is announced again is taken for the old one", test: "./replication/pgoutput TestRelationKeepsItsPointerWhileItsShapeStays",
		patches: []patch{{"replication/pgoutput/relation.go", "old != nil && sameShape(old.Relation, &rel)", "old != nil"}}},
	{name: "resend_backwards", about: "failed records are sent again in the wrong order", faults: []string{"produce_*", "acl_revoked", "limit_lowered", "record_too_large"},
		patches: []patch{{"relay/delivery/in_flight.go", "return cmp.Compare(a.send.seq, b.send.seq)", "return cmp.Compare(b.send.seq, a.send.seq)"}}},
	{name: "no_halt", about: "records go on being sent after one failed, and nobody is told", test: "./sink/kafka TestKafka_ReportsARecordThatOvertookAFailedOne",
		patches: []patch{{"sink/kafka/send.go", "k.halted.Store(true)\n", ""}, {"sink/kafka/send.go", "case queue != nil && queue.brokenIn == k.round.Load():", "case false:"}}},
	{name: "skip_the_guilty", about: "a record that fails alone is left out", faults: []string{"limit_lowered", "record_too_large", "produce_invalid*", "acl_revoked"},
		patches: []patch{{"relay/delivery/at_least_once.go", "rest = append(rest, run[i])\n", "if len(run) > 1 {\n\t\t\trest = append(rest, run[i])\n\t\t} else {\n\t\t\tg.countDurable(run[i].send)\n\t\t\tcause = nil\n\t\t}\n"}}},
	{name: "lose_the_last_of_a_batch", about: "the last row of a full batch is not sent", faults: []string{"pg_checkpoint"},
		patches: []patch{{"replication/wal/slab.go", "b.Rows = s.rows[b.first:len(s.rows):len(s.rows)]", "b.Rows = s.rows[b.first:len(s.rows):len(s.rows)]\n\t\tif len(b.Rows) > 300 {\n\t\t\tb.Rows = b.Rows[:len(b.Rows)-1]\n\t\t}"}}},
	{name: "commit_start", about: "the start of a commit record is confirmed instead of its end", faults: []string{"relay_term"},
		patches: []patch{{"replication/pgoutput/decoder.go", "b.Through, b.ThroughTime = end, d.txn.Time", "b.Through, b.ThroughTime = commit, d.txn.Time"}}},
	{name: "repeat_confirmed_rows", about: "every batch is sent twice", faults: []string{"pg_checkpoint"},
		patches: []patch{{"relay/delivery/in_flight.go", "d.produce(records, func(err error) { d.done(s, err) })", "d.produce(records, func(error) { d.answered() })\n\td.produce(records, func(err error) { d.done(s, err) })"}}},
	{name: "ignore_the_notice", about: "version 18's notice of a missing publication is ignored", test: "./test/integration TestPublication_TheServersNoticeBlocks", version: "18",
		patches: []patch{{"replication/stream.go", "return s.notice(body)", "return nil"}}},
	{name: "trust_the_checkpoint", about: "what a checkpoint covers is skipped, whatever the stream shows", test: "./relay/resume TestProve_NoRowIsLostWhereADiskIsPutBack",
		patches: []patch{{"relay/resume/exactly_once.go", "at.Unproven = at.Position.Last.Known() && start <= at.Position.Last.Commit", "at.Unproven = false"}}},
	{name: "confirm_what_is_skipped", about: "rows that a checkpoint covers are confirmed before the stream has shown its last transaction", test: "./relay/delivery TestExactly_WhatIsSkippedIsConfirmedOnceItIsProven",
		patches: []patch{{"relay/delivery/exactly_once.go", "return min(lsn, wal.LSN(held))", "return min(lsn, wal.LSN(x.committedEnd.Load()))"}}},
	{name: "message_as_transaction", about: "a message takes the place of the transaction that commits where it ends", test: "./relay TestMessage_CoversNoTransactionThatCommitsWhereItEnds",
		patches: []patch{{"replication/wal/row.go", "return Place{r.Txn.Commit - 1, r.Ordinal}", "return Place{r.Txn.Commit, r.Ordinal}"}}},
	{name: "deliver_after_the_end", about: "what a closed connection to a broker has not delivered is sent later", faults: []string{"net_lost_kill"}, link: true,
		patches: []patch{{"sink/broker/connection.go", "SetLinger(0)", "SetLinger(-1)"}}},
	{name: "stranger_to_the_brokers", about: "each session that gives records up begins with a new producer id", test: "./relay TestRelay_KeepsOrderWhenABrokerIsSlowerThanAReconnect",
		patches: []patch{{"relay/client.go", "a, able := r.sink.(sink.Abandoner)\n", "a, able := r.sink.(sink.Abandoner)\n\table = false\n"}, {"relay/client.go", "r.waitForPredecessor = true\n\tr.dropSink()", "r.dropSink()"}}},
	{name: "wait_for_the_lost_server", about: "nothing ends a connection whose network is lost while it is not read", test: "./replication TestPostgresLostNetworkEndsTheStreamBeforeTheSlotIsFree", link: true,
		patches: []patch{{"postgres/patience_linux.go", "int(limit.Milliseconds())", "0"}}},
	{name: "swallow_unknown_relation", about: "rows of a relation that was never announced are left out", test: "./replication/pgoutput TestDecoderRefusesWithThePosition",
		patches: []patch{{"replication/pgoutput/decoder.go", "r, err := d.insertInto(msg, walStart)\n\tif err != nil {\n\t\treturn err\n", "r, err := d.insertInto(msg, walStart)\n\tif err != nil {\n\t\treturn nil\n"}}},
	{name: "delete_undelivered", about: "rows are removed that the slot has not passed", faults: []string{"retention_kill", "net_kafka_stall", "broker_hold"},
		patches: []patch{{"proof/passes.go", "&batch{rows: rows, fence: fence}", "&batch{rows: rows, fence: fence & 0}"}}},
	{name: "delete_unexported", about: "rows are removed whatever the store of their files answered", faults: []string{"export_s3_cut"},
		patches: []patch{{"retention/export/writer.go", "	if err != nil && !exists {\n\t\treturn \"\", b.failure(err)\n", "	if err != nil && !exists {\n\t\treturn \"\", nil\n"}}},
	{name: "letters_marked_before_sent", about: "dead letters are marked before their records are sent", test: lettersTest,
		patches: []patch{{"deadletter/redrive.go", "		out = r.deliver(ctx, p.entries, whole)\n", "		_ = r.writeMarkers(ctx, p, len(p.entries))\n\t\tout = r.deliver(ctx, p.entries, whole)\n"}}},
	{name: "letters_sharing_memory", about: "records that are restored into the same memory are sent and marked", test: lettersTest,
		patches: []patch{{"deadletter/redrive.go", "digestOf(&o.record) != o.sum", "false"}}},
	{name: "letters_of_any_source", about: "letters of other pipelines are selected with our own", test: lettersTest,
		patches: []patch{{"deadletter/backlog.go", "filter.Source != nil && !filter.Source(letter.Source)", "false"}}},
	{name: "letters_from_our_table", about: "a letter of another pipeline is completed from our table", test: lettersTest,
		patches: []patch{{"deadletter/redrive.go", "case !r.Own(l.Source):", "case false:"}}},
	{name: "letters_of_lost_rows", about: "a letter of a row that a failover lost is sent, with the row that has its id now", test: lettersTest,
		patches: []patch{{"deadletter/redrive.go", "case r.Lost != nil && r.Own(e.Source) && r.Lost(e):", "case false:"}}},
	{name: "letters_without_timeline", about: "the same position on two timelines is one record", test: lettersTest,
		patches: []patch{{"deadletter/backlog.go", "	case e.ID != other.ID:\n", "	case e.Place != other.Place || e.Nth != other.Nth:\n"}}},
	{name: "letters_one_for_a_row", about: "the second record of a row is taken for a copy of the first", test: lettersTest,
		patches: []patch{{"deadletter/backlog.go", "	case e.ID != other.ID:\n", "	case e.Timeline != other.Timeline || e.Place != other.Place:\n"}}},
	{name: "letters_in_the_order_of_positions", about: "letters of a key are sent by position, whatever their timeline", test: lettersTest,
		patches: []patch{{"deadletter/letter.go", "return cmp.Or(cmp.Compare(i.Timeline, other.Timeline), i.committed().Compare(other.committed()), ", "return cmp.Or(i.committed().Compare(other.committed()), cmp.Compare(i.Timeline, other.Timeline), "}}},
	{name: "letters_unread_are_covered", about: "a marker covers letters of its key up to a row, also such as nobody has read", test: lettersTest,
		patches: []patch{{"deadletter/marker.go", "case m.byRow:", "case m.byRow || m.Through != wal.Place{}:"}}},
	{name: "letters_sent_past_a_failure", about: "what is behind a letter that was not sent is sent", test: lettersTest,
		patches: []patch{{"deadletter/redrive.go", "failed[p.task] = out.Err != nil", "failed[p.task] = false"}}},
	{name: "letters_without_acknowledgement", about: "records count as sent that the brokers refused", test: lettersTest,
		patches: []patch{{"deadletter/redrive_send.go", "	n := 0\n", "	if why == nil {\n\t\treturn len(records), nil\n\t}\n	n := 0\n"}}},
	{name: "letters_discarded_with_their_key", about: "to discard a letter discards all of its key", test: lettersTest,
		patches: []patch{{"deadletter/backlog.go", "{ return b.tasks(false) }", "{ return b.tasks(true) }"}}},
	{name: "letters_discarded_but_for_copies", about: "the copies of a letter that was discarded are sent", test: lettersTest,
		patches: []patch{{"deadletter/backlog.go", "!slices.ContainsFunc(chosen[e.ID], e.copyOf)", "!e.Matched"}}},
	{name: "parked_key_freed_by_any_marker", about: "a marker frees a key of which other letters wait", test: lettersTest,
		patches: []patch{{"deadletter/parked.go", "s.cover(m.Offsets)", "!m.byRow"}}},
	{name: "parked_key_freed_on_the_way", about: "a key is freed while a letter of it is on its way to the topic", test: lettersTest,
		patches: []patch{{"deadletter/parked.go", "return k.sent == ID{} && len(k.spans) == 0", "return len(k.spans) == 0"}}},
	{name: "parked_key_kept_for_ever", about: "markers that cover a key together do not free it", test: lettersTest,
		patches: []patch{{"deadletter/marker.go", "append(set, offsetRange{from, e.Offset})", "append(set, offsetRange{max(from, e.Offset), e.Offset})"}}},
	{name: "parked_key_waits_for_lost_rows", about: "a key waits for the letter of a row that a failover lost", test: lettersTest,
		patches: []patch{{"deadletter/parked.go", "if k.sent != (ID{}) && gone(k.sent) {", "if false {"}}},
	{name: "parked_key_is_overtaken", about: "later rows of a parked key go to their topic", faults: []string{"letters_redrive*", "letters_relay_kill", "letters_discard"},
		patches: []patch{{"deadletter/parked.go", "if k == nil || id.Compare(k.first) < 0 {", "if k == nil || id.Compare(k.first) != 0 {"}}},
	{name: "letters_hidden_by_a_header", about: "a header of the row makes its letter unreadable", test: lettersTest,
		patches: []patch{{"deadletter/parse.go", "case letter:\n", "case letter == marker:\n\t\tp.err = ErrForeign\n\tcase letter:\n"}}},
}

// lettersTest finds what is planted into the tools for dead letters.
const lettersTest = "./deadletter TestSimulation_LettersAreNeitherLostNorMixed"

// Kill is how a mutant ended.
type Kill struct {
	Name  string `json:"name"`
	About string `json:"about"`
	By    string `json:"by"` // the property that does not hold, or a test; empty: it survived
	Seeds int    `json:"seeds"`
}

// mutantSeeds is how many seeds a mutant gets.
const mutantSeeds = 6

// mutate plants each mutant and counts the seeds until it is found. It goes on past one
// that cannot be planted or is not found, and fails at the end.
func (p *programme) mutate(ctx context.Context) error {
	var survived, unplanted []string
	for _, m := range mutants {
		if p.only != "" && !slices.Contains(strings.Split(p.only, ","), m.name) {
			continue
		}
		if link, err := sandbox.NewLink(sandbox.LinkOptions{}); err == nil {
			_ = link.Close()
		} else if m.link && forbidden(err) {
			fmt.Fprintf(p.out, "mutant %-26s LEFT OUT: it needs root's rights and Linux: %v\n", m.name, err)
			continue
		}
		k, err := p.plant(ctx, m)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.figures.Mutants = append(p.figures.Mutants, k)
		switch {
		case err != nil:
			fmt.Fprintf(p.out, "mutant %-26s NOT PLANTED: %v\n", m.name, err)
			unplanted = append(unplanted, m.name)
		case k.By == "":
			survived = append(survived, m.name)
			fallthrough
		default:
			fmt.Fprintf(p.out, "mutant %-26s seeds %d  %s\n", m.name, k.Seeds, k.By)
		}
	}
	if len(p.figures.Mutants) == 0 {
		return fmt.Errorf("-only %s: no such mutant", p.only)
	}
	return errors.Join(p.failed("not found", survived), p.failed("could not be planted", unplanted))
}

// failed tells of names, if there are any.
func (p *programme) failed(what string, names []string) error {
	if names == nil {
		return nil
	}
	fmt.Fprintf(p.out, "FAILED: %s: %s\n", what, strings.Join(names, ", "))
	return errFound
}

func (p *programme) plant(ctx context.Context, m mutant) (Kill, error) {
	k := Kill{Name: m.name, About: m.about}
	dir := filepath.Join(p.flags.out, "mutant_"+m.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return k, err
	}
	defer os.RemoveAll(dir)
	flag, err := overlay(ctx, dir, m.patches, nil)
	if err != nil {
		return k, err
	}
	if m.test != "" {
		where, name, _ := strings.Cut(m.test, " ")
		cmd := exec.CommandContext(ctx, "go", "test", flag, "-count=1", "-run", "^"+name+"$", where)
		cmd.Env = append(os.Environ(), "CDC_RELAY_TEST_POSTGRES_VERSIONS="+m.version)
		out, err := cmd.CombinedOutput()
		var failed *exec.ExitError
		switch {
		case errors.As(err, &failed) && strings.Contains(string(out), "--- FAIL"):
			k.By = name
			return k, nil
		case err != nil:
			return k, fmt.Errorf("%w\n%s", err, out)
		}
		return k, nil
	}
	binary, err := build(ctx, dir, flag)
	if err != nil {
		return k, err
	}
	version := m.version
	if version == "" {
		version = "15"
	}
	for seed := uint64(1); seed <= mutantSeeds; seed++ {
		plan, err := NewPlan(seed, Options{Duration: 8 * time.Second, Gap: 700 * time.Millisecond, Faults: m.faults, Postgres: version, Broker: "kfake", Large: 2000})
		if err != nil {
			return k, err
		}
		k.Seeds++
		artefacts := filepath.Join(dir, fmt.Sprint(seed))
		if err := os.MkdirAll(artefacts, 0o755); err != nil {
			return k, err
		}
		v, err := run(ctx, p.servers, plan, binary, artefacts)
		if ctx.Err() != nil {
			return k, context.Cause(ctx)
		}
		if err != nil { // a relay that does not even start is found, too
			p.servers.forget(plan)
			k.By = "it does not stream: " + firstLine(err.Error())
			return k, nil
		}
		if len(v.Violations) > 0 {
			p.servers.forget(plan)
			k.By = firstLine(v.Violations[0])
			return k, nil
		}
	}
	return k, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > 110 {
		line = line[:110] + "…"
	}
	return line
}
