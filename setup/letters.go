package setup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/waiting"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	letterstopic "github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// letters is which topic has the dead letters, as it is recorded and as it is now.
type letters struct {
	key      string
	was, now *stored.LettersTopic // nil: nothing is recorded; there is no topic
	others   map[string]string    // topics that are recorded of other slots of the cluster, by their names without that of a shard
}

func (s *Setup) readLetters(ctx context.Context, ledger *topics.Ledger, system string) (*letters, error) {
	l := &letters{key: stored.LettersTopicKey(system, s.settings.Replication.BaseSlot()), others: make(map[string]string)}
	values, err := ledger.Read(ctx, "")
	if err != nil {
		return nil, err
	}
	for key, value := range values {
		slot, is := stored.LettersTopicSlot(system, key)
		if !is {
			continue
		}
		was, err := stored.ParseLettersTopic(value)
		switch {
		case key != l.key:
			l.others[slot] = was.Topic
		case err != nil:
			return nil, fmt.Errorf("topic %s: %w", s.settings.CheckpointTopic, err)
		default:
			l.was = &was
		}
	}
	seen, err := letterstopic.ReadExtent(ctx, s.settings.Kafka.Connection, s.settings.DeadLetterTopic)
	switch {
	case noTopic(err):
		return l, nil
	case err != nil:
		return nil, err
	}
	l.now = &stored.LettersTopic{Topic: s.settings.DeadLetterTopic, ID: seen.ID, Begins: seen.Begins, At: time.Now(), Relay: s.version}
	return l, nil
}

// noTopic reports whether the topic does not exist.
func noTopic(err error) bool {
	e, ok := errors.AsType[*sink.Error](err)
	return ok && e.Reason == fault.ReasonUnknownTopic
}

// changed is why letters that waited may be lost; empty: none is.
func (l *letters) changed() string {
	switch {
	case l.now != nil:
		return l.was.Changed(l.now)
	case l.was != nil:
		return "it does not exist any more"
	}
	return ""
}

// recordLetters writes which topic has the dead letters, where nothing is recorded. A record that
// the topic does not agree with stays: only a person knows what became of the letters.
func (s *Setup) recordLetters(ctx context.Context) {
	if !s.settings.KeepsPositions() || s.settings.OnReject != relay.DeadLetterOnReject {
		return
	}
	if err := s.tryRecordLetters(ctx); err != nil {
		s.warn("which topic has the dead letters is not written to topic %s: %v. The first `cdc-relay retention` or `mark` writes it", s.settings.CheckpointTopic, err)
	}
}

func (s *Setup) tryRecordLetters(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkpoints.Patience(1))
	defer cancel()
	standing, ledger, err := s.standing(ctx)
	if err != nil {
		return err
	}
	defer ledger.Close()
	l, err := s.readLetters(ctx, ledger, standing.Origin.SystemID)
	for range 20 { // the brokers tell each other of a topic that was just made
		if err != nil || l.now != nil {
			break
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
		l, err = s.readLetters(ctx, ledger, standing.Origin.SystemID)
	}
	if err != nil {
		return err
	}
	if changed := l.changed(); changed != "" {
		s.warn("topic %s: %s. Dead letters that waited may be lost, so their rows stay: `retention` and `mark` pause. Next: %s", s.settings.DeadLetterTopic, changed, stored.DeclareLetters)
		return nil
	}
	if l.was != nil || l.now == nil {
		return nil
	}
	return ledger.Write(ctx, l.key, l.now.Encode())
}

// renewLetters records the topic that is there now: the operator declares that no letter of an
// earlier one waits.
func (s *Setup) renewLetters(ctx context.Context, ledger *topics.Ledger, l *letters, dryRun bool) error {
	if l.changed() == "" {
		return nil
	}
	if dryRun {
		s.say("-- would write to topic %s that no dead letter of an earlier topic waits", s.settings.CheckpointTopic)
		return nil
	}
	var value []byte // without a topic there is nothing to record
	if l.now != nil {
		value = l.now.Encode()
	}
	if err := ledger.Write(ctx, l.key, value); err != nil {
		return err
	}
	s.say("wrote to topic %s that no dead letter of an earlier topic waits", s.settings.CheckpointTopic)
	return nil
}

// refuseWaiting fails while dead letters wait whose rows may be of the configured tables. Those of this
// pipeline count whatever their table is called: it may have been renamed. Those of another server or
// database, or of a slot that is gone, may be of this pipeline before it was moved, restored or renamed, if
// their tables have the names of the configured ones, or in this database are these tables.
func (s *Setup) refuseWaiting(ctx context.Context, l *letters) error {
	there, err := catalog.ReadSources(ctx, s.settings.Replication)
	if err != nil {
		return fault.Refuse(err)
	}
	cfg := &s.settings.Replication
	here := func(source string) (database, own bool) {
		at, in, slot := deadletter.SplitSource(source)
		database = at == there.System && in == there.Database
		return database, database && cfg.OwnSlot(slot)
	}
	counts := func(source, table string, of deadletter.Table) bool {
		database, own := here(source)
		at, in, slot := deadletter.SplitSource(source)
		switch {
		case own:
			return true
		case at == there.System && there.Has(in, slot):
			return false // of another pipeline
		case database && of.Known && slices.Contains(there.Tables, of.OID):
			return true
		}
		return slices.ContainsFunc(cfg.Tables, func(t wal.Table) bool { return t.Schema+"."+t.Name == table }) ||
			slices.ContainsFunc(cfg.Messages, func(prefix string) bool { return wal.MessageRelation(prefix, 0).Qualified() == table })
	}
	if l.now != nil {
		if err := s.refuseIn(ctx, l.now.Topic, counts); err != nil {
			return err
		}
	}
	if l.was != nil && l.was.Topic != s.settings.DeadLetterTopic {
		if err := s.refuseIn(ctx, l.was.Topic, func(source, _ string, _ deadletter.Table) bool { _, own := here(source); return own }); err != nil {
			return err
		}
	}
	for _, topic := range l.left(there, s.settings.DeadLetterTopic) {
		if err := s.refuseIn(ctx, topic, counts); err != nil {
			return err
		}
	}
	return nil
}

// left are the topics besides one that had the dead letters of slots which are gone.
func (l *letters) left(there *catalog.Sources, besides string) (list []string) {
	for base, topic := range l.others {
		exists := slices.ContainsFunc(there.Slots, func(s string) bool {
			_, name, _ := strings.Cut(s, "/")
			_, _, of := postgres.ParseShardName(base, name)
			return of
		})
		if !exists && topic != "" && topic != besides {
			list = append(list, topic)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (s *Setup) refuseIn(ctx context.Context, topic string, counts func(source, table string, of deadletter.Table) bool) error {
	set, err := waiting.Load(ctx, s.settings.Kafka.Connection, topic, func(string) bool { return true })
	if err != nil && !noTopic(err) {
		return &advice.Refused{Err: broker.AdviseReachable(err)}
	}
	found, all := set.Sources(counts), 0
	var each []string
	for _, source := range slices.Sorted(maps.Keys(found)) {
		all += found[source]
		each = append(each, fmt.Sprintf("%d of %s", found[source], wording.Printable(source)))
	}
	if all == 0 && !set.Full() {
		return nil
	}
	at := ""
	if topic != s.settings.DeadLetterTopic {
		at = " --set relay.dead_letter_topic=" + topic
	}
	seen := fmt.Sprintf("topic %s has %s that nobody has sent or discarded: %s", topic, wording.Count(all, "dead letter"), strings.Join(each, ", "))
	if set.Full() {
		seen = "more dead letters wait in topic " + topic + " than can be looked at"
	}
	return fault.Refuse(&fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonBeforeSlotUnknown, Op: "declare what lies before", Err: errors.New(seen),
		Hint: "send them with `cdc-relay deadletter redrive" + at + " --source SOURCE --all --yes`, or discard them with `--discard`; if another pipeline has a table of that name, use a dead-letter topic of your own",
	})
}
