package topics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/offsets"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Span is what is read of a partition: [From, End). Begin is where the partition itself begins.
type Span struct {
	Topic            string
	Partition        int32
	Begin, From, End int64
}

// Scanner reads parts of topics. The principal needs READ and DESCRIBE on them, and
// DESCRIBE_CONFIGS for Compacted. One goroutine uses it.
type Scanner struct {
	at     broker.Connection
	client *kgo.Client
}

// NewScanner connects to nothing yet.
func NewScanner(at broker.Connection) (*Scanner, error) {
	client, err := at.Consumer()
	if err != nil {
		return nil, err
	}
	return &Scanner{at: at, client: client}, nil
}

// Close gives the connections up.
func (s *Scanner) Close() { s.client.Close() }

// Spans returns the partitions of the topics from a time on (zero: from their beginnings) to the
// last record, committed or not. A missing topic has none. The error is a *sink.Error.
func (s *Scanner) Spans(ctx context.Context, since time.Time, names ...string) ([]Span, error) {
	if len(names) == 0 {
		return nil, nil
	}
	admin := kadm.NewClient(s.client)
	ends, err := admin.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, readError("", err)
	}
	begins, err := admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, readError("", err)
	}
	var from kadm.ListedOffsets
	if !since.IsZero() {
		if from, err = admin.ListOffsetsAfterMilli(ctx, since.UnixMilli(), names...); err != nil {
			return nil, readError("", err)
		}
	}
	var spans []Span
	for _, end := range ends.Offsets().Sorted() {
		listed, _ := ends.Lookup(end.Topic, end.Partition)
		begin, found := begins.Lookup(end.Topic, end.Partition)
		if listed.Err == nil && found {
			listed.Err = begin.Err
		}
		if errors.Is(listed.Err, kerr.UnknownTopicOrPartition) {
			continue
		}
		if listed.Err != nil {
			return nil, readError(end.Topic, listed.Err)
		}
		span := Span{Topic: end.Topic, Partition: end.Partition, Begin: begin.Offset, From: begin.Offset, End: listed.Offset}
		if at, found := from.Lookup(end.Topic, end.Partition); found && !since.IsZero() {
			if at.Err != nil {
				return nil, readError(end.Topic, at.Err)
			}
			span.From = max(span.From, at.Offset)
		}
		spans = append(spans, span)
	}
	return spans, nil
}

// Compacted reports which of the topics may be compacted: also those whose configuration we may
// not see, which unseen are too.
func (s *Scanner) Compacted(ctx context.Context, names ...string) (compacted map[string]bool, unseen []string, err error) {
	compacted = make(map[string]bool)
	if len(names) == 0 {
		return compacted, nil, nil
	}
	configs, err := kadm.NewClient(s.client).DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, nil, readError("", err)
	}
	for _, c := range configs {
		switch {
		case errors.Is(c.Err, kerr.UnknownTopicOrPartition):
			continue
		case c.Err != nil:
			compacted[c.Name] = true
			unseen = append(unseen, c.Name)
			continue
		}
		for _, setting := range c.Configs {
			if setting.Key == "cleanup.policy" && setting.Value != nil && strings.Contains(*setting.Value, "compact") {
				compacted[c.Name] = true
			}
		}
	}
	return compacted, unseen, nil
}

// scanBytes is what one partition gives at a time: as records it takes many times as much.
const scanBytes = 256 << 10

// Scan visits the committed records of the spans, those of a partition in order, and waits for
// open transactions. patience is the longest wait without a record. visit must not keep the
// message; its error ends the reading. Every other error is a *sink.Error.
func (s *Scanner) Scan(ctx context.Context, spans []Span, patience time.Duration, visit func(*Message) error) error {
	from, left := make(map[string]map[int32]kgo.Offset), make(map[string]*spanned)
	for _, span := range spans {
		if span.From >= span.End {
			continue
		}
		of := left[span.Topic]
		if of == nil {
			of = &spanned{next: make(map[int32]int64), ends: make(map[int32]int64)}
			left[span.Topic], from[span.Topic] = of, make(map[int32]kgo.Offset)
		}
		of.next[span.Partition], of.ends[span.Partition] = span.From, span.End
		from[span.Topic][span.Partition] = kgo.NewOffset().At(span.From)
	}
	if len(left) == 0 {
		return nil
	}
	client, err := s.at.Consumer(kgo.FetchMaxWait(followWait), kgo.ConsumePartitions(from), kgo.FetchMaxBytes(2<<20), kgo.FetchMaxPartitionBytes(scanBytes))
	if err != nil {
		return err
	}
	defer client.Close()
	for came := time.Now(); len(left) > 0; {
		fetches := pollFor(ctx, client, readStall)
		if ctx.Err() != nil {
			return readError("", context.Cause(ctx))
		}
		for _, e := range fetches.Errors() {
			return readError(e.Topic, e.Err)
		}
		if fetches.Empty() {
			if time.Since(came) >= patience {
				return hidden(left)
			}
			for topic, of := range left {
				offsets.DropUnreadable(ctx, client, topic, of.next, of.ends)
				if len(of.ends) == 0 {
					delete(left, topic)
				}
			}
			continue
		}
		came = time.Now()
		if err := take(client, fetches, left, visit); err != nil {
			return err
		}
	}
	return nil
}

// spanned is what is left to read of a topic.
type spanned struct{ next, ends map[int32]int64 }

// take visits what came, and stops fetching partitions that are done with.
func take(client *kgo.Client, fetches kgo.Fetches, left map[string]*spanned, visit func(*Message) error) error {
	done := make(map[string][]int32)
	for records := fetches.RecordIter(); !records.Done(); {
		r := records.Next()
		of := left[r.Topic]
		if of == nil {
			continue
		}
		end, open := of.ends[r.Partition]
		if !open {
			continue
		}
		if r.Offset < end && !r.Attrs.IsControl() {
			if err := visit(newMessage(r)); err != nil {
				return err
			}
		}
		of.next[r.Partition] = r.Offset + 1
		if r.Offset+1 < end {
			continue
		}
		done[r.Topic] = append(done[r.Topic], r.Partition)
		if delete(of.ends, r.Partition); len(of.ends) == 0 {
			delete(left, r.Topic)
		}
	}
	if len(done) > 0 {
		client.PauseFetchPartitions(done)
	}
	return nil
}

// hidden is the error where nothing comes any more.
func hidden(left map[string]*spanned) error {
	for topic, of := range left {
		for partition, end := range of.ends {
			return &sink.Error{Class: sink.Retry, Reason: fault.ReasonRecordsHidden, Err: advice.Give(
				fmt.Errorf("read topic %q: offsets %d to %d of partition %d lie after the start of a Kafka transaction that is not over", topic, of.next[partition], end-1, partition),
				"it ends by itself with its transaction.timeout.ms at the latest; `kafka-transactions.sh find-hanging` names one that does not. Run the command again then")}
		}
	}
	return nil
}
