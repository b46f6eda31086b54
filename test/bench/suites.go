package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// suite is one group of measurements.
type suite struct {
	name, about string
	always      bool // part of a run without -full
	run         func(context.Context, *bench) error
}

// everyone drains a backlog, but those that have a suite of their own.
func everyone(c contestant) bool {
	return c.shards == 0 && !c.columns && !c.follows && !c.backfills && !c.far && !c.encodes && !c.replicated
}

// quick are the contestants of suites that vary one dimension.
var quick = named(limit, relayDiscard, relayKafka)

func suites() []suite {
	return append([]suite{
		{"drain", "a backlog in transactions of 10 rows", true, func(ctx context.Context, b *bench) error {
			return b.compare(ctx, "drain", usual(b.rows), everyone)
		}},
		{"single", "a backlog in transactions of one row", true, func(ctx context.Context, b *bench) error {
			s := usual(max(b.rows*3/10, 1))
			s.perTxn = 1
			return b.compare(ctx, "single", s, quick)
		}},
		{"large", "one transaction", true, func(ctx context.Context, b *bench) error {
			s := usual(b.rows)
			s.perTxn = s.rows
			return b.once(ctx, "large", s, func(c contestant) bool {
				return c.large && (!slices.Contains([]string{debezium, debeziumHeap}, c.name) || b.full)
			})
		}},
		{"outage", "the broker stops answering in the middle of a drain", true, outage},
		{"latency", "commit to consumer at a steady rate", true, latency},
		{"start", "start of the process to its first record", true, coldStart},
		{"idle", "attached to a slot of a quiet database", true, idle},
		{"thousand", "a backlog in transactions of 1000 rows", false, func(ctx context.Context, b *bench) error {
			s := usual(b.rows)
			s.perTxn = 1000
			return b.compare(ctx, "thousand", s, quick)
		}},
		{"payload", "payloads of 100 B, 1 KB, 10 KB and 200 KB", false, func(ctx context.Context, b *bench) error {
			var failed error
			for _, size := range []int{100, 1_000, 10_000, 200_000} {
				s := usual(min(b.rows, max(1000, b.rows*600/max(size, 600))))
				s.payload = size
				failed = errors.Join(failed, b.compare(ctx, fmt.Sprintf("payload_%d", size), s, quick))
			}
			return failed
		}},
		{"topics", "1, 100 and 1000 topics", false, func(ctx context.Context, b *bench) error {
			var failed error
			for _, n := range []int{1, 100, 1000} {
				s := usual(b.rows)
				s.topics = n
				failed = errors.Join(failed, b.compare(ctx, fmt.Sprintf("topics_%d", n), s, named(relayKafka)))
			}
			return failed
		}},
		{"shards", "a backlog through 1, 2 and 4 slots", false, func(ctx context.Context, b *bench) error {
			return b.compare(ctx, "shards", usual(b.rows), named(relayKafka, relayShards2, relayShards4))
		}},
		{"columns", "rows with a wide column that the mapping does not read, with and without a column list", false, func(ctx context.Context, b *bench) error {
			s := usual(b.rows)
			s.wide = 2048
			return b.compare(ctx, "columns", s, named(limit, relayKafka, relayColumns))
		}},
		{"ways", "a backlog over TLS, and with a link to the broker", false, func(ctx context.Context, b *bench) error {
			return b.compare(ctx, "ways", usual(b.rows), func(c contestant) bool { return c.far || c.name == relayKafka || c.name == limit })
		}},
		{"formats", "a backlog as it is, and as Avro, JSON Schema and Protobuf with a schema registry", false, compareFormats},
		{"subjects", "memory of a drain in Avro by one schema, and by 200", false, subjects},
		{"cluster", "a backlog to three brokers: three replicas, min.insync.replicas=2, acks=all", false, compareCluster},
		{"backfill", "the rows of a table, beside COPY in the same order to one client", false, func(ctx context.Context, b *bench) error {
			return b.compare(ctx, "backfill", usual(b.rows), func(c contestant) bool { return c.backfills })
		}},
		{"backlog", "backlogs of a tenth to ten times the rows", false, func(ctx context.Context, b *bench) error {
			var failed error
			for _, n := range backlogs(b.rows) {
				failed = errors.Join(failed, b.once(ctx, fmt.Sprintf("backlog_%d", n), usual(n), named(relayKafka)))
			}
			return failed
		}},
	}, besideSuites()...)
}

// besideSuites are about commands beside the stream.
func besideSuites() []suite {
	return []suite{
		{"resume", "a backfill that is killed, and the relay that goes on behind it", false, resumes},
		{"cutover", "writers while a trigger takes their table over from a polling publisher", false, cutOvers},
		{"retention", "old rows removed: without a limit, and beside the stream", false, removal},
		{"partition", "old partitions dropped beside writers", false, partitions},
		{"marks", "writers beside a relay that marks what it has delivered", false, marking},
		{"audit", "a table compared with its topics", false, auditing},
		{"proof", "how long the proof of delivery takes when the relay is idle", false, proven},
	}
}

// backlogs are a tenth, the whole and ten times the rows; of one row there is no tenth.
func backlogs(rows int) []int {
	return slices.Compact([]int{max(1, rows/10), rows, 10 * rows})
}

func chooseSuites(o options) ([]suite, error) {
	asked := chosenNames(o.suites)
	usual := len(asked) == 0
	var chosen []suite
	for _, s := range suites() {
		if asked[s.name] || usual && (s.always || o.full) {
			chosen = append(chosen, s)
		}
		delete(asked, s.name)
	}
	for name := range asked {
		return nil, fmt.Errorf("there is no suite %q; -list shows them", name)
	}
	known := map[string]bool{}
	for _, c := range contestants() {
		known[c.name] = true
	}
	for name := range chosenNames(o.only + "," + o.without) {
		if !known[name] {
			return nil, fmt.Errorf("there is no contestant %q; -list shows them", name)
		}
	}
	return chosen, nil
}

func printList() {
	fmt.Println("suites (* without -full too):")
	for _, s := range suites() {
		mark := " "
		if s.always {
			mark = "*"
		}
		fmt.Printf(" %s %-10s %s\n", mark, s.name, s.about)
	}
	fmt.Println("contestants:")
	for _, c := range contestants() {
		fmt.Printf("   %-18s writes to %s\n", c.name, c.sink)
	}
	fmt.Println("   CONTESTANT_name=command in the environment adds one")
}

// once is compare with one run each.
func (b *bench) once(ctx context.Context, name string, s shape, keep func(contestant) bool) error {
	repeat := b.repeat
	b.repeat = 1
	defer func() { b.repeat = repeat }()
	return b.compare(ctx, name, s, keep)
}
