package topics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/cdc-relay/cdc-relay/sink/offsets"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Message is a record as a topic has it.
type Message struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       []byte // nil is a null key
	Value     []byte // nil is a null value
	Headers   []record.Header
}

// Follower reads one topic from its beginning and continues with new records. Run and CatchUp may
// run at the same time; Close ends both.
type Follower struct {
	topic string
	log   zerolog.Logger
	open  func() (*kgo.Client, error) // connects at its first call
	last  offsets.LastRecords         // of what was visited, where fetches have no id

	mu    sync.Mutex
	id    kadm.TopicID    // of the topic that was read; zero: nothing was, or fetches have no id
	next  map[int32]int64 // offset after what was visited, by partition
	moved chan struct{}   // closed when next or err changes
	err   error           // of the last fetch that failed, until one succeeds
}

// followWait is how long a broker holds a fetch of an idle topic. It also delays other fetches of
// that broker, and so CatchUp.
const followWait = 200 * time.Millisecond

// NewFollower connects to nothing yet; Run and CatchUp do. The principal needs READ
// and DESCRIBE on the topic.
func NewFollower(at broker.Connection, topic string, log zerolog.Logger) *Follower {
	return newFollower(at, topic, log, kgo.ReadCommitted())
}

// FollowUncommitted is NewFollower for a topic whose records are not transactional: open and
// aborted transactions hide none of them.
func FollowUncommitted(at broker.Connection, topic string, log zerolog.Logger) *Follower {
	return newFollower(at, topic, log, kgo.ReadUncommitted())
}

func newFollower(at broker.Connection, topic string, log zerolog.Logger, isolation kgo.IsolationLevel) *Follower {
	return &Follower{
		topic: topic, log: log, next: make(map[int32]int64), moved: make(chan struct{}),
		open: sync.OnceValues(func() (*kgo.Client, error) {
			return at.Consumer(kgo.ConsumeTopics(topic), kgo.FetchMaxWait(followWait), kgo.FetchIsolationLevel(isolation))
		}),
	}
}

// Run visits every record until ctx ends, those of a partition in order. visit must not keep the
// message. Run retries while brokers fail. If the topic was deleted and recreated, Run calls
// visit with nil and begins again: earlier messages are gone.
func (f *Follower) Run(ctx context.Context, visit func(*Message)) {
	client, err := f.open()
	if err != nil {
		return // CatchUp says so
	}
	for {
		fetches := f.poll(ctx, client)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		var failed error
		for _, e := range fetches.Errors() {
			failed = e.Err
		}
		fetches.EachTopic(func(t kgo.FetchTopic) {
			if t.TopicID != [16]byte{} {
				f.mu.Lock()
				f.id = t.TopicID
				f.mu.Unlock()
			}
		})
		if f.recreated(ctx, client, failed) {
			f.anew(client, visit)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if len(fetches) == 0 {
			continue // nothing came in time
		}
		f.visit(fetches, failed, visit)
		if errors.Is(failed, kerr.UnknownTopicID) && f.madeAgain(ctx, client) {
			f.anew(client, visit)
			continue
		}
		if failed != nil {
			f.log.Debug().Err(failed).Str("topic", f.topic).Msg("could not read the topic; trying again")
			select { // the client reports what does not heal by itself without pause
			case <-time.After(broker.MetadataMinAge):
			case <-ctx.Done():
				return
			}
		}
	}
}

// madeAgain reports whether the topic was recreated. A broker that does not know the topic's id
// may only be behind the controller.
func (f *Follower) madeAgain(ctx context.Context, client *kgo.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	now, err := letters.ID(ctx, client, f.topic)
	if err != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return now != kadm.TopicID{} && now != f.id
}

// outdated is madeAgain for who knows only that something may have been read. Offsets of
// another topic say nothing of this one.
func (f *Follower) outdated(ctx context.Context, client *kgo.Client) (bool, error) {
	if f.named() {
		return f.madeAgain(ctx, client), nil
	}
	return f.last.Gone(ctx, client, f.topic)
}

// anew begins with the topic that is there now.
func (f *Follower) anew(client *kgo.Client, visit func(*Message)) {
	f.log.Error().Str("topic", f.topic).Msg("topic was deleted and created again; reading the new one. The records of the old one are gone")
	client.PurgeTopicsFromConsuming(f.topic)
	visit(nil)
	f.mu.Lock()
	f.id, f.next, f.err = kadm.TopicID{}, make(map[int32]int64), nil
	f.last.Clear()
	f.mu.Unlock()
	client.AddConsumeTopics(f.topic)
}

func (f *Follower) visit(fetches kgo.Fetches, failed error, visit func(*Message)) {
	last := make(map[int32]*kgo.Record)
	fetches.EachRecord(func(r *kgo.Record) {
		if !r.Attrs.IsControl() {
			visit(newMessage(r))
		}
		last[r.Partition] = r
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = failed; len(last) == 0 && failed == nil {
		return
	}
	for partition, r := range last {
		f.next[partition] = r.Offset + 1
		if f.id == (kadm.TopicID{}) {
			f.last.Set(r)
		}
	}
	f.changed()
}

// changed wakes who waits in CatchUp. Call it with the lock held.
func (f *Follower) changed() {
	close(f.moved)
	f.moved = make(chan struct{})
}

func newMessage(r *kgo.Record) *Message {
	m := &Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, record.Header(h))
	}
	return m
}

// CatchUp returns once Run has visited everything that the topic holds now. A Kafka transaction
// that is open hides the records after it, committed ones too: with all, CatchUp waits for those
// as well. The error is a *sink.Error, with ReasonLettersHidden if ctx ended in that wait.
func (f *Follower) CatchUp(ctx context.Context, all bool) error {
	client, err := f.open()
	if err != nil {
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError, Err: err}
	}
	ends, err := offsets.Ends(ctx, client, f.topic, all)
	if err != nil {
		return f.missing(ctx, client, err)
	}
	outdated, err := f.outdated(ctx, client)
	if err != nil {
		return readError(f.topic, err)
	}
	if outdated {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonMetadataStale, Err: fmt.Errorf("read topic %q: it was deleted and created again, and the new one is not read yet", f.topic)}
	}
	for {
		f.mu.Lock()
		behind, moved, failed := false, f.moved, f.err
		for partition, end := range ends {
			behind = behind || f.next[partition] < end
		}
		f.mu.Unlock()
		switch {
		case !behind:
			return nil
		case failed != nil:
			return readError(f.topic, failed)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return f.late(client, ends, context.Cause(ctx))
		}
	}
}

// late is the error of a CatchUp whose time is over. What is committed may have been read.
func (f *Follower) late(client *kgo.Client, ends map[int32]int64, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), broker.MetadataMinAge)
	defer cancel()
	committed, err := offsets.Ends(ctx, client, f.topic, false)
	if err != nil {
		return readError(f.topic, cause)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for partition, end := range ends {
		if next := f.next[partition]; next < end && next >= committed[partition] {
			return lettersHidden(f.topic, partition, next, end)
		}
	}
	return readError(f.topic, cause)
}

func lettersHidden(topic string, partition int32, from, end int64) *sink.Error {
	return &sink.Error{Class: sink.Retry, Reason: fault.ReasonLettersHidden, Err: advice.Give(
		fmt.Errorf("read topic %q: offsets %d to %d of partition %d lie after the start of a Kafka transaction that is not over, and may hold letters of this relay", topic, from, end-1, partition),
		"it ends by itself with its transaction.timeout.ms at the latest; `kafka-transactions.sh find-hanging` names one that does not")}
}

// missing returns the error for a topic whose ends are unknown. It asks the controller first: a
// broker that has just started may not know the topic yet, and the relay takes a missing topic
// for one without letters.
func (f *Follower) missing(ctx context.Context, client *kgo.Client, err error) error {
	e := readError(f.topic, err)
	if e.Reason != fault.ReasonUnknownTopic {
		return e
	}
	made, refused := kadm.NewClient(client).ValidateCreateTopics(ctx, 1, 1, nil, f.topic) // before Kafka 2.4 there is no default of replicas
	if refused == nil {
		refused = made[f.topic].Err
	}
	if errors.Is(refused, kerr.TopicAlreadyExists) {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonMetadataStale, Err: fmt.Errorf("read topic %q: the controller has it, and a broker does not know it yet", f.topic)}
	}
	e.Err = advice.Give(e.Err, "`cdc-relay setup` makes it, if it is the dead-letter topic")
	return e
}

// Extent is where the followed topic has records; for a dead-letter topic that keeps every letter.
func (f *Follower) Extent(ctx context.Context, settings *letters.Topic, age time.Duration) (letters.Extent, error) {
	client, err := f.open()
	if err != nil {
		return letters.Extent{}, err
	}
	if err := settings.Lasting(ctx, kadm.NewClient(client), age); err != nil {
		return letters.Extent{}, err
	}
	return letters.ExtentOf(ctx, client, f.topic)
}

// Close ends it.
func (f *Follower) Close() {
	if client, err := f.open(); err == nil {
		client.Close()
	}
}

// ReadTopic visits the topic's present records, in order within each partition. An error of visit
// ends the reading and is returned; every other error is a *sink.Error. A missing topic has the reason
// unknown_topic. It does not visit what lies behind the start of an open Kafka transaction.
func ReadTopic(ctx context.Context, at broker.Connection, topic string, visit func(*Message) error) error {
	return ReadWhole(ctx, at, topic, 0, nil, visit)
}

// ReadWhole visits those records too: it waits until the transactions end, and calls waits (nil in ReadTopic alone) twice
// a second meanwhile. patience is the longest wait without a record; after it the error has ReasonLettersHidden.
func ReadWhole(ctx context.Context, at broker.Connection, topic string, patience time.Duration, waits func(), visit func(*Message) error) error {
	client, err := at.Consumer(kgo.FetchMaxWait(followWait))
	if err != nil {
		return err
	}
	defer client.Close()
	ends, err := offsets.Ends(ctx, client, topic, waits != nil)
	if err != nil {
		return readError(topic, err)
	}
	from := make(map[int32]kgo.Offset)
	for partition := range ends {
		from[partition] = kgo.NewOffset().AtStart()
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	next, came := make(map[int32]int64), time.Now()
	for len(ends) > 0 {
		fetches := pollFor(ctx, client, readStall)
		if ctx.Err() != nil {
			return readError(topic, context.Cause(ctx))
		}
		for _, e := range fetches.Errors() {
			return readError(topic, e.Err)
		}
		if fetches.Empty() {
			offsets.DropUnreadable(ctx, client, topic, next, ends)
			if waits == nil || len(ends) == 0 {
				continue
			} else if waits(); time.Since(came) < patience {
				continue
			}
			committed, err := offsets.Ends(ctx, client, topic, false)
			if err != nil {
				return readError(topic, err)
			}
			for partition, end := range ends {
				if committed[partition] < end {
					return lettersHidden(topic, partition, max(next[partition], committed[partition]), end)
				}
			}
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			end, open := ends[r.Partition]
			if !open {
				continue
			}
			if r.Offset < end && !r.Attrs.IsControl() {
				if err := visit(newMessage(r)); err != nil {
					return err
				}
			}
			next[r.Partition], came = r.Offset+1, time.Now()
			if r.Offset+1 >= end {
				delete(ends, r.Partition)
			}
		}
	}
	return nil
}

// readStall is for how long nothing comes before ReadTopic asks whether anything can.
const readStall = 500 * time.Millisecond

// pollFor returns what comes within a time; nothing is no error.
func pollFor(ctx context.Context, client *kgo.Client, d time.Duration) kgo.Fetches {
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	fetches := client.PollFetches(within)
	if within.Err() != nil && fetches.NumRecords() == 0 {
		return nil
	}
	return fetches
}

func readError(topic string, err error) *sink.Error {
	if errors.Is(err, kgo.ErrClientClosed) {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonClosed, Err: sink.ErrClosed}
	}
	e := broker.Classify(err)
	reason := e.Err
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		reason = advice.Give(err, "grant the relay's principal READ and DESCRIBE on the topic")
	}
	return &sink.Error{Class: e.Class, Reason: e.Reason, Err: fmt.Errorf("read topic %q: %w", topic, reason)}
}
