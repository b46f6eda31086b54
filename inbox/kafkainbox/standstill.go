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

// The client (franz-go 1.22.3) goes on by itself after most errors of a partition: of ListOffsets it
// asks again each second, and of Fetch again and again. It tells those that are not retriable each
// time, and the others not at all. Three things end the reading of a partition:
//   - An error of a partition in OffsetFetch. It is told once, and the partition is left out until the
//     member gets it anew, which a cooperative rebalance does not bring about; SetOffsets does not
//     take what is left out. So the offset is asked for here until it comes, and a new client begins.
//   - A batch that exceeds MaxDecompressBatchBytes. It is told once; Run returns the error.
//   - UNKNOWN_TOPIC_ID of Fetch: errGone.
//
// What it does not tell is seen from the ends of the partitions: see lookAtEnds.

// errLeftOut is for a partition whose offset the group did not tell at first, and tells now.
var errLeftOut = errors.New("the group did not tell the offset of a partition, and does now; beginning again")

// stillAfter is how long a partition may stand still before that is told. It is more than a look.
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
			p.c.cfg.Logger.Info("the group tells the offset of a partition again; beginning anew", "topic", p.topic, "partition", p.number)
			p.c.endSession(errLeftOut)
			return
		}
		p.c.trouble(p.ctx, fmt.Errorf("topic %s, partition %d: it is not read, as the group does not tell its offset: %w", p.topic, p.number, err))
		if !p.pause(p.c.cfg.Retry.delay(failures, p.c.share())) {
			return
		}
	}
}

// askOffset reports whether the group tells its offset of a partition, be it that there is none.
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

// tellUnplaced tells of partitions whose offset the client still asks for, as it does without end
// while a Kafka transaction may commit another one.
func (c *Consumer) tellUnplaced(ctx context.Context, now time.Time) {
	for _, p := range c.owned() {
		if waits := p.isUnplaced(now); waits > stillAfter {
			c.trouble(ctx, fmt.Errorf("topic %s, partition %d: it is not read, as its offset is not known for %s; a transaction of the group that is still open has this effect", p.topic, p.number, waits.Round(time.Second)))
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
	told   int
	again  int // looks until it is told again
}

// stands takes the end of the log, and returns since when the partition has records before it and gets
// none, if that is to be told: ever more seldom, as it may be that the log was compacted.
func (p *partition) stands(end int64, now time.Time) (next int64, since time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.source.still
	if next = p.source.unread; next < 0 {
		next = s.start
	}
	if !p.tracker.idle() || next < 0 || next >= end || next != s.unread {
		s.unread, s.since, s.told, s.again = next, now, 0, 0
		return next, 0
	}
	if since = now.Sub(s.since); since < stillAfter {
		return next, 0
	}
	if s.again > 0 {
		s.again--
		return next, 0
	}
	s.again = 1<<s.told - 1
	s.told = min(s.told+1, 6)
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

// tellStanding tells of a partition that stands still before an end of its log.
func (c *Consumer) tellStanding(ctx context.Context, p *partition, end int64, now time.Time) {
	if next, since := p.stands(end, now); since > 0 {
		c.trouble(ctx, fmt.Errorf("topic %s, partition %d: the brokers have sent nothing for %s, though it ends at offset %d and is read up to %d; it is right only where compaction removed all between", p.topic, p.number, since.Round(time.Second), end, next))
	}
}
