package offsets

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Ends returns the offsets after the last readable record; with all, after the last
// record. Empty partitions are left out.
func Ends(ctx context.Context, client *kgo.Client, topic string, all bool) (map[int32]int64, error) {
	admin := kadm.NewClient(client)
	list := admin.ListCommittedOffsets
	if all {
		list = admin.ListEndOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	found := make(map[int32]int64)
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok && end.Offset > start.Offset {
			found[end.Partition] = end.Offset
		}
	})
	return found, nil
}
