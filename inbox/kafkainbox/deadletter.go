package kafkainbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

// prefix marks the headers that a dead letter has after those of its record. `cdc-relay
// deadletter` reads them.
const prefix = "cdc-relay-error-"

// setAside sends a record to the dead letters, then marks its key as dead, and reports whether it
// did. The brokers have the dead letter before anything is committed: a crash in between sends it
// twice, and never not at all.
func (p *partition) setAside(q *queue, it item, why *RecordError) bool {
	letter := deadLetter(p.c.cfg.Consumer, p.c.cfg.DeadLetterTopic, it.record, why)
	sent := false
	for failures := 1; ; failures++ {
		err := error(nil)
		if !sent {
			if err = p.produce(letter); err != nil {
				err = unsent(p.c.cfg.DeadLetterTopic, why, err)
			}
			sent = err == nil
		}
		if err == nil {
			err = p.bury(q, it)
		}
		switch {
		case errors.Is(err, errSetBack):
			p.c.setBack()
			return false
		case errors.Is(err, errOvertaken):
			err = nil // another owner has dealt with it
		}
		if err == nil {
			p.c.deadLettered(why)
			p.forgive(it, why)
			p.finish([]item{it})
			return true
		}
		if p.ctx.Err() != nil {
			return false
		}
		p.c.trouble(p.ctx, fmt.Errorf("topic %s, partition %d: %w", p.topic, p.number, err))
		if errors.Is(err, kerr.UnknownTopicID) { // of the topic of dead letters, which was created again
			p.c.endSession(errGone)
			return false
		}
		if !p.pause(p.c.cfg.Retry.delay(failures, p.c.share())) {
			return false
		}
	}
}

// produce sends a dead letter. The client gets its producer id before: one that is refused it while it
// loads the topic would never answer (franz-go 1.22.3).
func (p *partition) produce(letter *kgo.Record) error {
	w := p.timed("send dead letter to topic " + letter.Topic) // the client tries again without end
	defer w.end()
	if _, _, err := p.c.client.ProducerID(p.ctx); err != nil {
		return err
	}
	return p.c.client.ProduceSync(p.ctx, letter).FirstErr()
}

// unsent explains why there is a dead letter at all: that is logged only where it was sent.
func unsent(topic string, why *RecordError, err error) error {
	next := ""
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		next = "; create the topic"
	case errors.Is(err, kerr.ClusterAuthorizationFailed): // the client keeps to the producer id that it was refused
		next = "; grant WRITE on the topic, before Kafka 2.8 also IDEMPOTENT_WRITE on the cluster, then start the consumer again"
	}
	return fmt.Errorf("offset %d, which failed (%s): send dead letter to topic %s: %w%s", why.Offset, describe(why.Err), topic, err, next)
}

// bury marks the key of a record as dead, unless another member has handled the record meanwhile:
// its dead letter, sent again, is a duplicate then. A record without a key has none to mark.
func (p *partition) bury(q *queue, it item) error {
	if it.key.IsZero() && !p.c.cfg.Offsets {
		return nil
	}
	tx, w, end, err := p.transaction(nil)
	if err != nil {
		return err
	}
	defer end()
	w.next("mark as dead")
	if p.c.cfg.Offsets {
		err = p.move(tx, []item{it})
	} else if err = p.checkLastKey(tx, q.lastKey()); err == nil {
		var fresh []bool
		if fresh, err = p.c.box.Claim(p.ctx, pgxinbox.Tx(tx), []inbox.Key{it.key}); err == nil && fresh[0] {
			err = p.c.box.Bury(p.ctx, pgxinbox.Tx(tx), it.key)
		}
	}
	if err == nil {
		err = tx.Commit(p.ctx)
	}
	if err != nil {
		return fmt.Errorf("mark as dead: %w", err)
	}
	if p.c.cfg.Offsets {
		p.opened.next = it.record.Offset + 1
	} else {
		q.claimed(it)
	}
	return nil
}

// deadLetter is the record as it was, with where it was and why it is here. Nothing of the
// handler's error but its type is in it.
func deadLetter(consumer, topic string, record *kgo.Record, why *RecordError) *kgo.Record {
	headers := make([]kgo.RecordHeader, 0, len(record.Headers)+11)
	for _, h := range record.Headers {
		if !strings.HasPrefix(h.Key, prefix) {
			headers = append(headers, h)
		}
	}
	partition, offset := strconv.Itoa(int(record.Partition)), strconv.FormatInt(record.Offset, 10)
	for _, h := range [][2]string{
		{"reason", "handler"},
		{"message", why.Error()},
		{"topic", record.Topic},
		{"partition", partition},
		{"timestamp", record.Timestamp.UTC().Format(time.RFC3339Nano)},
		{"consumer", consumer},
		{"offset", offset},
		{"source", "inbox/" + consumer},
		{"group", group(record)},
		{"lsn", "0/0"}, // it has no place in a WAL; the offset orders those of a key
		{"seq", offset},
	} {
		headers = append(headers, kgo.RecordHeader{Key: prefix + h[0], Value: []byte(h[1])})
	}
	return &kgo.Record{Topic: topic, Key: record.Key, Value: record.Value, Headers: headers, Context: context.Background()}
}

// group names what keeps order among dead letters, as package deadletter of cdc-relay does: a key
// of a topic, or, without one, the record.
func group(record *kgo.Record) string {
	h := sha256.New()
	if record.Key == nil {
		fmt.Fprintf(h, "%s/%d %d", record.Topic, record.Partition, record.Offset)
	} else {
		fmt.Fprintf(h, "%d/%s/", len(record.Topic), record.Topic)
		h.Write(record.Key)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
