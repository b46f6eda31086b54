package kafkainbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The client (franz-go 1.22.3) retries by itself after most errors of a partition: ListOffsets each second,
// and Fetch again and again. It reports an error that is not retriable at each try, and a retriable one
// never. Three things end the reading of a partition:
//   - An error of a partition in OffsetFetch. The client reports it once and leaves the partition out until
//     the member is assigned it anew. A cooperative rebalance does not do that, and SetOffsets ignores such
//     a partition. So the consumer asks for the offset until it comes, and then starts a new client.
//   - A batch that exceeds MaxDecompressBatchBytes. The client reports it once; Run returns the error.
//   - UNKNOWN_TOPIC_ID of Fetch: errGone.
//
// The ends of the partitions show what the client does not report: see lookAtEnds.

// errLeftOut is for a partition whose committed offset could not be fetched at first, and can be now.
var errLeftOut = errors.New("the committed offset of a partition could not be fetched, and can be now; beginning again")

// stillAfter is how long a partition may stand still before the consumer reports it. It is longer than the
// time between two looks.
const stillAfter = 15 * time.Second

// leftOut asks anew for the offsets of the partitions that the client got none for. They are those
// assigned ones that were never among the offsets: each OffsetFetch asks for all that have none.
func (c *Consumer) leftOut(offsets map[string]map[int32]kgo.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, p := range c.partitions {
		if _, is := offsets[at.topic][at.number]; p.placed(is) {
			c.running.Go(p.askAgain)
		}
	}
}

// placed takes whether the partition is among offsets, and reports whether it is left out, once.
func (p *partition) placed(is bool) (left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left = !is && p.source.still.offset == unplaced
	switch {
	case is:
		p.source.still.offset = placed
	case left:
		p.source.still.offset = asked
	}
	return left
}

// Where the offset of a partition is to come from.
const (
	unplaced = iota // the client asks for it
	asked           // askAgain does
	placed          // it is known
)

func (p *partition) askAgain() {
	for failures := 1; ; failures++ {
		err := p.c.askOffset(p.ctx, p.topic, p.number)
		if p.ctx.Err() != nil {
			return
		}
		if err == nil {
			p.c.cfg.Logger.Info("the committed offset of a partition can be fetched again; beginning anew", "topic", p.topic, "partition", p.number)
			p.c.endSession(errLeftOut)
			return
		}
		p.c.trouble(p.ctx, fmt.Errorf("topic %s, partition %d: it is not read, because its committed offset could not be fetched: %w", p.topic, p.number, err))
		if !p.pause(p.c.cfg.Retry.delay(failures, p.c.share())) {
			return
		}
	}
}

// askOffset returns why the committed offset of a partition cannot be fetched. That there is none is no error.
func (c *Consumer) askOffset(ctx context.Context, topic string, number int32) error {
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group, request.RequireStable = c.cfg.Group, true
	one := kmsg.NewOffsetFetchRequestTopic()
	one.Topic, one.Partitions = topic, []int32{number}
	request.Topics = append(request.Topics, one)
	response, err := request.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return err
	}
	for _, group := range response.Groups {
		if err := kerr.ErrorForCode(group.ErrorCode); err != nil {
			return err
		}
	}
	for _, topic := range response.Topics { // the client fills them in from the groups
		for _, p := range topic.Partitions {
			if p.Partition == number {
				return kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return errors.New("the answer lacks it")
}

// reportUnplaced reports partitions whose offset the client still asks for, as it does without end
// while a Kafka transaction may commit another one.
func (c *Consumer) reportUnplaced(ctx context.Context, now time.Time) {
	for _, p := range c.owned() {
		if waits := p.isUnplaced(now); waits > stillAfter {
			c.trouble(ctx, fmt.Errorf("topic %s, partition %d: it is not read, because its committed offset has not been known for %s; an open Kafka transaction that commits offsets of the group has this effect", p.topic, p.number, waits.Round(time.Second)))
		}
	}
}

func (p *partition) isUnplaced(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.source.still.offset != unplaced {
		return 0
	}
	return now.Sub(p.source.still.assigned)
}

// still is what is known of a partition that may stand still.
type still struct {
	assigned time.Time
	offset   int // where it is to come from

	start  int64 // of the log, where no offset to read on from is known; else -1
	unread int64 // offset of the next record
	since  time.Time
	times  int // it was reported
	again  int // looks until it is reported again
}

// stands takes the end of the log, and returns since when the partition has records before it and gets
// none, if that is to be reported: less and less often, because compaction may have removed the records.
func (p *partition) stands(end int64, now time.Time) (next int64, since time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.source.still
	if next = p.source.unread; next < 0 {
		next = s.start
	}
	if !p.tracker.idle() || next < 0 || next >= end || next != s.unread {
		s.unread, s.since, s.times, s.again = next, now, 0, 0
		return next, 0
	}
	if since = now.Sub(s.since); since < stillAfter {
		return next, 0
	}
	if s.again > 0 {
		s.again--
		return next, 0
	}
	s.again = 1<<s.times - 1
	s.times = min(s.times+1, 6)
	return next, since
}

func (p *partition) isUnread() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.source.unread < 0
}

func (p *partition) startsAt(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source.still.start = offset
}

// reportStanding reports a partition that stands still before the end of its log.
func (c *Consumer) reportStanding(ctx context.Context, p *partition, end int64, now time.Time) {
	if next, since := p.stands(end, now); since > 0 {
		c.trouble(ctx, fmt.Errorf("topic %s, partition %d: the brokers have sent nothing for %s, though it ends at offset %d and is read up to %d; this is right only if compaction removed everything in between", p.topic, p.number, since.Round(time.Second), end, next))
	}
}
