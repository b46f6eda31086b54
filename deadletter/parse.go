package deadletter

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// ErrForeign is a record that is neither letter nor marker: somebody else writes to
// the topic.
var ErrForeign = errors.New("neither a dead letter nor a marker of cdc-relay")

// Parse returns the letter or the marker that a record holds, or an error with the record's
// place. The result refers to the message's memory.
func Parse(m *topics.Message) (*Letter, *Marker, error) {
	p := parser{values: make(map[string]string)}
	l := &Letter{Partition: m.Partition, Offset: m.Offset, At: m.Timestamp}
	l.Record = record.Record{Key: m.Key, Value: m.Value, Partition: record.AutoPartition}
	letter, marker := headerAt(m.Headers, HeaderReason) >= 0, headerAt(m.Headers, HeaderDone) >= 0
	for _, h := range m.Headers {
		switch {
		case strings.HasPrefix(h.Key, prefix), !letter && strings.HasPrefix(h.Key, HeaderDone):
			p.values[h.Key] = string(h.Value)
		default: // of a letter also one that is named as a marker's: the row had it
			l.Record.Headers = append(l.Record.Headers, h)
		}
	}
	var found *Marker
	switch {
	case letter:
		p.letter(l)
	case marker:
		found, l = p.marker(m.Partition, m.Offset), nil
	default:
		p.err = ErrForeign
	}
	if p.err != nil {
		return nil, nil, fmt.Errorf("dead-letter topic %s, partition %d, offset %d: %w", m.Topic, m.Partition, m.Offset, p.err)
	}
	return l, found, nil
}

// parser keeps the first header that does not parse.
type parser struct {
	values map[string]string
	err    error
}

func (p *parser) fail(name string) {
	if p.err == nil {
		p.err = fmt.Errorf("header %s is missing or malformed", name)
	}
}

func (p *parser) row(lsn, seq string) (row wal.Place) {
	var err error
	if row.Commit, err = wal.ParseLSN(p.values[lsn]); err != nil {
		p.fail(lsn)
	}
	if row.Ordinal, err = strconv.ParseUint(p.values[seq], 10, 64); err != nil {
		p.fail(seq)
	}
	return row
}

func (p *parser) group() (g Group) {
	text := p.values[HeaderGroup]
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == groupSize {
		return Group(raw)
	}
	p.fail(HeaderGroup)
	return g
}

func (p *parser) letter(l *Letter) {
	l.Source, l.Group, l.Place = p.values[HeaderSource], p.group(), p.row(HeaderLSN, HeaderSeq)
	l.Reason, l.Message, l.Table = p.values[HeaderReason], p.values[HeaderMessage], p.values[HeaderTable]
	l.Missing, l.Record.Topic = splitParts(p.values[HeaderMissing]), p.values[HeaderTopic]
	l.Keyed = l.Record.Topic != "" && l.Record.Key != nil
	l.Parks = p.values[HeaderParks] == "true"
	if n, ok := p.count(HeaderPartition, 32); ok {
		l.Record.Partition = int32(n)
	}
	if n, ok := p.count(HeaderTimeline, 32); ok {
		l.Timeline = int32(n)
	}
	if n, ok := p.count(HeaderNth, 9); ok {
		l.Nth = int(n)
	}
	l.Record.Timestamp, l.Committed = p.time(HeaderTimestamp), p.time(HeaderCommitTime)
	l.ValueBytes, _ = p.count(HeaderValueSize, 64)
	l.ValueHash = p.values[HeaderValueHash]
	l.Of, l.Origin, l.Body = p.table(), p.origin(), p.body()
	if n, ok := p.count(HeaderValueSchema, 32); ok {
		l.Schema = uint32(n)
	} else if !slices.Contains(l.Missing, router.PartValue) {
		l.Schema = schemaOf(l.Record.Value)
	}
	if at := headerAt(l.Record.Headers, record.HeaderCommitTime); at >= 0 && l.Committed.IsZero() {
		l.Committed, _ = time.Parse(timestampNotation, string(l.Record.Headers[at].Value)) // a letter of an earlier build may have it
	}
}

func (p *parser) table() (t Table) {
	oid, known := p.count(HeaderTableOID, 33)
	t.Known, t.OID = known, uint32(oid)
	if t.ID.Name = p.values[HeaderIDColumn]; t.ID.Name != "" {
		of, ok := p.count(HeaderIDType, 33)
		if t.ID.Type = uint32(of); !ok {
			p.fail(HeaderIDType)
		}
	}
	return t
}

func (p *parser) origin() (o Origin) {
	o.LSN, o.Began = p.lsn(HeaderRowLSN), p.lsn(HeaderBegan)
	if n, ok := p.count(HeaderRowXID, 33); ok {
		o.XID = uint32(n)
	}
	if op := p.values[HeaderChange]; op != "" {
		o.Change = wal.Op(op[0])
	}
	return o
}

// lsn is a header that holds a position, zero where it is not there.
func (p *parser) lsn(name string) (at wal.LSN) {
	text, ok := p.values[name]
	if !ok {
		return 0
	}
	at, err := wal.ParseLSN(text)
	if err != nil {
		p.fail(name)
	}
	return at
}

// time is a header that holds one, zero where it is not there.
func (p *parser) time(name string) (at time.Time) {
	text, ok := p.values[name]
	if !ok {
		return at
	}
	at, err := time.Parse(timestampNotation, text)
	if err != nil {
		p.fail(name)
	}
	return at
}

// count is a header that holds a number from 0 on, and whether it is there.
func (p *parser) count(name string, bits int) (int64, bool) {
	text, ok := p.values[name]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil || n < 0 {
		p.fail(name)
	}
	return n, true
}
