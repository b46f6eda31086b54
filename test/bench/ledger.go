package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ledger checks that what arrived is what was written: every row once, and the
// rows of a key in their order. A figure of a run that it refuses is not printed.
type ledger struct {
	rows  int
	seen  []uint64
	last  [keys]int32
	count int

	ids bool // a record must have its row's id as a header

	number func(value []byte) (int, bool) // finds a row's number in its value

	repeated, strange, disordered, misnamed int
}

func newLedger(rows int) *ledger {
	return &ledger{rows: rows, seen: make([]uint64, rows/64+1), number: number}
}

// add takes one value, and returns its row's number; those of one key must come in the order they
// have in their partition.
func (l *ledger) add(value []byte) int {
	n, ok := l.number(value)
	if !ok || n < 1 || n > l.rows {
		l.strange++
		return n
	}
	if bit := uint64(1) << (n % 64); l.seen[n/64]&bit == 0 {
		l.seen[n/64] |= bit
		l.count++
	} else {
		l.repeated++
		return n
	}
	if key := n % keys; int32(n) < l.last[key] {
		l.disordered++
	} else {
		l.last[key] = int32(n)
	}
	return n
}

// take is add for a record, which is also told by its header.
func (l *ledger) take(r *kgo.Record) {
	n := l.add(r.Value)
	if !l.ids {
		return
	}
	at := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "id" })
	if at < 0 || !isID(r.Headers[at].Value, n) {
		l.misnamed++
	}
}

// idPrefix is that of the ids that bench_rows gives; the row's number follows.
const idPrefix = "00000000-0000-7000-8000-"

func isID(id []byte, n int) bool {
	digits, ok := bytes.CutPrefix(id, []byte(idPrefix))
	if !ok || len(digits) != 12 {
		return false
	}
	v, err := strconv.ParseUint(string(digits), 16, 64)
	return err == nil && v == uint64(n)
}

// number finds the row's number in its payload, also in one that was quoted once
// more on its way.
func number(value []byte) (int, bool) {
	at := bytes.Index(value, []byte(`n": `))
	skip := 4
	if at < 0 {
		if at = bytes.Index(value, []byte(`"n":`)); at < 0 {
			if at = bytes.Index(value, []byte(`n\": `)); at < 0 {
				return 0, false
			}
			skip = 5
		}
	}
	n, digits := 0, 0
	for _, c := range value[at+skip:] {
		if c < '0' || c > '9' {
			break
		}
		n, digits = 10*n+int(c-'0'), digits+1
	}
	return n, digits > 0 && digits < 10
}

var errUnverified = errors.New("not verified")

func (l *ledger) verdict() error {
	if l.count == l.rows && l.repeated == 0 && l.strange == 0 && l.disordered == 0 && l.misnamed == 0 {
		return nil
	}
	return fmt.Errorf("%w: of %d rows %d arrived, %d of them again, %d out of their key's order, %d without their id; %d records are none of ours",
		errUnverified, l.rows, l.count, l.repeated, l.disordered, l.misnamed, l.strange)
}

// verify reads back what lies behind the offsets that a run began at.
func (c *cluster) verify(ctx context.Context, topics []string, from kadm.ListedOffsets, l *ledger) error {
	ends, _, err := c.offsets(ctx, topics)
	if err != nil {
		return err
	}
	offsets, left := map[string]map[int32]kgo.Offset{}, map[string]map[int32]int64{}
	for topic := range ends {
		offsets[topic], left[topic] = map[int32]kgo.Offset{}, map[int32]int64{}
	}
	open := 0
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := from.Lookup(end.Topic, end.Partition)
		if end.Offset > start.Offset {
			offsets[end.Topic][end.Partition] = kgo.NewOffset().At(start.Offset)
			left[end.Topic][end.Partition] = end.Offset
			open++
		}
	})
	if open == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.ConsumePartitions(offsets), kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(4<<20), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for open > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read back what was sent: %w", context.Cause(ctx))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				l.take(r)
			}
			if end, ok := left[r.Topic][r.Partition]; ok && r.Offset+1 >= end {
				delete(left[r.Topic], r.Partition) // once, whatever still comes behind it
				open--
			}
		})
	}
	return nil
}

// forget frees the disk of what was verified.
func (c *cluster) forget(ctx context.Context, topics []string) {
	ends, _, err := c.offsets(ctx, topics)
	if err != nil {
		return
	}
	_, _ = c.admin.DeleteRecords(ctx, ends.Offsets())
}
