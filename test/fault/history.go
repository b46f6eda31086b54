package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// History is everything that is known of a run once it is over. The verdict is a
// function of it alone.
type History struct {
	Plan        Plan
	Rows        map[string]Row // what the table holds
	Txns        []Txn          // in the order of their commits, as the witness slot tells
	Records     []*Delivery    // in the order of each partition
	Samples     []Sample
	Checkpoints []Checkpoint // committed, in their order; with exactly_once
	Letters     []*Letter    // of the relay's own rows, in the order of each partition
	Redrives    []Redrive
	Actions     []Done
	Exits       []Exit
	States      []State
	Starts      []time.Time

	Committed, Aborted map[string]bool // what the writers know for certain
	Discarded          map[string]bool // rows of which a letter was to be discarded
	Unknown            int64

	Gone     []Gone          // rows that the relay removed or marked, in no order
	Exported map[string]bool // rows that are in files

	Settled    time.Duration // from the last heal to a position at the tip; negative: never
	Behind     uint64        // bytes of WAL not confirmed then
	Retained   uint64        // bytes of WAL that the slot holds in the end
	Peak       int64         // most memory that a relay had resident
	Base, Last Usage         // of the relay that streams, when it was new and at the end
	Code       int           // of the last relay's clean stop
	Problems   []string
}

// Row is a row of the table.
type Row struct{ Topic, Key, Type, Value string }

// Txn is a committed transaction.
type Txn struct {
	XID         uint32
	Commit, End uint64   // of its commit record
	Rows        []string // ids in the order of writing
}

// Delivery is a record and where it lies, counted over all lives of its topic.
type Delivery struct {
	*kgo.Record
	Part int
	Pos  int64
}

// Checkpoint is a position in the checkpoint topic.
type Checkpoint struct {
	At  time.Time
	End uint64
}

// readTable reads the truth about contents.
func (w *world) readTable(ctx context.Context) (map[string]Row, error) {
	conn, err := pgx.Connect(ctx, w.pg.URL(w.database))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT id::text, aggregate_type, aggregate_id::text, event_type, payload::text FROM outbox")
	if err != nil {
		return nil, err
	}
	all := map[string]Row{}
	var id, aggregate, key, kind, value string
	_, err = pgx.ForEachRow(rows, []any{&id, &aggregate, &key, &kind, &value}, func() error {
		all[id] = Row{Topic: aggregate + "-events", Key: key, Type: kind, Value: value}
		return nil
	})
	return all, err
}

// readWitness reads the truth about order, with a decoder of its own that knows
// only what it needs.
func (w *world) readWitness(ctx context.Context) ([]Txn, error) {
	conn, err := pgx.Connect(ctx, w.pg.URL(w.database))
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`, w.witness(), w.slot)
	if err != nil {
		return nil, err
	}
	var txns []Txn
	var open *Txn
	ids := map[uint32]int{} // relation → place of the column id
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		switch {
		case len(data) == 0:
			return errors.New("an empty message")
		case data[0] == 'B':
			open = &Txn{Commit: binary.BigEndian.Uint64(data[1:]), XID: binary.BigEndian.Uint32(data[17:])}
		case data[0] == 'C' && open != nil:
			open.End = binary.BigEndian.Uint64(data[10:])
			if len(open.Rows) > 0 {
				txns = append(txns, *open)
			}
			open = nil
		case data[0] == 'R':
			relation, place, err := idColumn(data)
			ids[relation] = place
			return err
		case data[0] == 'I' && open != nil:
			id, err := idOf(data, ids)
			open.Rows = append(open.Rows, id)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the witness slot: %w", err)
	}
	return txns, nil
}

func idColumn(msg []byte) (relation uint32, place int, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a relation message is too short")
		}
	}()
	relation, at := binary.BigEndian.Uint32(msg[1:]), 5
	text := func() string {
		from := at
		for msg[at] != 0 {
			at++
		}
		at++
		return string(msg[from : at-1])
	}
	text()
	text()
	at++
	columns := int(binary.BigEndian.Uint16(msg[at:]))
	at += 2
	for i := range columns {
		at++
		if text() == "id" {
			return relation, i, nil
		}
		at += 8
	}
	return relation, 0, errors.New("a relation has no column id")
}

func idOf(msg []byte, ids map[uint32]int) (id string, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("an insert message is too short")
		}
	}()
	place, known := ids[binary.BigEndian.Uint32(msg[1:])]
	if !known || msg[5] != 'N' {
		return "", errors.New("an insert without a relation")
	}
	at := 8
	for i := 0; ; i++ {
		kind := msg[at]
		at++
		if kind != 't' {
			if i == place {
				return "", errors.New("an insert without an id")
			}
			continue
		}
		n := int(binary.BigEndian.Uint32(msg[at:]))
		at += 4
		if i == place {
			return string(msg[at : at+n]), nil
		}
		at += n
	}
}

// readSink reads what the brokers have of some topics now.
func (w *world) readSink(ctx context.Context, topics []string) ([]*Delivery, error) {
	records, err := sandbox.ReadTopics(ctx, w.kafka.Addrs(), topics, w.reads()...)
	if err != nil {
		return nil, err
	}
	all := make([]*Delivery, len(records))
	for i, r := range records {
		part := w.part(r.Topic, r.Partition)
		all[i] = &Delivery{Record: r, Part: part, Pos: w.samples.base[part] + r.Offset}
	}
	return all, nil
}

// reads are the options of whoever reads what the run delivered: with exactly_once
// what consumers of committed records see.
func (w *world) reads() []kgo.Opt {
	opts := []kgo.Opt{w.kafka.Direct()}
	if w.plan.ExactlyOnce {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

// readCheckpoints knows of the topic's records no more than it needs.
func (w *world) readCheckpoints(ctx context.Context) ([]Checkpoint, error) {
	if !w.plan.ExactlyOnce {
		return nil, nil
	}
	records, err := sandbox.ReadTopics(ctx, w.kafka.Addrs(), []string{w.checkpointTopic()}, w.reads()...)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint topic: %w", err)
	}
	var all []Checkpoint
	for _, r := range records {
		if len(r.Value) == 0 || bytes.ContainsRune(r.Key, ' ') { // says nothing of a position
			continue
		}
		var value struct {
			Slot string `json:"slot"`
			End  string `json:"end_lsn"`
		}
		if err := json.Unmarshal(r.Value, &value); err != nil {
			return nil, fmt.Errorf("checkpoint at offset %d: %w", r.Offset, err)
		}
		if value.Slot != w.slot {
			continue
		}
		end, err := parseLSN(value.End)
		if err != nil {
			return nil, fmt.Errorf("checkpoint at offset %d: %w", r.Offset, err)
		}
		all = append(all, Checkpoint{r.Timestamp, end})
	}
	return all, nil
}

func (w *world) part(topic string, partition int32) int {
	for i, each := range w.watched() {
		if each == topic {
			return i*partitions + int(partition)
		}
	}
	return 0
}

// collect reads everything once nothing moves any more.
func (w *world) collect(ctx context.Context, h *History) error {
	var err error
	if h.Rows, err = w.readTable(ctx); err != nil {
		return fmt.Errorf("read the table: %w", err)
	}
	if err := w.readGone(ctx, h); err != nil {
		return fmt.Errorf("read what was removed: %w", err)
	}
	if h.Txns, err = w.readWitness(ctx); err != nil {
		return err
	}
	late, err := w.readSink(ctx, w.topics)
	if err != nil {
		return err
	}
	h.Records = append(append([]*Delivery(nil), w.archived...), late...)
	if err := w.decode(h.Records); err != nil {
		return err
	}
	if h.Checkpoints, err = w.readCheckpoints(ctx); err != nil {
		return err
	}
	if h.Letters, err = w.readLetters(ctx, w.slot); err != nil {
		return err
	}
	h.Redrives, h.Discarded = w.box.redrives, w.box.discarded
	h.Samples = w.samples.all()
	w.mu.Lock()
	h.Actions, h.Problems = w.done, append(h.Problems, w.problems...)
	w.mu.Unlock()
	w.relays.mu.Lock()
	h.Exits, h.States, h.Starts, h.Peak = w.relays.exits, w.relays.states, w.relays.starts, w.relays.peak
	w.relays.mu.Unlock()
	h.Committed, h.Aborted, h.Unknown = w.load.committed, w.load.aborted, w.load.unknown.Load()
	return nil
}
