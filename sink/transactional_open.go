package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Open shuts out whoever else has the transactional id, and returns the value of the
// last checkpoint that was committed under the key, nil when there is none. The error
// is a *Error.
//
// The order is the argument. A new epoch aborts what the predecessor left open and
// refuses what it still tries, but a commit of his that was on its way may have
// counted. So the topic is read after that, up to a record of our own: whatever
// lies before that record is settled.
func (t *Transactional) Open(ctx context.Context, h Holder) ([]byte, error) {
	t.mu.Lock()
	last, closed := t.session, t.closed
	t.session = nil
	t.mu.Unlock()
	if last != nil {
		if err := last.end(ctx, ErrHalted); err != nil {
			return nil, &Error{Retry, ReasonClosed, err}
		}
	}
	if closed {
		return nil, &Error{Retry, ReasonClosed, ErrClosed}
	}
	client, err := t.connect(h.ID)
	if err != nil {
		return nil, &Error{Blocked, ReasonKafkaError, err}
	}
	value, err := t.takeOver(ctx, client, h)
	if err != nil {
		client.Close()
		return nil, t.opening(ctx, h.ID, err)
	}
	n := newProducerSession(t, client, h)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		client.Close()
		return nil, &Error{Retry, ReasonClosed, ErrClosed}
	}
	t.session = n
	go n.run()
	return value, nil
}

func (t *Transactional) connect(id string) (*kgo.Client, error) {
	opts, err := t.plain.options()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, kgo.RecordPartitioner(newPartitioner(t.plain.sent.add)),
		kgo.TransactionalID(id), kgo.TransactionTimeout(t.cfg.Timeout), kgo.RetryBackoffFn(retryPause))...)
	if err != nil {
		return nil, fmt.Errorf("configure kafka client: %w", err)
	}
	return client, nil
}

// retryPause is short at first: brokers that are still ending the last transaction
// refuse the next one's records for some milliseconds.
func retryPause(tries int) time.Duration {
	pause := min(20*time.Millisecond<<min(max(tries, 1)-1, 10), 2500*time.Millisecond)
	return pause/2 + rand.N(pause)
}

// opening puts a failure of Open into words.
func (t *Transactional) opening(ctx context.Context, id string, err error) error {
	if cause := t.plain.reach.cause(); cause != nil && ctx.Err() != nil {
		err = cause // a deadline says less
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, kerr.InvalidTransactionTimeout) {
		return &Error{Blocked, ReasonTransactionTimeoutRefused, advise(fmt.Errorf("open transactional producer: %w", err), fmt.Sprintf("raise transaction.max.timeout.ms of the brokers to %s or more", t.cfg.Timeout))}
	}
	e := t.classify(err, 0)
	err = fmt.Errorf("open transactional producer %q: %w", id, e.Err)
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		err = fmt.Errorf("%w: %s", err, grantTransactions(id, "literal"))
	}
	return &Error{e.Class, e.Reason, err}
}

func (t *Transactional) takeOver(ctx context.Context, client *kgo.Client, h Holder) ([]byte, error) {
	if err := t.fence(ctx, client); err != nil {
		return nil, err
	}
	at, err := t.settle(ctx, client, h.Key)
	if err != nil {
		return nil, err
	}
	return t.last(ctx, h.Key, at)
}

// fence asks for a new epoch until the brokers give one: while they settle the
// predecessor's transaction they do not. An answer without a meaning ends the try, as
// the client would keep to it.
func (t *Transactional) fence(ctx context.Context, client *kgo.Client) error {
	for {
		_, _, err := client.ProducerID(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil: // the client then says that it is closed
			return fmt.Errorf("the brokers gave no producer id: %w", context.Cause(ctx))
		}
		if known, answered := errors.AsType[*kerr.Error](err); t.classify(err, 0).Class != Retry || answered && !known.Retriable && known != kerr.ConcurrentTransactions {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// openings are the keys of the records that say where a producer session began.
const openings = "opened by "

// settle commits a record of its own and returns its offset. It has no value, so that
// compaction removes it in time.
func (t *Transactional) settle(ctx context.Context, client *kgo.Client, key string) (int64, error) {
	if err := client.BeginTransaction(); err != nil {
		return 0, err
	}
	rec := &kgo.Record{Topic: t.cfg.CheckpointTopic, Key: []byte(openings + key), Context: context.Background()}
	outcome := make(chan error, 1)
	client.Produce(context.Background(), rec, func(_ *kgo.Record, err error) { outcome <- err })
	select {
	case err := <-outcome:
		if err != nil {
			return 0, &checkpointError{t.cfg.CheckpointTopic, err}
		}
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return 0, &commitError{err}
	}
	return rec.Offset, nil
}

// lookBack is how far before the end the last checkpoint is looked for first. Each
// transaction takes two offsets.
const lookBack = 2000

// last is the newest value under the key before an offset that is committed.
func (t *Transactional) last(ctx context.Context, key string, end int64) ([]byte, error) {
	from := max(0, end-lookBack)
	value, found, err := t.scan(ctx, key, from, end)
	if err == nil && !found && from > 0 {
		value, _, err = t.scan(ctx, key, 0, end)
	}
	return value, err
}

func (t *Transactional) scan(ctx context.Context, key string, from, end int64) (value []byte, found bool, err error) {
	client, err := t.cfg.consumer(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.cfg.CheckpointTopic: {0: kgo.NewOffset().At(from)}}))
	if err != nil {
		return nil, false, err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, false, &Error{Retry, ReasonCheckpointHidden, fmt.Errorf("read checkpoint topic %q: %w before offset %d; the open transaction of another relay that died hides what follows, until the brokers end it after %s",
				t.cfg.CheckpointTopic, context.Cause(ctx), end, t.cfg.Timeout)}
		}
		for _, e := range fetches.Errors() {
			if errors.Is(e.Err, kerr.TopicAuthorizationFailed) {
				return nil, false, checkpointRefusal(t.cfg.CheckpointTopic, e.Err)
			}
			return nil, false, readError(t.cfg.CheckpointTopic, e.Err)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			switch {
			case r.Offset >= end:
				return value, found, nil
			case !r.Attrs.IsControl() && string(r.Key) == key:
				value, found = r.Value, true
			}
		}
	}
}

// checkTopic wants the checkpoint topic to keep the last record of each key, in one
// order.
func (t *Transactional) checkTopic(ctx context.Context) error {
	return checkpointTopic(ctx, kadm.NewClient(t.plain.client.Load().Client), t.cfg.CheckpointTopic)
}

func checkpointTopic(ctx context.Context, admin *kadm.Client, topic string) error {
	refuse := func(format string, args ...any) error {
		return &Error{Blocked, ReasonCheckpointTopic, fmt.Errorf("checkpoint topic %q "+format, append([]any{topic}, args...)...)}
	}
	found, err := admin.ListTopics(ctx, topic)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return checkpointRefusal(topic, err)
	case err != nil:
		return readError(topic, err)
	}
	detail := found[topic]
	switch {
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		return refuse("does not exist; run `cdc-relay setup`, or make it by hand with one partition and cleanup.policy=compact")
	case errors.Is(detail.Err, kerr.TopicAuthorizationFailed):
		return checkpointRefusal(topic, detail.Err)
	case detail.Err != nil:
		return readError(topic, detail.Err)
	case len(detail.Partitions) != 1:
		return refuse("has %d partitions and has to have one; name another in relay.checkpoint_topic and run `cdc-relay setup`, which makes it", len(detail.Partitions))
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return nil // nobody has to let us read settings
	case err != nil:
		return readError(topic, err)
	}
	config, err := configs.On(topic, nil)
	if err != nil || config.Err != nil {
		return nil //nolint:nilerr // nobody has to let us read settings
	}
	for _, c := range config.Configs {
		if policy := c.MaybeValue(); c.Key == "cleanup.policy" && policy != "compact" {
			return refuse("has cleanup.policy=%s, which deletes a position that has not moved for long; set it to compact: kafka-configs.sh --alter --topic %s --add-config cleanup.policy=compact", policy, topic)
		}
	}
	return nil
}

// checkpointRefusal is a right on the checkpoint topic that is missing.
func checkpointRefusal(topic string, err error) *Error {
	return &Error{Blocked, ReasonTopicAuthorizationFailed, advise(fmt.Errorf("checkpoint topic %q: %w", topic, err), "grant the relay's principal READ, WRITE and DESCRIBE on it: "+grantCheckpoints(topic))}
}

// EnsureCheckpointTopic makes the checkpoint topic unless there is one that will do,
// and says whether it did.
func EnsureCheckpointTopic(ctx context.Context, cfg KafkaConfig, topic string, dryRun bool) (missing bool, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return false, err
	}
	client, err := cfg.consumer()
	if err != nil {
		return false, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	known, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return false, readError(topic, err)
	}
	if !errors.Is(known[topic].Err, kerr.UnknownTopicOrPartition) {
		return false, checkpointTopic(ctx, admin, topic)
	}
	if dryRun {
		return true, nil
	}
	settings := map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact"),
		"segment.bytes":  kadm.StringPtr("16777216"), // what a start may have to read through
	}
	if replicated(ctx, admin, cfg.CreateTopics.ReplicationFactor, settings, topic) {
		settings[minInsync] = kadm.StringPtr("2")
	}
	created, err := admin.CreateTopic(ctx, 1, cfg.CreateTopics.ReplicationFactor, settings, topic)
	switch {
	case errors.Is(err, kerr.TopicAlreadyExists):
		return false, checkpointTopic(ctx, admin, topic)
	case err != nil && created.ErrMessage != "":
		err = fmt.Errorf("%w: %s", err, created.ErrMessage)
	}
	if err != nil {
		return true, advise(fmt.Errorf("create topic %q: %w", topic, err), "make it by hand with one partition and cleanup.policy=compact, or grant CREATE on it")
	}
	for range 20 { // the brokers tell each other, and our client remembers for a while
		if err = checkpointTopic(ctx, admin, topic); err == nil || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return true, err
}

const minInsync = "min.insync.replicas"

// replicated says of a topic that is not made yet that it will have three replicas or more,
// and acknowledge what only one of them has. The positions in it must not be lost with one
// broker. Brokers that do not say leave it as their default has it.
func replicated(ctx context.Context, admin *kadm.Client, factor int16, settings map[string]*string, topic string) bool {
	tried, err := admin.ValidateCreateTopics(ctx, 1, factor, settings, topic)
	if err != nil || tried[topic].Err != nil {
		return factor >= 3
	}
	for name, c := range tried[topic].Configs {
		if n, err := strconv.Atoi(c.MaybeValue()); name == minInsync && err == nil && n > 1 {
			return false
		}
	}
	return max(factor, tried[topic].ReplicationFactor) >= 3
}

// Convict finds the records that the brokers refuse, by index, in transactions that
// are aborted. It ends the producer session. The error is that of brokers who would not say.
func (t *Transactional) Convict(ctx context.Context, id string, records []router.Record) (map[int]Failure, error) {
	t.mu.Lock()
	last := t.session
	t.session = nil
	t.mu.Unlock()
	if last != nil {
		if err := last.end(ctx, ErrHalted); err != nil {
			return nil, &Error{Retry, ReasonClosed, err}
		}
	}
	c := &court{t: t, id: id, guilty: make(map[int]Failure)}
	defer c.close()
	if err := c.hear(ctx, records, 0); err != nil {
		return nil, err
	}
	if len(c.guilty) == 0 {
		t.smaller()
	}
	return c.guilty, nil
}

// smaller has less produced at a time. No record is refused alone, so it is the size
// of what they make together.
//
// Once may be chance: somebody raised the limit in between.
func (t *Transactional) smaller() {
	if t.doubts++; t.doubts < 2 {
		return
	}
	batch := t.batch.Load()
	if batch == 0 {
		batch = int64(t.cfg.MaxMessageBytes)
	}
	t.batch.Store(max(1, batch/4))
	t.log.Warn().Int64("bytes", t.batch.Load()).
		Msg("the brokers refuse records together that they take alone; going on in smaller batches. Lower kafka.max_message_bytes to max.message.bytes of the topics")
}

// court tries records.
type court struct {
	t      *Transactional
	id     string
	client *kgo.Client
	guilty map[int]Failure
}

func (c *court) close() {
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

// hear halves what fails until what is left is one record: a record that fails among
// others is not necessarily the one that was refused.
func (c *court) hear(ctx context.Context, records []router.Record, at int) error {
	if len(records) == 0 {
		return nil
	}
	f, err := c.try(ctx, records)
	switch {
	case err != nil:
		return err
	case f == nil:
		return nil
	case len(records) == 1 && f.Class == Rejected:
		c.guilty[at] = *f
		return nil
	case f.Class != Rejected:
		return &Error{f.Class, f.Reason, f.Err}
	}
	half := len(records) / 2
	if half == 0 {
		half = 1
	}
	if err := c.hear(ctx, records[:half], at); err != nil {
		return err
	}
	return c.hear(ctx, records[half:], at+half)
}

// try sends records and takes them back. It returns the failure of one that the
// brokers, or our own limits, refuse.
func (c *court) try(ctx context.Context, records []router.Record) (*Failure, error) {
	if c.client == nil {
		if ctx.Err() != nil { // nobody is shut out for a trial that is over
			return nil, c.t.opening(ctx, c.id, context.Cause(ctx))
		}
		client, err := c.t.connect(c.id)
		if err != nil {
			return nil, &Error{Blocked, ReasonKafkaError, err}
		}
		c.client = client
		if err := c.t.fence(ctx, client); err != nil {
			return nil, c.t.opening(ctx, c.id, err)
		}
	}
	if err := c.client.BeginTransaction(); err != nil {
		return nil, c.t.opening(ctx, c.id, err)
	}
	p, answers := newTransactionBatch(records, nil), newOutcomes()
	answers.produce(ctx, c.t, c.client, p)
	if err := c.client.Flush(ctx); err != nil {
		c.close()
	} else if err := c.client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		c.close() // the next epoch aborts it
	}
	answers.wg.Wait()
	failed := answers.failures()
	defer p.free()
	var found *Failure
	for i := range records {
		err := failed[&(*p.kafka)[i]]
		if err == nil || errors.Is(err, ErrHalted) {
			continue
		}
		if f := c.t.failure(records[i].Topic, err, 0); found == nil || f.Class == Rejected {
			found = &f
		}
	}
	if found == nil && ctx.Err() != nil {
		return nil, c.t.opening(ctx, c.id, context.Cause(ctx))
	}
	return found, nil
}
