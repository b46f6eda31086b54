package broker

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// AskProducerID has a client ask the brokers for its producer id, unless it has one. A client needs it before
// it is given its first record: one that is refused the id fails what it has buffered, but not the record
// whose topic it loads at that moment. That record has no outcome until another one is sent (franz-go 1.22.3).
//
// An error is what the client answers every record with from now on, or says that ctx ended. What the client
// tries again by itself, such as brokers that cannot be reached, is none.
func AskProducerID(ctx context.Context, client *kgo.Client) (known bool, err error) {
	_, _, err = client.ProducerID(ctx)
	refused, answered := errors.AsType[*kerr.Error](err)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case errors.Is(err, kgo.ErrClientClosed), answered && !refused.Retriable && refused != kerr.ConcurrentTransactions:
		return false, err
	}
	return false, nil
}
