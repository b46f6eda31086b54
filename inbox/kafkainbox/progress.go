package kafkainbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

// statements are those about progress.
type statements struct{ load, store, oldest string }

func compile(schema string) statements {
	table := pgx.Identifier{cmp.Or(schema, "public"), "inbox_progress"}.Sanitize()
	return statements{
		load: "SELECT next, at FROM " + table + " WHERE consumer = $1 AND topic = $2 AND partition = $3",
		// A member that was frozen, and believes to own the partition still, moves nothing back.
		store: "INSERT INTO " + table + " AS p (consumer, topic, partition, next, at)" +
			" SELECT $1, e.topic, e.number, e.next, e.at FROM unnest($2::text[], $3::int[], $4::bigint[], $5::timestamptz[]) AS e(topic, number, next, at) ORDER BY 2, 3" +
			" ON CONFLICT (consumer, topic, partition) DO UPDATE SET next = greatest(p.next, excluded.next), at = greatest(p.at, excluded.at)",
		oldest: "SELECT min(at) FROM " + table + " WHERE consumer = $1",
	}
}

// load reads the progress of a partition; next is -1 where there is none.
func (c *Consumer) load(ctx context.Context, topic string, number int32) (progress, error) {
	since := progress{next: -1, epoch: -1}
	err := c.cfg.DB.QueryRow(ctx, c.sql.load, c.cfg.Consumer, topic, number).Scan(&since.next, &since.at)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return since, progressError("read", err)
	}
	return since, nil
}

func progressError(action string, err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "42P01", "42703":
			return fmt.Errorf("%s progress: %w; `cdc-relay sql --inbox` prints the tables", action, err)
		case "42501":
			return fmt.Errorf("%s progress: %w; `cdc-relay sql --inbox --role ROLE` prints the grants", action, err)
		}
	}
	return fmt.Errorf("%s progress: %w", action, err)
}

// flush writes how far the partitions are: to the database, then to Kafka. So a committed offset
// is never ahead of the progress, and both are never ahead of the effects.
func (c *Consumer) flush(ctx context.Context, partitions []*partition) error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	var news []told
	for _, p := range partitions {
		if now, here, is := p.reached(); is {
			news = append(news, told{p, now, here})
		}
	}
	if len(news) == 0 {
		return nil
	}
	err := c.store(ctx, news)
	committed := false
	if err == nil {
		committed, err = c.commit(ctx, news)
	}
	if err != nil {
		c.trouble(ctx, err)
	}
	if !committed {
		return err
	}
	for _, t := range news {
		t.p.tell(t.now)
	}
	return nil
}

type told struct {
	p    *partition
	now  progress
	here bool // next was reached since the assignment
}

func (c *Consumer) store(ctx context.Context, news []told) error {
	slices.SortFunc(news, func(a, b told) int {
		return cmp.Or(strings.Compare(a.p.topic, b.p.topic), cmp.Compare(a.p.number, b.p.number))
	})
	n := len(news)
	topics, numbers, nexts, times := make([]string, n), make([]int32, n), make([]int64, n), make([]time.Time, n)
	for i, t := range news {
		topics[i], numbers[i], nexts[i], times[i] = t.p.topic, t.p.number, t.now.next, t.now.at
	}
	if _, err := c.cfg.DB.Exec(ctx, c.sql.store, c.cfg.Consumer, topics, numbers, nexts, times); err != nil {
		return progressError("write", err)
	}
	return nil
}

// commit commits offsets, and reports whether the brokers took them. A group that is rebalancing
// does not, which is harmless: the next member begins earlier, and drops what was handled.
func (c *Consumer) commit(ctx context.Context, news []told) (bool, error) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, t := range news {
		if !t.here {
			continue // only the clock moved
		}
		if offsets[t.p.topic] == nil {
			offsets[t.p.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[t.p.topic][t.p.number] = kgo.EpochOffset{Epoch: t.now.epoch, Offset: t.now.next}
	}
	var failed error
	c.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if response == nil {
			return
		}
		for _, topic := range response.Topics {
			for _, p := range topic.Partitions {
				failed = cmp.Or(failed, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	for _, harmless := range []error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch} {
		if errors.Is(failed, harmless) {
			return false, nil
		}
	}
	if failed != nil {
		return false, fmt.Errorf("commit offsets: %w", failed)
	}
	return true, nil
}

// lookAtEnds moves the clocks of partitions that are read to their ends. Without it one partition
// that gets no records would have all keys kept for ever.
func (c *Consumer) lookAtEnds(ctx context.Context) {
	idle := map[string][]*partition{}
	for _, p := range c.owned() {
		if p.waits() {
			idle[p.topic] = append(idle[p.topic], p)
		}
	}
	if len(idle) == 0 {
		return
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.IsolationLevel = -1, 1 // read committed
	for topic, partitions := range idle {
		asked := kmsg.NewListOffsetsRequestTopic()
		asked.Topic = topic
		for _, p := range partitions {
			one := kmsg.NewListOffsetsRequestTopicPartition()
			one.Partition, one.Timestamp = p.number, -1
			asked.Partitions = append(asked.Partitions, one)
		}
		request.Topics = append(request.Topics, asked)
	}
	at := time.Now() // before the brokers look
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	for _, shard := range c.client.RequestSharded(ctx, request) {
		response, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if shard.Err != nil || !ok {
			continue // no answer: the clock stays, which keeps keys longer
		}
		for _, topic := range response.Topics {
			for _, end := range topic.Partitions {
				if p := c.partition(topic.Topic, end.Partition); p != nil && end.ErrorCode == 0 {
					p.drained(end.Offset, at)
				}
			}
		}
	}
}

// prune deletes keys that no record can need any more: by the slowest clock of all partitions that
// the consumer has ever read, less Keep. One member at a time does it, with a pause of four times
// what a piece took.
func (c *Consumer) prune(ctx context.Context) {
	for {
		began := time.Now()
		n, err := c.prunePiece(ctx)
		if err != nil {
			c.trouble(ctx, err)
			return
		}
		if n < prunePiece {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(4 * time.Since(began)):
		}
	}
}

func (c *Consumer) prunePiece(ctx context.Context) (n int, err error) {
	err = pgx.BeginFunc(ctx, c.cfg.DB, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock(hashtextextended('cdc-relay inbox ' || $1::text, 0))", c.cfg.Consumer).Scan(&mine); err != nil || !mine {
			return err
		}
		var oldest *time.Time
		if err := tx.QueryRow(ctx, c.sql.oldest, c.cfg.Consumer).Scan(&oldest); err != nil || oldest == nil {
			return err
		}
		n, err = c.box.Prune(ctx, pgxinbox.Tx(tx), oldest.Add(-c.cfg.Keep), prunePiece)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("prune keys: %w", err)
	}
	return n, nil
}
