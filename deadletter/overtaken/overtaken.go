package overtaken

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// maxLetters bounds the memory: a few MiB. What is more is not counted.
const maxLetters = 20_000

// Found are the letters of one source that later rows overtake.
type Found struct {
	Topic, Source string
	Letters, Keys int
	More          bool // there are more than were counted

	gone bool // its slot is
}

// Seen says what was found.
func (f *Found) Seen() string {
	_, _, slot := deadletter.SplitSource(f.Source)
	more, why := "", "relay.on_reject and relay.park_key do not hold them back"
	if f.More {
		more = "more than "
	}
	if f.gone {
		why = "they are of slot " + slot + ", which does not exist"
	}
	return fmt.Sprintf("%s%s of %s wait in topic %s, and later rows of these keys are sent past them: %s", more, wording.Count(f.Letters, "dead letter"), wording.Count(f.Keys, "key"), f.Topic, why)
}

// Next is what to do about it.
func (f *Found) Next() string {
	of := "--source " + f.Source + " "
	if !f.gone {
		of = ""
	}
	return fmt.Sprintf("send them with `cdc-relay deadletter redrive %s--all --yes`, or discard them with `--discard`", of)
}

// ReadLetters reads the dead-letter topic, and asks PostgreSQL only if it has a record. Without a
// topic, or without the right to read it, there is nothing to find: ok is false.
func ReadLetters(ctx context.Context, settings relay.Config) (found []*Found, ok bool, err error) {
	settings = settings.WithDefaults()
	l := &letters{settings: settings, groups: make(map[group]*waiting)}
	err = topics.ReadTopic(ctx, settings.Kafka.Connection, settings.DeadLetterTopic, func(m *topics.Message) (err error) {
		if l.there == nil {
			if l.there, err = catalog.ReadSources(ctx, settings.Replication); err != nil {
				return err
			}
		}
		l.read(m)
		return nil
	})
	if e, is := errors.AsType[*sink.Error](err); is && (e.Reason == fault.ReasonUnknownTopic || e.Reason == fault.ReasonTopicAuthorizationFailed) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return l.overtaken(), true, nil
}

type group struct {
	source string
	group  deadletter.Group
}

// waiting are the letters of a key that no marker covers.
type waiting struct {
	letters []deadletter.Letter // without what may be large
	parked  bool                // its key was parked
}

// letters are those of keys that wait. Pure.
type letters struct {
	settings relay.Config
	there    *catalog.Sources
	groups   map[group]*waiting
	count    int
	more     bool
}

func (l *letters) read(m *topics.Message) {
	letter, marker, err := deadletter.Parse(m)
	switch {
	case err != nil:
	case marker != nil:
		l.done(marker)
	case letter.Keyed && l.mine(letter):
		l.add(letter)
	}
}

// mine reports whether a letter is of this configuration, now or under earlier names of the slots, whatever its
// table was called then. A slot parks the keys of its own letters alone: those of another number of shards are
// held back by nobody.
func (l *letters) mine(letter *deadletter.Letter) bool {
	at, in, slot := deadletter.SplitSource(letter.Source)
	cfg := &l.settings.Replication
	switch {
	case at != l.there.System || in != l.there.Database:
		return false
	case cfg.StreamsFrom(slot):
		return !l.parks()
	case l.there.Has(in, slot):
		return false
	case letter.Of.Known && slices.Contains(l.there.Tables, letter.Of.OID):
		return true
	}
	return slices.ContainsFunc(cfg.Tables, func(t wal.Table) bool { return t.Schema+"."+t.Name == letter.Table }) ||
		slices.ContainsFunc(cfg.Messages, func(prefix string) bool { return wal.MessageRelation(prefix, 0).Qualified() == letter.Table })
}

func (l *letters) parks() bool {
	return l.settings.OnReject == relay.DeadLetterOnReject && l.settings.ParkKey
}

func (l *letters) add(letter *deadletter.Letter) {
	if l.count >= maxLetters {
		l.more = true
		return
	}
	l.count++
	of := group{letter.Source, letter.Group}
	if l.groups[of] == nil {
		l.groups[of] = new(waiting)
	}
	w := l.groups[of]
	w.parked = w.parked || letter.Parks || letter.Reason == deadletter.CauseParked
	w.letters = append(w.letters, deadletter.Letter{ID: letter.ID, Source: letter.Source, Group: letter.Group, Partition: letter.Partition, Offset: letter.Offset})
}

func (l *letters) done(m *deadletter.Marker) {
	of := group{m.Source, m.Group}
	w := l.groups[of]
	if w == nil {
		return
	}
	before := len(w.letters)
	w.letters = slices.DeleteFunc(w.letters, func(letter deadletter.Letter) bool { return m.Covers(&letter) })
	l.count -= before - len(w.letters)
	if len(w.letters) == 0 {
		delete(l.groups, of)
	}
}

// overtaken are the letters by source. Where relay.on_reject makes letters without parking their
// keys, that is the order that was asked for, except of keys that were parked before.
func (l *letters) overtaken() (all []*Found) {
	by := make(map[string]*Found)
	for of, w := range l.groups {
		_, _, slot := deadletter.SplitSource(of.source)
		own := l.settings.Replication.StreamsFrom(slot)
		if own && l.settings.OnReject == relay.DeadLetterOnReject && !w.parked {
			continue
		}
		f := by[of.source]
		if f == nil {
			f = &Found{Topic: l.settings.DeadLetterTopic, Source: of.source, More: l.more, gone: !own}
			by[of.source] = f
			all = append(all, f)
		}
		f.Keys++
		f.Letters += len(w.letters)
	}
	slices.SortFunc(all, func(a, b *Found) int { return cmp.Compare(a.Source, b.Source) })
	return all
}
