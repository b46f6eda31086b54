package deadletter

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// prefix marks the headers of this package. A record's own headers of that name are
// not kept.
const prefix = "cdc-relay-error-"

// The headers of a letter, after those of the record.
const (
	HeaderReason      = prefix + "reason"       // as events_rejected_total has it, or parked
	HeaderMessage     = prefix + "message"      // the error, nothing of the row in it
	HeaderTopic       = prefix + "topic"        // where the record was to go; absent when no topic could be made
	HeaderTable       = prefix + "table"        // schema.name
	HeaderTableOID    = prefix + "table-oid"    // of the table, zero for a message; letters of earlier builds have none
	HeaderIDColumn    = prefix + "id-column"    // that the header id is the text of; absent where it is not the text of one column
	HeaderIDType      = prefix + "id-type"      // OID of its type
	HeaderLSN         = prefix + "lsn"          // commit record of the row's transaction, as logs name it; of a message outside any, its last byte
	HeaderSeq         = prefix + "seq"          // ordinal in the transaction
	HeaderNth         = prefix + "record"       // among the records of the row, from 0 on; absent for the first
	HeaderTimeline    = prefix + "timeline"     // that the row was committed on; letters of earlier builds have none
	HeaderBegan       = prefix + "timeline-lsn" // where that timeline begins: another standby may have given its own the same number; absent for the first one
	HeaderSource      = prefix + "source"       // SourceID
	HeaderGroup       = prefix + "group"        // what keeps order: hash of topic and key
	HeaderParks       = prefix + "parks"        // "true": later rows of the group follow this letter; else absent
	HeaderPartition   = prefix + "partition"    // explicit partition; absent when the key decides
	HeaderCommitTime  = prefix + "commit-time"  // of the transaction, RFC 3339; absent for a message outside any; letters of earlier builds have none
	HeaderRowLSN      = prefix + "row-lsn"      // of the row itself; absent where it is not known, and for a message
	HeaderRowXID      = prefix + "row-xid"      // of its transaction; absent as the one before
	HeaderChange      = prefix + "change"       // what the row is, as the stream names it; absent for an insert
	HeaderTimestamp   = prefix + "timestamp"    // mapped timestamp, RFC 3339; absent when there is none
	HeaderMissing     = prefix + "missing"      // comma list: topic, key, value, headers, timestamp, partition
	HeaderValueSize   = prefix + "value-bytes"
	HeaderValueHash   = prefix + "value-sha256" // of a value that is missing because of its size; letters of earlier builds have none
	HeaderValueSchema = prefix + "value-schema" // of the same value: the number of its schema; absent where it begins otherwise than the values of a registry
)

// CauseParked is the reason of a row that is good itself and follows one of its key.
const CauseParked = "parked"

const (
	maxMessage        = 1 << 10
	groupSize         = 16
	timestampNotation = time.RFC3339Nano
)

// fromTable is below the ordinals of rows that were read from their table, which count from the
// microseconds since 1970 on (package backfill), and above those of a transaction's rows in the WAL.
const fromTable = 1 << 50

// ID names a record within its source. One row may have several records, and a position alone
// names different rows on different timelines.
type ID struct {
	Timeline int32 // zero: not known
	wal.Place
	Nth int // among the records of the row, from 0 on
}

// FromTable reports whether the row was read from its table and not from the WAL: its Commit is
// its number among the rows read, and lies in no history.
func (i ID) FromTable() bool { return i.Ordinal > fromTable }

// Compare orders records of one source by commit. The timeline comes first, because positions go
// back at a fork.
func (i ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(i.Timeline, other.Timeline), i.committed().Compare(other.committed()), cmp.Compare(i.Nth, other.Nth))
}

// committed is the place by which letters are ordered. Rows that were read from their table come
// before those of the WAL. Among them the ordinal decides: it grows from one call of backfill to the
// next, while the number of a row is good for one call.
func (i ID) committed() wal.Place {
	if i.FromTable() {
		return wal.Place{Ordinal: i.Ordinal}
	}
	return i.Place
}

// Group is what keeps order among letters: one key of one topic; one key of all letters without
// a topic, as they may get the same one; or, where there is no key, one letter.
type Group [groupSize]byte

func (g Group) String() string { return hex.EncodeToString(g[:]) }

// KeyGroup is the group of a topic's key.
func KeyGroup(topic string, key []byte) Group {
	h := sha256.New()
	fmt.Fprintf(h, "%d/%s/", len(topic), topic)
	h.Write(key)
	return Group(h.Sum(nil)[:groupSize])
}

// UnroutedGroup is the group of a key whose letters have no topic yet, whatever their table. No
// topic's group is equal: its hash begins with a digit.
func UnroutedGroup(key []byte) Group {
	return hashed("no topic/" + string(key))
}

func rowGroup(table string, row wal.Place) Group {
	return hashed(table + " " + row.String())
}

func hashed(text string) Group {
	sum := sha256.Sum256([]byte(text))
	return Group(sum[:groupSize])
}

// Cause is why a record becomes a letter.
type Cause struct {
	Reason   string
	Err      error    // never holds anything of the row but an escaped topic name
	Source   string   // SourceID
	Timeline int32    // that the row was committed on
	Began    wal.LSN  // where that begins: wal.Origin.Begin
	Missing  []string // parts of router.Salvage
	Parks    bool     // keys are parked

	ID record.IDColumn // of the row's mapping
}

// SourceID names where rows come from: the cluster by its system identifier, the database by its
// OID, and the slot. Positions mean nothing on another cluster, and event ids nothing in another
// database. None of the three has a slash.
func SourceID(system, database, slot string) string { return system + "/" + database + "/" + slot }

// SplitSource is the inverse of SourceID. All three are empty for what SourceID does not make.
func SplitSource(source string) (system, database, slot string) {
	parts := strings.Split(source, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return "", "", ""
	}
	return parts[0], parts[1], parts[2]
}

// Letter is one dead letter, as the topic has it.
type Letter struct {
	ID
	Source  string
	Group   Group
	Keyed   bool // Group is a key's: order matters
	Parks   bool // its key was parked; letters of earlier builds do not say so
	Reason  string
	Message string
	Table   string // as it was called then
	Of      Table
	Missing []string

	// Record is what was to be sent: Topic is empty and parts are absent as Missing
	// says.
	Record record.Record

	ValueBytes int64  // of a value that is missing because of its size; else zero
	ValueHash  string // of the same value, see hashOf; empty where it is not known
	Schema     uint32 // that the value was encoded by, missing or not; zero: by none, or it is not known

	Committed time.Time // commit time of the row's transaction; zero where it is not known

	Origin Origin // of a row of a table

	Body *Body // the value is the whole body of a logical message; nil: it is not

	Partition int32 // of the dead-letter topic, as the next two
	Offset    int64
	At        time.Time
}

// Table is what a letter says of its row's table besides the name, which another table may have by now.
type Table struct {
	Known bool   // letters of earlier builds say nothing of it
	OID   uint32 // zero: the row is a logical message
	ID    record.IDColumn
}

// Origin is what a record may say of its row besides the columns, in the source block of Debezium for
// instance. Letters of earlier builds have nothing of it.
type Origin struct {
	LSN    wal.LSN // zero where it is not known
	XID    uint32  // as LSN
	Change wal.Op  // zero: an insert
	Began  wal.LSN // where the timeline begins, of a message too; zero: it is the first one, or not known
}

// Complete reports whether Record can be sent as it is.
func (l *Letter) Complete() bool { return len(l.Missing) == 0 }

// EventID is the value of the header id, or empty.
func (l *Letter) EventID() string {
	for _, h := range l.Record.Headers {
		if h.Key == "id" {
			return string(h.Value)
		}
	}
	return ""
}

// Wrap makes the letter of a record that has a Row. It refers to the record's
// memory.
func Wrap(rec *record.Record, topic string, c Cause) record.Record {
	row := rec.Row.Place()
	table := rec.Row.Relation.Qualified()
	headers := make([]record.Header, 0, len(rec.Headers)+23)
	for _, h := range rec.Headers {
		if !strings.HasPrefix(h.Key, prefix) {
			headers = append(headers, h)
		}
	}
	add := func(name, value string) { headers = append(headers, record.Header{Key: name, Value: []byte(value)}) }
	group := rowGroup(table, row) // several timelines may share it: markers name letters, not groups
	switch {
	case rec.Key == nil:
	case rec.Topic == "":
		group = UnroutedGroup(rec.Key)
	default:
		group = KeyGroup(rec.Topic, rec.Key)
	}
	add(HeaderReason, c.Reason)
	add(HeaderMessage, short(c.Err))
	if rec.Topic != "" {
		add(HeaderTopic, rec.Topic)
	}
	add(HeaderTable, table)
	addTable(rec.Row, c.ID, add)
	add(HeaderLSN, row.Commit.String())
	add(HeaderSeq, strconv.FormatUint(row.Ordinal, 10))
	if rec.Nth > 0 {
		add(HeaderNth, strconv.Itoa(int(rec.Nth)))
	}
	if c.Timeline > 0 {
		add(HeaderTimeline, strconv.Itoa(int(c.Timeline)))
	}
	if c.Began > 0 {
		add(HeaderBegan, c.Began.String())
	}
	add(HeaderSource, c.Source)
	add(HeaderGroup, group.String())
	if c.Parks && rec.Topic != "" && rec.Key != nil {
		add(HeaderParks, "true")
	}
	if rec.Partition != record.AutoPartition {
		add(HeaderPartition, strconv.Itoa(int(rec.Partition)))
	}
	if !rec.Row.Outside() {
		add(HeaderCommitTime, rec.Row.Txn.Time.UTC().Format(timestampNotation))
	}
	addOrigin(rec.Row, add)
	if !rec.Timestamp.IsZero() {
		add(HeaderTimestamp, rec.Timestamp.UTC().Format(timestampNotation))
	}
	if len(c.Missing) > 0 {
		add(HeaderMissing, strings.Join(c.Missing, ","))
		addBody(rec.Row, add)
	}
	return record.Record{Topic: topic, Key: rec.Key, Value: rec.Value, Headers: headers, Partition: record.AutoPartition, Nth: rec.Nth, Span: rec.Span, Row: rec.Row}
}

// addTable adds the headers of a Table.
func addTable(row *wal.Row, id record.IDColumn, add func(name, value string)) {
	add(HeaderTableOID, strconv.FormatUint(uint64(row.Relation.OID), 10))
	if id.Name != "" && !row.Relation.IsMessages() {
		add(HeaderIDColumn, id.Name)
		add(HeaderIDType, strconv.FormatUint(uint64(id.Type), 10))
	}
}

// addOrigin adds the headers of a row that is not a message.
func addOrigin(row *wal.Row, add func(name, value string)) {
	if row.Relation.IsMessages() {
		return
	}
	if row.LSN != 0 {
		add(HeaderRowLSN, row.LSN.String())
	}
	if xid := row.Txn.XID; xid != 0 {
		add(HeaderRowXID, strconv.FormatUint(uint64(xid), 10))
	}
	if row.Change != nil {
		add(HeaderChange, string(row.Change.Op))
	}
}

// short is the text of an error, fit for a header.
func short(err error) string {
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// Strip removes the next part of a letter that is itself refused: first the value, then the
// record's own headers except its id. It reports whether there was such a part. The key stays,
// because it decides the letter's partition.
//
// Nothing of a logical message is removed: it is in no table, so the letter would be without any
// copy of what is missing.
func Strip(letter *record.Record) bool {
	if letter.Row != nil && letter.Row.Relation.IsMessages() {
		return false
	}
	missing := ""
	if at := headerAt(letter.Headers, HeaderMissing); at >= 0 {
		missing = string(letter.Headers[at].Value)
	}
	parts := splitParts(missing)
	sized := headerAt(letter.Headers, HeaderValueSize) >= 0
	switch {
	case !sized && letter.Value != nil:
		headers := append([]record.Header(nil), letter.Headers...)
		hash := hashOf(letter.Value)
		headers = append(headers, record.Header{Key: HeaderValueSize, Value: strconv.AppendInt(nil, int64(len(letter.Value)), 10)},
			record.Header{Key: HeaderValueHash, Value: []byte(hash)})
		if id := schemaOf(letter.Value); id > 0 && !slices.Contains(parts, router.PartValue) {
			headers = append(headers, record.Header{Key: HeaderValueSchema, Value: strconv.AppendUint(nil, uint64(id), 10)})
		}
		letter.Value, letter.Headers = nil, withMissing(headers, parts, router.PartValue)
		return true
	case headerAt(letter.Headers, HeaderReason) > 1:
		var headers []record.Header
		for _, h := range letter.Headers {
			position := h.Key == record.HeaderLSN || h.Key == record.HeaderSeq || h.Key == record.HeaderCommitTime
			if strings.HasPrefix(h.Key, prefix) || position || h.Key == "id" && len(h.Value) <= maxMessage {
				headers = append(headers, h)
			}
		}
		if len(headers) == len(letter.Headers) {
			return false
		}
		letter.Headers = withMissing(headers, parts, router.PartHeaders)
		return true
	}
	return false
}

// schemaOf is the number of the schema that a value names as those of a registry do, or zero.
func schemaOf(value []byte) uint32 {
	id, err := encode.Framing(value)
	if err != nil || id > math.MaxInt32 {
		return 0
	}
	return id
}

func withMissing(headers []record.Header, parts []string, part string) []record.Header {
	for _, have := range parts {
		if have == part {
			return headers
		}
	}
	value := []byte(strings.Join(append(parts, part), ","))
	if at := headerAt(headers, HeaderMissing); at >= 0 {
		headers[at].Value = value
		return headers
	}
	return append(headers, record.Header{Key: HeaderMissing, Value: value})
}

func headerAt(headers []record.Header, name string) int {
	for i := range headers {
		if headers[i].Key == name {
			return i
		}
	}
	return -1
}

func splitParts(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
