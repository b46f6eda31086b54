package backfill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

const (
	// maxPresent bounds how many rows are held against the topics: some 60 MB.
	maxPresent = 500_000

	// beforeCreated is how much earlier than a row's creation its record may seem to be: clocks of
	// servers, brokers and producers differ.
	beforeCreated = time.Hour

	// scanPatience is how long nothing may come: an open transaction of a producer that was killed
	// hides what follows it.
	scanPatience = 75 * time.Second
)

// findPresent finds the rows that are in their topics already, because a publisher had sent and not
// marked them. It runs when no publisher sends any more, and after the snapshot. What an earlier
// call of the backfill sent is there too, so all rows are looked at, whatever the progress.
//
// A row is left out where that keeps the order of its key: no earlier row of the key is still to be
// sent, or comes after it in the topic. Else the key would end with an older row, so it is sent again.
func (w *work) findPresent(ctx context.Context) error {
	found := &presence{w: w, seed: maphash.MakeSeed(), names: make(map[string]struct{}), at: make(map[uint64]uint32)}
	var err error
	if found.routes, err = resolve.New(w.settings.Router); err != nil {
		return &relay.ConfigError{Err: err}
	}
	if err := found.rows(ctx); err != nil {
		return err
	}
	if err := found.records(ctx); err != nil {
		return err
	}
	left, again := found.decide()
	if left > 0 {
		if err := found.places(ctx); err != nil {
			return err
		}
	}
	w.skip.present, w.skip.n = found.out, left
	w.Out.say(Line{What: "step", Text: fmt.Sprintf("%s in the topics already, and left out", wording.Count(left, "row"))})
	if found.otherKey > 0 {
		w.Out.warn(fmt.Sprintf("%s with the id of a row and another key than it has: these are not taken for the row's", wording.Count(found.otherKey, "record")))
	}
	if n := found.otherValue; n > 0 {
		w.Out.warn(fmt.Sprintf("%s with the id and the key of a row and another value than it has: these are not taken for the row's, because a number may be the id of another table's row too", wording.Count(n, "record")))
	}
	if again > 0 {
		w.Out.warn(fmt.Sprintf("%s in the topics already, before older rows of their keys: sent again after those, so that each key ends with its newest row", wording.Count(again, "row")))
	}
	w.OnStep("present_found")
	return nil
}

// presence compares rows with topics.
type presence struct {
	w      *work
	routes *resolve.Router
	seed   maphash.Seed

	list  []presentRow
	at    map[uint64]uint32 // index into list, by topic and id
	names map[string]struct{}
	since time.Time // no record is older; zero: nobody knows
	open  bool      // some row has no time

	otherKey   int64 // records with the id of a row and another key: a member of another meaning, perhaps
	otherValue int64 // with id and key of a row and another value, where the id is a number: another table's, perhaps
	out        late
}

// presentRow is a row, in the order of the backfill.
type presentRow struct {
	check     uint64 // second hash of topic and id: see hash
	key       uint64 // of topic and key; 0: it has none
	value     uint64 // where the id is a number, which other tables have too; 0: any value
	offset    int64  // of its last record, plus one; 0: there is none
	partition int32
	table     uint16
	leave     bool
}

// hash is of texts, each with its end.
func (p *presence) hash(texts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(p.seed)
	for _, text := range texts {
		_, _ = h.WriteString(strconv.Itoa(len(text))) // it never fails
		_ = h.WriteByte(':')
		_, _ = h.WriteString(text)
	}
	return h.Sum64()
}

// keyed is never zero.
func (p *presence) keyed(topic string, key []byte) uint64 { return p.hash(topic, string(key), "") | 1 }

// valued is never zero. It is the same of JSON that is written otherwise (spaces, order of members).
func (p *presence) valued(value []byte) uint64 {
	var any any
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	if d.Decode(&any) == nil && !d.More() {
		if same, err := json.Marshal(any); err == nil {
			value = same
		}
	}
	return p.hash(string(value)) | 1
}

// route leaves the records of a row in buf, and reports whether there are any. A row that is rejected
// has none.
func (p *presence) route(ctx context.Context, buf *record.Buffer, row *wal.Row) (routed bool, err error) {
	buf.Reset()
	err = p.routes.Route(ctx, buf, row)
	if _, rejected := errors.AsType[*record.RowError](err); rejected {
		return false, nil
	}
	return len(buf.Records) > 0, err
}

// rows takes all rows of the selection.
func (p *presence) rows(ctx context.Context) error {
	var buf record.Buffer
	return p.each(ctx, func(table int, row *wal.Row, order, beside [][]byte) error {
		if routed, err := p.route(ctx, &buf, row); err != nil || !routed {
			return err
		}
		s := &p.w.tables[table]
		if !s.Order.Total {
			return progress.Refuse(fmt.Errorf("--skip-present: table %s has no unique key without NULLs, by which rows are left out", s.Name), "add one, or leave out --skip-present")
		}
		rec := &buf.Records[0]
		id, has := headerID(rec.Headers)
		if len(buf.Records) > 1 || !has {
			return progress.Refuse(fmt.Errorf("--skip-present: the mapping of table %s makes no single record with the header %s, by which records are found", s.Name, record.IdHeader), "leave out --skip-present")
		}
		if len(p.list) >= maxPresent {
			return progress.Refuse(fmt.Errorf("--skip-present compares %d rows at most, and there are more", maxPresent), "leave out --skip-present, and have consumers drop repetitions by the header id")
		}
		p.names[rec.Topic] = struct{}{}
		if len(beside) == 0 || !p.created(beside[0]) {
			p.open = true
		}
		one := presentRow{check: p.hash(id, rec.Topic), table: uint16(table)}
		if rec.Key != nil {
			one.key = p.keyed(rec.Topic, rec.Key)
		}
		if _, err := strconv.ParseInt(id, 10, 64); err == nil {
			one.value = p.valued(rec.Value)
		}
		at := p.hash(rec.Topic, id)
		if _, twice := p.at[at]; !twice { // of two rows with one id the second is sent
			p.at[at] = uint32(len(p.list))
		}
		p.list = append(p.list, one)
		return nil
	})
}

// created takes a row's time, in seconds.
func (p *presence) created(text []byte) bool {
	at, err := strconv.ParseFloat(string(text), 64)
	if err != nil || at <= 0 {
		return false
	}
	if t := time.Unix(int64(at), 0); p.since.IsZero() || t.Before(p.since) {
		p.since = t
	}
	return true
}

// each visits the rows of all tables in order, with the time of their creation beside. They are
// good until the next.
func (p *presence) each(ctx context.Context, visit func(table int, row *wal.Row, order, beside [][]byte) error) error {
	for i := range p.w.tables {
		if err := p.of(ctx, i, visit); err != nil {
			return err
		}
	}
	return nil
}

func (p *presence) of(ctx context.Context, table int, visit func(int, *wal.Row, [][]byte, [][]byte) error) error {
	s := p.w.tables[table]
	if by, timed, err := s.Shape.TimeColumn(""); err == nil && timed {
		s.Beside = []string{epochOf(by)}
	}
	reader, err := p.w.holder.Reader(ctx)
	if err != nil {
		return err
	}
	defer reader.Close() // also inside a reading
	rows := reader.Read(ctx, &s, nil, p.w.bound(p.w.progress.Tables[table].Last))
	row := s.NewRow()
	for {
		columns, order := rows.Next()
		if columns == nil && order == nil {
			return rows.Err()
		}
		snapshot.SetValues(row, columns)
		if err := visit(table, row, order, rows.Beside()); err != nil {
			return err
		}
	}
}

// epochOf is a column's time in seconds, NULL where it has none.
func epochOf(c snapshot.Column) string {
	column := wal.QuoteIdentifier(c.Name)
	return "CASE WHEN pg_catalog.isfinite(" + column + ") THEN pg_catalog.date_part('epoch', " + column + ") END"
}

// records looks for the rows' records.
func (p *presence) records(ctx context.Context) error {
	if len(p.list) == 0 {
		return nil
	}
	since := p.since
	if p.open {
		since = time.Time{}
	}
	names := make([]string, 0, len(p.names))
	for name := range p.names {
		names = append(names, name)
	}
	return ScanFor(ctx, p.w.settings, since, names, func(m *topics.Message) error {
		for _, id := range EventIDs(m, p.w.Options.IDField) {
			i, found := p.at[p.hash(m.Topic, id)]
			if !found || p.list[i].check != p.hash(id, m.Topic) {
				continue
			}
			one := &p.list[i]
			if one.key != 0 && (m.Key == nil || one.key != p.keyed(m.Topic, m.Key)) {
				p.otherKey++
				continue
			}
			if one.value != 0 && one.value != p.valued(m.Value) {
				p.otherValue++
				continue
			}
			if m.Partition != one.partition || m.Offset >= one.offset {
				one.partition, one.offset = m.Partition, m.Offset+1
			}
		}
		return nil
	})
}

// decide marks the rows that are left out.
func (p *presence) decide() (left, again int64) {
	type end struct {
		sends     bool // an earlier row of the key is sent
		partition int32
		offset    int64
	}
	keys := make(map[uint64]end)
	for i := range p.list {
		one := &p.list[i]
		last, seen := keys[one.key]
		behind := seen && last.partition == one.partition && last.offset > one.offset
		switch {
		case one.offset == 0:
			last.sends = true
		case one.key != 0 && (last.sends || behind):
			again++
			last.sends = true
		default:
			one.leave = true
			left++
			last.partition, last.offset = one.partition, one.offset
		}
		if one.key != 0 {
			keys[one.key] = last
		}
	}
	return left, again
}

// places notes where the rows are that are left out. The snapshot has them in the same order as before.
func (p *presence) places(ctx context.Context) error {
	p.out = make(late)
	var buf record.Buffer
	next := 0
	return p.each(ctx, func(table int, row *wal.Row, order, _ [][]byte) error {
		if routed, err := p.route(ctx, &buf, row); err != nil || !routed {
			return err
		}
		if next >= len(p.list) || int(p.list[next].table) != table {
			return errors.New("the snapshot showed other rows the second time; run the command again")
		}
		if id, _ := headerID(buf.Records[0].Headers); p.list[next].check != p.hash(id, buf.Records[0].Topic) {
			return errors.New("the snapshot showed other rows the second time; run the command again")
		}
		if p.list[next].leave {
			p.out[spot{table, progress.Key(order)}] = struct{}{}
		}
		next++
		return nil
	})
}

// headerID is the header id of a record.
func headerID(headers []record.Header) (string, bool) {
	for i := range headers {
		if headers[i].Key == record.IdHeader {
			return string(headers[i].Value), headers[i].Value != nil
		}
	}
	return "", false
}

// EventIDs are what a record of a publisher may have for the id of its event: the header id, and a
// member of the JSON object that is its value.
func EventIDs(m *topics.Message, member string) (ids []string) {
	if id, found := headerID(m.Headers); found {
		ids = append(ids, id)
	}
	if member == "" {
		return ids
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(m.Value, &object); err != nil {
		return ids
	}
	raw, found := object[member]
	if !found {
		return ids
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		text = string(raw) // a number
	}
	return append(ids, text)
}

// ScanFor visits the committed records of topics that may be of rows created since a time, up to
// what the topics have now. The zero time: all.
func ScanFor(ctx context.Context, settings relay.Config, since time.Time, names []string, visit func(*topics.Message) error) error {
	scanner, err := topics.NewScanner(settings.Kafka.Connection)
	if err != nil {
		return err
	}
	defer scanner.Close()
	if now := time.Now(); since.After(now) { // a column of other times
		since = now
	}
	if !since.IsZero() {
		since = since.Add(-beforeCreated)
	}
	spans, err := scanner.Spans(ctx, since, names...)
	if err != nil {
		return err
	}
	return scanner.Scan(ctx, spans, scanPatience, visit)
}
