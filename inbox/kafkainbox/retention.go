package kafkainbox

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// warnOfRetention names topics that keep records longer than keys are kept. Nothing is handled
// twice by that: going back in such a topic further than Keep is refused.
func (c *Consumer) warnOfRetention(ctx context.Context) {
	if c.cfg.Offsets || c.cfg.AllowRewind {
		return
	}
	request := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range c.cfg.Topics {
		one := kmsg.NewDescribeConfigsRequestResource()
		one.ResourceType, one.ResourceName, one.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{"retention.ms", "segment.ms", "cleanup.policy"}
		request.Resources = append(request.Resources, one)
	}
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	for _, shard := range c.client.RequestSharded(ctx, request) {
		response, ok := shard.Resp.(*kmsg.DescribeConfigsResponse)
		if shard.Err != nil || !ok {
			continue // rights to describe are not needed for anything else
		}
		for _, topic := range response.Resources {
			if stays, known := staying(topic.Configs); known && topic.ErrorCode == 0 && stays > c.cfg.Keep {
				c.cfg.Logger.Warn("the topic keeps records longer than Keep: going back further than Keep is refused", "topic", topic.ResourceName, "records", stays, "keep", c.cfg.Keep)
			}
		}
	}
}

const forever = time.Duration(math.MaxInt64)

// staying is how long a record may be in a topic: a segment is deleted when its newest record is
// old enough.
func staying(settings []kmsg.DescribeConfigsResponseResourceConfig) (stays time.Duration, known bool) {
	for _, s := range settings {
		if s.Value == nil {
			continue
		}
		if s.Name == "cleanup.policy" {
			if *s.Value == "compact" {
				return forever, true
			}
			continue
		}
		ms, err := strconv.ParseInt(*s.Value, 10, 64)
		if err != nil {
			continue
		}
		known = true
		if ms < 0 || ms > int64(forever/time.Millisecond) || stays > forever-time.Duration(ms)*time.Millisecond {
			return forever, true
		}
		stays += time.Duration(ms) * time.Millisecond
	}
	return stays, known
}
