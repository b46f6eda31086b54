package kafkainbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
)

const (
	pollRecords = 10_000
	flushEvery  = time.Second
	lookEvery   = 10 * time.Second // at the ends of idle partitions
	pruneEvery  = time.Minute
	prunePiece  = 5000

	// roundLimit is what a round in hand has at most when its partition goes: half of the client's
	// rebalance timeout of 60 s. cancelGrace is what it has to notice that its context has ended.
	roundLimit  = 30 * time.Second
	cancelGrace = 5 * time.Second

	commitLimit = 10 * time.Second

	maxLetter = 64 << 20 // below what the client writes to a broker at once

	// leaveLimit is what the client has to leave the group. It waits for the end of a rebalance, and
	// so for the session of a member that was killed; then the group finds out by itself.
	leaveLimit = 5 * time.Second
)

// Consumer is a member of a consumer group.
type Consumer struct {
	cfg         Config
	box         *inbox.Inbox
	sql         statements
	options     []kgo.Opt
	connections chan struct{} // a transaction has one
	suspect     chan struct{} // see suspect.go
	client      *kgo.Client   // since Run
	roundLimit  time.Duration // of that client

	running sync.WaitGroup // partitions' goroutines

	flushing sync.Mutex // held while progress and offsets are written, so that none is written after its partition went

	mu         sync.Mutex // guards the following
	partitions map[place]*partition
	troubled   time.Time // when the last trouble was logged
	endTaking  func()    // ends the session
	why        error     // the session ends by itself
	wentBack   bool      // a session ended because the database was set back

	beginnings map[place]int64 // offsets of partitions that this consumer made the first row for
}

type place struct {
	topic  string
	number int32
}

// New makes a Consumer. It asks no server.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("make consumer: %w", err)
	}
	cfg = cfg.withDefaults()
	box, err := inbox.New(inbox.Config{Consumer: cfg.Consumer, Schema: cfg.Schema, Hints: cfg.Hints})
	if err != nil {
		return nil, fmt.Errorf("make consumer: %w", err)
	}
	c := &Consumer{cfg: cfg, box: box, sql: compile(cfg.Schema), connections: make(chan struct{}, cfg.Connections), suspect: make(chan struct{}, 1), partitions: make(map[place]*partition), beginnings: make(map[place]int64)}
	c.options = slices.Concat([]kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ConsumerGroup(cfg.Group),
		kgo.ConsumeTopics(cfg.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // a group that is new begins with the oldest record
		kgo.ProducerBatchMaxBytes(maxLetter),              // a record that the brokers took is not refused here as a dead letter
	}, cfg.Kafka, []kgo.Opt{
		// These keep the promises above, so they come last.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
		kgo.AdjustFetchOffsetsFn(c.adjust),
		kgo.BlockRebalanceOnPoll(),
		kgo.KeepControlRecords(), // else the end of a topic of transactions is never reached
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.OnPartitionsAssigned(c.assigned),
		kgo.OnPartitionsRevoked(c.revoked),
		kgo.OnPartitionsLost(c.lost),
	})
	if err := kgo.ValidateOpts(c.options...); err != nil {
		return nil, fmt.Errorf("make consumer: %w", err)
	}
	return c, nil
}

// Run consumes until ctx ends. Then it finishes the rounds in hand, commits their offsets and
// leaves the group. It waits for servers that do not answer. It returns an error where the database
// refuses (a missing table, rights, a password), or where the offsets could not be committed at the
// end; what was handled then comes again, and is dropped. Run is called once.
//
// Where the database turns out to lack what was committed to it, because a standby took over that
// had not got it, or a copy was restored, Run goes back in the topics to where the database is.
// Where a topic is another one than before, or has lost records that were not read, Run returns a
// TopicError or a LostError; where a statement of the handler ended the transaction, a TransactionError.
func (c *Consumer) Run(ctx context.Context) error {
	if has, needs := c.cfg.DB.Config().MaxConns, c.cfg.Connections; int(has) < needs {
		c.cfg.Logger.Warn("the pool is too small: rounds wait for each other's connections", "connections", has, "needed", needs+2)
	}
	if err := c.awaitTables(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	return c.sessions(ctx, c.session)
}

// sessions has one session after another, until one ends for good. Where they end soon they begin
// at ever longer intervals: each is a rebalance for the whole group.
func (c *Consumer) sessions(ctx context.Context, session func(context.Context) error) error {
	for failures := 1; ; failures++ {
		began := time.Now()
		err := session(ctx)
		if !errors.Is(err, errSetBack) && !errors.Is(err, errGone) && !errors.Is(err, errPassed) && !errors.Is(err, errLeftOut) {
			return err
		}
		if time.Since(began) > c.cfg.Retry.Max {
			failures = 1
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.cfg.Retry.delay(failures, c.share())):
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the next start begins where the database is
		}
	}
}

// session consumes until ctx ends, or until it meets something that takes a new client or a person.
func (c *Consumer) session(ctx context.Context) error {
	taking, endTaking := context.WithCancel(ctx)
	defer endTaking()
	c.mu.Lock()
	c.endTaking, c.why = endTaking, nil
	clear(c.partitions)
	c.mu.Unlock()
	connected, release := context.WithCancel(context.Background())
	defer release()
	client, err := kgo.NewClient(append(c.hooked(), kgo.WithContext(connected))...)
	if err != nil {
		return fmt.Errorf("start consumer: %w", err)
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var beside sync.WaitGroup
	beside.Go(func() { c.warnOfRetention(working) })
	beside.Go(func() { c.every(working, flushEvery, func() { _ = c.flush(working, c.owned()) }) })
	beside.Go(func() { c.every(working, lookEvery, func() { c.lookAtEnds(working) }) })
	beside.Go(func() {
		c.prune(working) // a consumer that is often started again would not come to it
		c.every(working, pruneEvery, func() { c.prune(working) })
	})
	for taking.Err() == nil {
		c.take(client.PollRecords(taking, pollRecords))
		client.AllowRebalance()
	}
	owned := c.owned()
	c.end(owned, c.roundLimit)
	cancel()
	beside.Wait()
	err = c.flush(context.WithoutCancel(ctx), owned)
	leaving := time.AfterFunc(leaveLimit, release)
	client.CloseAllowingRebalance()
	leaving.Stop()
	c.running.Wait()
	switch why := c.ending(); {
	case why != nil:
		return why
	case err != nil:
		return fmt.Errorf("stop consumer: %w", err)
	}
	return nil
}

// setBack ends the session. The next one begins where the database is; until then nothing that
// this one reached is written anywhere.
func (c *Consumer) setBack() {
	if c.endSession(errSetBack) {
		c.trouble(context.Background(), errSetBack)
	}
}

// endSession ends the session, and reports whether that is news. That the database was set back
// comes before other reasons: the next session meets them again.
func (c *Consumer) endSession(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	back := errors.Is(why, errSetBack)
	if c.why != nil && (!back || errors.Is(c.why, errSetBack)) {
		return false
	}
	c.why, c.wentBack = why, c.wentBack || back
	c.endTaking()
	return true
}

// began remembers the offset at which the first row of a partition was made.
func (c *Consumer) began(at place, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, is := c.beginnings[at]; !is {
		c.beginnings[at] = next
	}
}

func (c *Consumer) ending() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

func (c *Consumer) isSetBack() bool { return errors.Is(c.ending(), errSetBack) }

// awaitTables waits for the database, and returns an error where it refuses for good.
func (c *Consumer) awaitTables(ctx context.Context) error {
	for failures := 1; ; failures++ {
		_, err := c.load(ctx, c.cfg.Topics[0], 0)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ended before it began: nothing was to be done
		}
		var server *pgconn.PgError
		if errors.As(err, &server) && !transient(err) {
			return fmt.Errorf("start consumer: %w", err)
		}
		c.trouble(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(c.cfg.Retry.delay(failures, c.share())):
		}
	}
}

// hooked are the options with a way to the client for the goroutines of partitions, which begin
// before kgo.NewClient returns.
func (c *Consumer) hooked() []kgo.Opt {
	return append(slices.Clone(c.options), kgo.WithHooks(started{c}))
}

type started struct{ c *Consumer }

func (s started) OnNewClient(client *kgo.Client) {
	s.c.client, s.c.roundLimit = client, roundLimit
	if timeout, is := client.OptValue(kgo.RebalanceTimeout).(time.Duration); is {
		s.c.roundLimit = min(roundLimit, timeout/2)
	}
}

func (c *Consumer) every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}

// take hands records to their partitions. It never waits.
func (c *Consumer) take(fetches kgo.Fetches) {
	full := map[string][]int32{}
	fetches.EachTopic(func(topic kgo.FetchTopic) {
		for _, f := range topic.Partitions {
			if f.Err != nil && !errors.Is(f.Err, context.Canceled) && !errors.Is(f.Err, kgo.ErrClientClosed) {
				c.trouble(context.Background(), fetchError(topic.Topic, f.Partition, f.Err))
			}
			if errors.Is(f.Err, kerr.UnknownTopicID) {
				c.endSession(errGone)
			}
			var large *kgo.ErrDecompressTooLarge
			if errors.As(f.Err, &large) { // the client does not read on
				c.endSession(fmt.Errorf("topic %s, partition %d: %w; set kgo.MaxDecompressBatchBytes in Config.Kafka", topic.Topic, f.Partition, f.Err))
			}
			p := c.partition(topic.Topic, f.Partition)
			if p != nil && len(f.Records) > 0 && p.add(topic.TopicID, &f) {
				full[topic.Topic] = append(full[topic.Topic], f.Partition)
			}
		}
	})
	if len(full) == 0 {
		return
	}
	c.client.PauseFetchPartitions(full)
	for topic, numbers := range full {
		for _, number := range numbers {
			if p := c.partition(topic, number); p != nil {
				p.pausedLate()
			}
		}
	}
}

// fetchError names what an error of the client is about: a partition, a topic, or the group.
func fetchError(topic string, number int32, err error) error {
	switch {
	case topic == "":
		return fmt.Errorf("consume: %w", err)
	case number < 0:
		return fmt.Errorf("fetch topic %s: %w", topic, err)
	}
	return fmt.Errorf("fetch topic %s, partition %d: %w", topic, number, err)
}

func (c *Consumer) partition(topic string, number int32) *partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partitions[place{topic, number}]
}

func (c *Consumer) owned() []*partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.partitions))
}

// forget removes partitions that are in the lists, and returns them.
func (c *Consumer) forget(lists map[string][]int32) []*partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gone []*partition
	for topic, numbers := range lists {
		for _, number := range numbers {
			if p := c.partitions[place{topic, number}]; p != nil {
				gone = append(gone, p)
				delete(c.partitions, place{topic, number})
			}
		}
	}
	return gone
}

func (c *Consumer) assigned(_ context.Context, _ *kgo.Client, lists map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, numbers := range lists {
		for _, number := range numbers {
			p := newPartition(c, topic, number)
			c.partitions[place{topic, number}] = p
			c.running.Go(p.run)
		}
	}
}

// revoked is called before other members get the partitions.
func (c *Consumer) revoked(ctx context.Context, client *kgo.Client, lists map[string][]int32) {
	gone := c.forget(lists)
	c.end(gone, c.roundLimit)
	_ = c.flush(ctx, gone) // it was reported; what is not committed comes again, and is dropped
	client.ResumeFetchPartitions(lists)
}

// lost is called when other members may have the partitions.
func (c *Consumer) lost(_ context.Context, client *kgo.Client, lists map[string][]int32) {
	gone := c.forget(lists)
	for _, p := range gone {
		p.stop()
		p.cancel(errors.New("the partition is lost to another member"))
	}
	c.end(gone, cancelGrace)
	client.ResumeFetchPartitions(lists)
}

// end stops partitions and waits for their rounds in hand.
func (c *Consumer) end(partitions []*partition, limit time.Duration) {
	for _, p := range partitions {
		p.stop()
	}
	deadline := time.Now().Add(limit)
	for _, p := range partitions {
		if !p.await(time.Until(deadline)) {
			c.trouble(context.Background(), fmt.Errorf("topic %s, partition %d: %w", p.topic, p.number, errStillHandling))
		}
	}
}

func (c *Consumer) share() float64 { return 0.1 + 0.9*rand.Float64() }

func (c *Consumer) rounded(r Round) {
	if c.cfg.Events.Round != nil {
		c.cfg.Events.Round(r)
	}
}

func (c *Consumer) failed(e *RecordError) {
	c.cfg.Logger.Warn("record failed, trying again", "topic", e.Topic, "partition", e.Partition, "offset", e.Offset, "attempt", e.Attempts, "cause", describe(e.Err))
	if c.cfg.Events.Failed != nil {
		c.cfg.Events.Failed(e)
	}
}

func (c *Consumer) blocked(e *RecordError, first bool) {
	if !first {
		c.failed(e)
		return
	}
	c.cfg.Logger.Error("partition waits at a record that fails; cure the cause, or set DeadLetterTopic", "topic", e.Topic, "partition", e.Partition, "offset", e.Offset, "attempt", e.Attempts, "cause", describe(e.Err))
	if c.cfg.Events.Blocked != nil {
		c.cfg.Events.Blocked(e)
	}
}

func (c *Consumer) unblocked(p *partition) {
	c.cfg.Logger.Info("partition does not wait any more", "topic", p.topic, "partition", p.number)
	if c.cfg.Events.Unblocked != nil {
		c.cfg.Events.Unblocked(p.topic, p.number)
	}
}

func (c *Consumer) deadLettered(e *RecordError) {
	c.cfg.Logger.Error("record became a dead letter", "topic", e.Topic, "partition", e.Partition, "offset", e.Offset, "attempt", e.Attempts, "cause", describe(e.Err), "dead_letter_topic", c.cfg.DeadLetterTopic)
	if c.cfg.Events.DeadLetter != nil {
		c.cfg.Events.DeadLetter(e)
	}
}

const troubleEvery = 10 * time.Second // in the log

// trouble reports what is tried again, unless it comes of ctx ending.
func (c *Consumer) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	err = pooled(err)
	if c.cfg.Events.Trouble != nil {
		c.cfg.Events.Trouble(err)
	}
	c.mu.Lock()
	silent := time.Since(c.troubled) < troubleEvery
	if !silent {
		c.troubled = time.Now()
	}
	c.mu.Unlock()
	if !silent {
		c.cfg.Logger.Warn("trying again", "cause", err.Error())
	}
}
