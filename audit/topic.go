package audit

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/audit/match"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/waiting"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// slack is by how much clocks of the database and of whoever produces may differ.
const slack = time.Hour

// patience is how long a Kafka transaction may hide what is read.
const patience = 75 * time.Second

// records takes the records of all topics that rows go to, from an hour before a time on; zero: all.
func (w *work) records(ctx context.Context, from time.Time) error {
	scanner, err := topics.NewScanner(w.settings.Kafka.Connection)
	if err != nil {
		return err
	}
	defer scanner.Close()
	if err := w.letters(ctx, scanner); err != nil { // before the ends of the topics: see doc.go
		return err
	}
	mapped := slices.ContainsFunc(w.sides, func(s *side) bool { return s.mapped })
	var since time.Time
	if !from.IsZero() && !mapped {
		since = from.Add(-slack)
	}
	spans, err := scanner.Spans(ctx, since, w.topics.Names...)
	if err != nil {
		return err
	}
	w.cut = slices.ContainsFunc(spans, func(s topics.Span) bool { return s.From > s.Begin })
	if err := w.inspectTopics(ctx, scanner, spans, mapped); err != nil {
		return err
	}
	w.result.Topics = len(w.topics.Names)
	oldest := make(map[string]time.Time) // by topic, the newest of its partitions' beginnings
	seen := make(map[partition]bool)
	number := make(map[string]uint16, len(w.topics.Names))
	for i, name := range w.topics.Names {
		number[name] = uint16(i)
	}
	read := int64(0)
	err = scanner.Scan(ctx, spans, patience, func(m *topics.Message) error {
		read++
		w.progress("records read", read)
		if at := (partition{m.Topic, m.Partition}); !seen[at] {
			seen[at] = true
			if m.Timestamp.After(oldest[m.Topic]) {
				oldest[m.Topic] = m.Timestamp
			}
		}
		return w.record(number[m.Topic], m)
	})
	if err != nil {
		return err
	}
	w.horizons(spans, seen, oldest, mapped)
	return nil
}

type partition struct {
	topic  string
	number int32
}

// inspectTopics finds out what the topics may have removed.
func (w *work) inspectTopics(ctx context.Context, scanner *topics.Scanner, spans []topics.Span, mapped bool) error {
	w.topic = make([]match.Topic, len(w.topics.Names))
	compacted, unseen, err := scanner.Compacted(ctx, w.topics.Names...)
	if err != nil {
		return err
	}
	for i, name := range w.topics.Names {
		w.topic[i].Compacted = compacted[name]
		of := 0
		for _, span := range spans {
			if span.Topic == name {
				of++
				w.topic[i].Removed = w.topic[i].Removed || span.Begin > 0 && span.From == span.Begin
			}
		}
		if of == 0 {
			w.limit("topic %s does not exist", name)
		}
		if compacted[name] && !slices.Contains(unseen, name) {
			w.limit("topic %s is compacted: all but the last record of a key may be gone", name)
		}
		if w.topic[i].Removed {
			w.limit("topic %s has removed its oldest records", name)
		}
	}
	if len(unseen) > 0 {
		w.limit("the settings of %s may not be seen (DESCRIBE_CONFIGS): taken for compacted", strings.Join(wording.Shorten(unseen), ", "))
	}
	if mapped && !w.since.IsZero() {
		w.say("the records have times of the table: the topics are read from their beginnings")
	}
	return nil
}

// horizons says of each topic since when it has removed nothing. Where a partition is empty, or
// its times are those of the table, nobody knows.
func (w *work) horizons(spans []topics.Span, seen map[partition]bool, oldest map[string]time.Time, mapped bool) {
	for i, name := range w.topics.Names {
		if !w.topic[i].Removed || mapped {
			continue
		}
		known := true
		for _, span := range spans {
			if span.Topic == name && span.Begin > 0 && span.From == span.Begin {
				known = known && seen[partition{name, span.Partition}]
			}
		}
		if at := oldest[name].Add(slack).Unix(); known && at > 0 {
			w.topic[i].Horizon = uint32(min(at, math.MaxUint32))
		}
	}
}

// record takes a record.
func (w *work) record(topic uint16, m *topics.Message) error {
	id, found := eventID(m.Headers)
	if !found {
		w.result.Foreign++
		return nil
	}
	entry := match.Record{ID: w.hasher.ID(id)}
	if !entry.ID.Sampled(w.sample) {
		return nil
	}
	w.result.Records++
	entry.Content = w.hasher.Content(m.Key, w.value(m.Value), m.Headers)
	entry.Topic, entry.Partition, entry.Offset = topic, m.Partition, m.Offset
	for _, h := range m.Headers {
		switch h.Key {
		case record.HeaderReplay, record.HeaderBackfill:
			entry.Resent = true
		case record.HeaderLSN:
			if at, err := wal.ParseLSN(string(h.Value)); err == nil {
				entry.LSN = uint64(at)
			}
		case record.HeaderSeq:
			entry.Seq = number32(h.Value)
		}
	}
	return w.match.Record(&entry)
}

// letters reads which rows wait in the dead-letter topic.
func (w *work) letters(ctx context.Context, scanner *topics.Scanner) error {
	here := w.holder.Origin()
	set := waiting.New(func(source string) bool {
		system, database, slot := deadletter.SplitSource(source)
		return system == here.SystemID && database == here.Database && w.settings.Replication.OwnSlot(slot)
	})
	spans, err := scanner.Spans(ctx, time.Time{}, w.settings.DeadLetterTopic)
	if err == nil {
		err = scanner.Scan(ctx, spans, patience, func(m *topics.Message) error { set.Read(m); return nil })
	}
	if err != nil {
		if e, ok := errors.AsType[*sink.Error](err); ok && e.Reason == fault.ReasonTopicAuthorizationFailed && w.settings.OnReject != relay.DeadLetterOnReject {
			w.limit("dead letters: topic %s may not be read", w.settings.DeadLetterTopic)
			return nil
		}
		return err
	}
	if set.Full() {
		return &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonDeadLettersFull, Op: "audit",
			Err: errors.New("more dead letters wait than can be held against the rows"), Hint: "send or discard them: cdc-relay deadletter",
		}
	}
	of, full, every := make([]match.Letters, len(w.sides)), false, false
	for i, s := range w.sides {
		table := &waiting.Table{Name: s.Name, OID: s.OID, ID: s.id, Others: w.settings.Replication.Tables, Messages: w.settings.Replication.Messages}
		held := set.Of(table)
		discarded, more := set.Discarded(table)
		of[i] = match.Letters{Waiting: w.hashed(held.IDs), Unnamed: held.Unnamed(), Discarded: w.hashed(discarded)}
		full, every = full || more, every || held.Any()
	}
	if full {
		w.limit("more dead letters were discarded than can be held against the rows: the row of one that is left out counts as missing")
	}
	if every {
		w.limit("a dead letter that waits does not name its row, or names it by another column than the mapping has now: one row of its table without a record counts as waiting for each such letter, and which one it is of is not known")
	}
	w.match.Letters(of)
	return nil
}

func (w *work) hashed(events map[string]struct{}) map[match.ID]struct{} {
	ids := make(map[match.ID]struct{}, len(events))
	for id := range events {
		ids[w.hasher.ID([]byte(id))] = struct{}{}
	}
	return ids
}
