package deadletter

import (
	"slices"
	"strconv"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// A logical message is in no table, so a letter that lacks a part of its record has the message's
// body as its value. These headers say so, and hold what else the message is routed with.
const (
	HeaderBody    = prefix + "message-body" // prefix of the message; the value is its whole body
	HeaderBodyLSN = prefix + "message-lsn"  // position of the message itself
	HeaderBodyXID = prefix + "message-xid"  // of its transaction; absent outside any
)

// Body is what a letter has of a logical message besides the body, which is its value.
type Body struct {
	Prefix string
	LSN    wal.LSN
	XID    uint32
}

// KeepBody puts the whole body of a logical message that the router refuses into what was salvaged
// of its record, in place of the value, and returns what is missing then. Nothing else has what
// the message said.
func KeepBody(rec *record.Record, missing []string) []string {
	if !rec.Row.Relation.IsMessages() {
		return missing
	}
	rec.Value = rec.Row.Body()
	if slices.Contains(missing, router.PartValue) {
		return missing
	}
	return append(missing, router.PartValue)
}

// addBody adds the headers of a row that is a logical message.
func addBody(row *wal.Row, add func(name, value string)) {
	if !row.Relation.IsMessages() {
		return
	}
	add(HeaderBody, row.Prefix())
	add(HeaderBodyLSN, row.LSN.String())
	if !row.Outside() {
		add(HeaderBodyXID, strconv.FormatUint(uint64(row.Txn.XID), 10))
	}
}

func (p *parser) body() *Body {
	of, ok := p.values[HeaderBody]
	if !ok {
		return nil
	}
	b := &Body{Prefix: of}
	var err error
	if b.LSN, err = wal.ParseLSN(p.values[HeaderBodyLSN]); err != nil {
		p.fail(HeaderBodyLSN)
	}
	if n, ok := p.count(HeaderBodyXID, 33); ok {
		b.XID = uint32(n)
	}
	return b
}

// MessageRow is the row of a letter whose value is the body of a logical message, of one of the shapes
// of wal.MessageRelation.
func (l *Letter) MessageRow(rel *wal.Relation) *wal.Row {
	row := wal.NewMessage(rel, l.Body.Prefix, l.Record.Value)
	row.LSN, row.Ordinal = l.Body.LSN, l.Ordinal
	row.Txn.XID, row.Txn.Commit, row.Txn.Time = l.Body.XID, l.Commit, l.Committed
	if row.Outside() {
		row.Txn.Commit++ // see wal.Row.Place
	}
	return row
}
