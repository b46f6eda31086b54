package kafkainbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

// statements are those about progress, and one about keys.
type statements struct{ load, all, store, begin, move, oldest, hasKey, try, tried string }

func compile(schema string) statements {
	in := cmp.Or(schema, "public")
	table, keys, attempts := pgx.Identifier{in, "inbox_progress"}.Sanitize(), pgx.Identifier{in, "inbox"}.Sanitize(), pgx.Identifier{in, "inbox_attempts"}.Sanitize()
	const one = " WHERE consumer = $1 AND topic = $2 AND partition = $3"
	// Whether the server has the newest work of a queue. One that was set back (a standby that
	// lagged, a restored copy) has not, and has none that was committed after it either. A key that
	// prune may have deleted tells nothing: by the partition's clock it is older than Keep. It is not
	// by the clock of a server that was set back to before the claim, as clocks only go forward.
	has := func(topic, number, key, at, keep string) string {
		return "(EXISTS (SELECT FROM " + keys + " WHERE consumer = $1 AND key = " + key + ") OR EXISTS (SELECT FROM " + table +
			" WHERE consumer = $1 AND topic = " + topic + " AND partition = " + number + " AND " + at + " < least(at, now()) - " + keep + "::interval))"
	}
	// A clock is never ahead of the database's: that of a member which is would have keys deleted.
	return statements{
		load: "SELECT next, least(at, now()), topic_id FROM " + table + one,
		all:  "SELECT topic, partition, next FROM " + table + " WHERE consumer = $1 AND topic = ANY($2)",
		// A member that was frozen, and believes to own the partition still, moves nothing back, and
		// writes nothing to the progress of another topic of this name.
		store: "INSERT INTO " + table + " AS p (consumer, topic, partition, next, at, topic_id)" +
			" SELECT $1, e.topic, e.number, e.next, least(e.at, now()), e.id FROM unnest($2::text[], $3::int[], $4::bigint[], $5::timestamptz[], $11::uuid[]) AS e(topic, number, next, at, id)" +
			" WHERE NOT EXISTS (SELECT FROM unnest($6::text[], $7::int[], $8::text[], $9::timestamptz[]) AS k(topic, number, key, claimed) WHERE NOT " + has("k.topic", "k.number", "k.key", "k.claimed", "$10") + ") ORDER BY 2, 3" +
			" ON CONFLICT (consumer, topic, partition) DO UPDATE SET next = greatest(p.next, excluded.next), at = least(greatest(p.at, excluded.at), now())," +
			" starts = CASE WHEN excluded.next > p.next THEN 0 ELSE p.starts END WHERE p.topic_id = excluded.topic_id OR excluded.topic_id IS NULL",
		// The row gets the topic's id once, and with another id it is left as it is.
		begin: "INSERT INTO " + table + " AS p (consumer, topic, partition, next, at, starts, topic_id) VALUES ($1, $2, $3, $4, least($5::timestamptz, now()), 1, $6::uuid)" +
			" ON CONFLICT (consumer, topic, partition) DO UPDATE SET starts = p.starts + coalesce((p.topic_id = excluded.topic_id)::int, 1), topic_id = coalesce(p.topic_id, excluded.topic_id)" +
			" RETURNING starts, next, topic_id",
		move:   "UPDATE " + table + " SET next = $5, at = greatest(at, $6), starts = 0" + one + " AND next = $4 AND (topic_id = $7::uuid OR $7::uuid IS NULL)",
		oldest: "SELECT min(least(at, now())) FROM " + table + " WHERE consumer = $1",
		hasKey: "SELECT " + has("$2", "$3", "$4", "$5::timestamptz", "$6"),
		try: "INSERT INTO " + attempts + " AS a (consumer, topic, partition, record, n) VALUES ($1, $2, $3, $4, 1)" +
			" ON CONFLICT (consumer, topic, partition, record) DO UPDATE SET n = least(a.n, $5) + 1 RETURNING n",
		tried: "DELETE FROM " + attempts + one + " AND record = $4",
	}
}

// load reads the progress of a partition; next is -1 where there is none.
func (c *Consumer) load(ctx context.Context, topic string, number int32) (progress, error) {
	ctx, cancel := context.WithTimeout(ctx, commitLimit) // it waits for no row, but for a table that is altered, or for a dead network
	defer cancel()
	since := progress{next: -1, epoch: -1}
	err := c.cfg.DB.QueryRow(ctx, c.sql.load, c.cfg.Consumer, topic, number).Scan(&since.next, &since.at, &since.id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return since, progressError("read", err)
	}
	return since, nil
}

func progressError(action string, err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "42P01":
			return fmt.Errorf("%s progress: %w; `cdc-relay sql --inbox` prints the tables", action, err)
		case "42703":
			return fmt.Errorf("%s progress: %w; run again what `cdc-relay sql --inbox` prints, which adds the column", action, err)
		case "42501":
			return fmt.Errorf("%s progress: %w; `cdc-relay sql --inbox --role ROLE` prints the grants", action, err)
		}
	}
	return fmt.Errorf("%s progress: %w", action, err)
}

// errSetBack is for a database that lacks what this consumer committed to it: a standby took over
// that had not got it, or a copy was restored. What was handled since has to be handled again.
var errSetBack = errors.New("the database lacks what was committed to it; beginning again where it is")

// adjust has partitions begin where the database says, unless the group is behind that. A group
// that is ahead has lost effects: the database was set back. One without an offset was away for
// longer than the brokers keep it. Where a database that was set back knows nothing of a partition
// any more, it begins where this consumer began with it.
func (c *Consumer) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for failures := 1; ; failures++ {
		err := c.adjustNow(ctx, offsets)
		if err == nil {
			c.leftOut(offsets)
		}
		if err == nil || ctx.Err() != nil {
			return offsets, err
		}
		c.trouble(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(c.cfg.Retry.delay(failures, c.share())):
		}
	}
}

func (c *Consumer) adjustNow(ctx context.Context, offsets map[string]map[int32]kgo.Offset) error {
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	var topic string
	var number int32
	var next int64
	rows, _ := c.cfg.DB.Query(ctx, c.sql.all, c.cfg.Consumer, slices.Collect(maps.Keys(offsets))) // its error is that of the rows
	known := map[place]bool{}
	_, err := pgx.ForEachRow(rows, []any{&topic, &number, &next}, func() error {
		known[place{topic, number}] = true
		c.expect(place{topic, number}, next) // whatever the group has: all before it is handled
		begin, assigned := offsets[topic][number]
		at := begin.EpochOffset().Offset
		if !assigned || at == next || at >= 0 && at <= next && !c.cfg.Offsets {
			return nil // as it is: with the epoch of its leader, by which a log that was cut is found
		}
		if at > next && !c.cfg.Offsets {
			c.cfg.Logger.Warn("the group's offset is ahead of the database, which may have been set back: handling the records between; to leave them out, set next in inbox_progress too",
				"topic", topic, "partition", number, "group_offset", at, "next", next)
		}
		offsets[topic][number] = kgo.NewOffset().At(next)
		if p := c.partition(topic, number); p != nil && at < next {
			p.isBehind()
		}
		return nil
	})
	if err != nil {
		return progressError("read", err)
	}
	for topic, numbers := range offsets {
		for number := range numbers {
			at := place{topic, number}
			if known[at] {
				continue
			}
			if begin, lost := c.lostBeginning(at); lost {
				c.cfg.Logger.Warn("the database knows nothing of the partition any more: handling its records again", "topic", topic, "partition", number)
				numbers[number] = begin
			}
			c.expect(at, numbers[number].EpochOffset().Offset)
		}
	}
	return nil
}

// expect tells a partition the offset before which nothing is left to be read; a negative one is none.
func (c *Consumer) expect(at place, next int64) {
	if p := c.partition(at.topic, at.number); p != nil {
		p.expect(next)
	}
}

// lostBeginning is where to begin with a partition that a database which was set back does not
// know, and whether this consumer has seen one go back. A partition whose beginning is not known
// begins with its oldest record: what was handled has its key.
func (c *Consumer) lostBeginning(at place) (kgo.Offset, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first, is := c.beginnings[at]; is {
		return kgo.NewOffset().At(first), c.wentBack
	}
	return kgo.NewOffset().AtStart(), c.wentBack
}

// flush writes how far the partitions are: to the database, then to Kafka. So a committed offset
// is never ahead of the progress, and both are never ahead of the effects.
func (c *Consumer) flush(ctx context.Context, partitions []*partition) error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	if c.isSetBack() {
		return nil // what is reached here is not there
	}
	var news []report
	for _, p := range partitions {
		if now, moved, is := p.reached(); is {
			news = append(news, report{p, now, moved, p.newest()})
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
	switch {
	case errors.Is(err, errSetBack):
		c.setBack()
		return nil
	case err != nil:
		c.trouble(ctx, err)
	}
	if !committed {
		return err
	}
	for _, t := range news {
		t.p.noteStored(t.now)
	}
	return nil
}

// report is what a flush writes of a partition.
type report struct {
	p     *partition
	now   progress
	moved bool // next was reached since the assignment

	newest []claimed // keys that were claimed last, one of each queue
}

func (c *Consumer) store(ctx context.Context, news []report) error {
	if c.cfg.Offsets {
		return nil // each round wrote it
	}
	slices.SortFunc(news, func(a, b report) int {
		return cmp.Or(strings.Compare(a.p.topic, b.p.topic), cmp.Compare(a.p.number, b.p.number))
	})
	n := len(news)
	topics, numbers, nexts, times, ids := make([]string, n), make([]int32, n), make([]int64, n), make([]time.Time, n), make([]pgtype.UUID, n)
	of, parts, keys, claims := []string{}, []int32{}, []string{}, []time.Time{} // of the newest keys
	for i, t := range news {
		topics[i], numbers[i], nexts[i], times[i], ids[i] = t.p.topic, t.p.number, t.now.next, t.now.at, t.now.id
		for _, key := range t.newest {
			of, parts, keys, claims = append(of, t.p.topic), append(parts, t.p.number), append(keys, key.text), append(claims, key.at)
		}
	}
	tag, err := c.cfg.DB.Exec(ctx, c.sql.store, c.cfg.Consumer, topics, numbers, nexts, times, of, parts, keys, claims, c.cfg.Keep, ids)
	if err != nil {
		return progressError("write", err)
	}
	if tag.RowsAffected() == 0 {
		return errSetBack
	}
	return nil
}

// commit commits offsets, and reports whether the brokers took them. A group that is rebalancing
// does not, which is harmless: the next member begins earlier, and drops what was handled.
func (c *Consumer) commit(ctx context.Context, news []report) (bool, error) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, t := range news {
		if !t.moved {
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
// that gets no records would have all keys kept for ever. It also reports those that are not read
// to their ends, and get nothing.
func (c *Consumer) lookAtEnds(ctx context.Context) {
	c.reportUnplaced(ctx, time.Now())
	var idle, unread []*partition
	for _, p := range c.owned() {
		if p.isIdle() {
			idle = append(idle, p)
			if p.isUnread() {
				unread = append(unread, p)
			}
		}
	}
	c.offsets(ctx, -2, unread, func(p *partition, start int64) { p.startsAt(start) })
	at := time.Now() // before the brokers look
	c.offsets(ctx, -1, idle, func(p *partition, end int64) {
		p.drained(end, at)
		c.reportStanding(ctx, p, end, at)
	})
}

// offsets asks for the ends (-1) or the beginnings (-2) of partitions. Without an answer the clock
// stays, which keeps keys longer.
func (c *Consumer) offsets(ctx context.Context, which int64, partitions []*partition, use func(p *partition, offset int64)) {
	if len(partitions) == 0 {
		return
	}
	of := map[string][]kmsg.ListOffsetsRequestTopicPartition{}
	for _, p := range partitions {
		one := kmsg.NewListOffsetsRequestTopicPartition()
		one.Partition, one.Timestamp = p.number, which
		of[p.topic] = append(of[p.topic], one)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID, request.IsolationLevel = -1, 1 // read committed
	for topic, asked := range of {
		one := kmsg.NewListOffsetsRequestTopic()
		one.Topic, one.Partitions = topic, asked
		request.Topics = append(request.Topics, one)
	}
	within, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	answer := func(topic string, number int32, offset int64, err error) {
		p := c.partition(topic, number)
		switch {
		case p == nil:
		case err != nil:
			c.trouble(ctx, fmt.Errorf("topic %s, partition %d: look at its offsets: %w", topic, number, err))
		default:
			use(p, offset)
		}
	}
	for _, shard := range c.client.RequestSharded(within, request) {
		if response, ok := shard.Resp.(*kmsg.ListOffsetsResponse); ok && shard.Err == nil {
			for _, topic := range response.Topics {
				for _, p := range topic.Partitions {
					answer(topic.Topic, p.Partition, p.Offset, kerr.ErrorForCode(p.ErrorCode))
				}
			}
		} else if asked, ok := shard.Req.(*kmsg.ListOffsetsRequest); ok {
			for _, topic := range asked.Topics {
				for _, p := range topic.Partitions {
					answer(topic.Topic, p.Partition, -1, shard.Err)
				}
			}
		}
	}
}

// prune deletes keys that no record can need any more: by the slowest clock of all partitions that
// the consumer has ever read, less Keep. One member at a time does it, with a pause of four times
// what a piece took.
func (c *Consumer) prune(ctx context.Context) {
	if c.cfg.Offsets {
		return
	}
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
