package debezium

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/javaregex"
	"github.com/cdc-relay/cdc-relay/debezium/transform"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Records that no EventRouter makes: rows that pass it, logical messages,
// heartbeats, ends of transactions.

// sourceVersion is the Debezium whose records these are.
const sourceVersion = "3.6.1.Final"

func member(name string, typ connect.Type, optional bool) connect.Field {
	return connect.Field{Name: name, Schema: &connect.Schema{Type: typ, Optional: optional}}
}

func namedStruct(name string, version int32, optional bool, fields ...connect.Field) *connect.Schema {
	s := &connect.Schema{Type: connect.Struct, Name: name, Optional: optional, Fields: fields}
	if version > 0 {
		s.Version = connect.VersionOf(version)
	}
	return s
}

var snapshotSchema = &connect.Schema{
	Type: connect.String, Optional: true, Name: "io.debezium.data.Enum", Version: connect.VersionOf(1), Default: defaultText("false"),
	Parameters: []connect.Parameter{{Name: "allowed", Value: "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"}},
}

func defaultText(s string) *connect.Value {
	v := connect.StringValue(s)
	return &v
}

var sourceSchema = namedStruct("io.debezium.connector.postgresql.Source", 1, false,
	member("version", connect.String, false), member("connector", connect.String, false), member("name", connect.String, false),
	member("ts_ms", connect.Int64, false), connect.Field{Name: "snapshot", Schema: snapshotSchema}, member("db", connect.String, false),
	member("sequence", connect.String, true), member("ts_us", connect.Int64, true), member("ts_ns", connect.Int64, true),
	member("schema", connect.String, false), member("table", connect.String, false), member("txId", connect.Int64, true),
	member("lsn", connect.Int64, true), member("xmin", connect.Int64, true), member("origin", connect.String, true), member("origin_lsn", connect.Int64, true),
)

var blockSchema = namedStruct("event.block", 1, true,
	member("id", connect.String, false), member("total_order", connect.Int64, false), member("data_collection_order", connect.Int64, false))

func text(s string) connect.Value { return connect.StringValue(s) }

// sourceBlock says where a change comes from.
func (d *connector) sourceBlock(row *wal.Row, schema, table string) connect.Value {
	at, xid := time.Time{}, uint32(0)
	if row.Txn != nil {
		at, xid = row.Txn.Time, row.Txn.XID
	}
	txID := connect.Null
	if xid != 0 {
		txID = connect.Int64Value(int64(xid))
	}
	v, err := connect.NewStruct(sourceSchema, []connect.Value{
		text(sourceVersion), text("postgresql"), text(d.prefix), connect.Int64Value(unixMillis(at)), text("false"), text(d.database),
		text(fmt.Sprintf(`[null,"%d"]`, uint64(row.LSN))), connect.Int64Value(unixMicros(at)), connect.Int64Value(unixMicros(at) * 1000),
		text(schema), text(table), txID, connect.Int64Value(int64(row.LSN)), connect.Null, connect.Null, connect.Null,
	})
	if err != nil {
		return connect.Null // the values are ours and fit
	}
	return v
}

func unixMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func unixMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// RowSchema is that of the table's rows.
func (p *plan) RowSchema() *connect.Schema { return p.rowSchema }

// Envelope is the value that Debezium gives a change of a table.
func (p *plan) Envelope(c *transform.Change) (transform.Field, error) {
	d := p.d
	if p.envelope == nil {
		p.envelope = namedStruct(d.modes.SchemaNames.SchemaName(p.topic+".Envelope"), 2, false,
			connect.Field{Name: "before", Schema: p.rowSchema}, connect.Field{Name: "after", Schema: p.rowSchema},
			connect.Field{Name: "source", Schema: sourceSchema}, connect.Field{Name: "transaction", Schema: blockSchema},
			member("op", connect.String, false), member("ts_ms", connect.Int64, true), member("ts_us", connect.Int64, true), member("ts_ns", connect.Int64, true))
	}
	before, after := connect.Null, connect.Null
	if ch := c.Row.Change; ch != nil && ch.Old != nil && c.Op != 'c' {
		old := &transform.Change{Shape: c.Shape, Table: p, After: func(i int) (connect.Value, error) { return p.oldValue(ch.Old, i) }}
		v, err := old.RowStruct()
		if err != nil {
			return transform.Field{}, err
		}
		before = v.Value
	}
	if c.After != nil {
		v, err := c.RowStruct()
		if err != nil {
			return transform.Field{}, err
		}
		after = v.Value
	}
	at := time.Time{}
	if c.Row.Txn != nil {
		at = c.Row.Txn.Time
	}
	return transform.StructOf(p.envelope, before, after, d.sourceBlock(c.Row, p.rel.Namespace, p.rel.Name), connect.Null,
		text(string(c.Op)), connect.Int64Value(unixMillis(at)), connect.Int64Value(unixMicros(at)), connect.Int64Value(unixMicros(at)*1000))
}

// oldValue is a column of the row before. The log leaves out what is not in the
// replica identity; a required column then has the zero of its type.
func (p *plan) oldValue(old []wal.Value, i int) (connect.Value, error) {
	v, err := p.value(old, i)
	if err != nil || !v.IsNull() || p.shape.Fields[i].Schema.Optional {
		return v, err
	}
	switch s := p.shape.Fields[i].Schema; s.Type {
	case connect.String:
		return text(""), nil
	case connect.Int16:
		return connect.Int16Value(0), nil
	case connect.Int32:
		return connect.Int32Value(0), nil
	case connect.Int64:
		return connect.Int64Value(0), nil
	case connect.Float32:
		return connect.Float32Value(0), nil
	case connect.Float64:
		return connect.Float64Value(0), nil
	case connect.Boolean:
		return connect.BooleanValue(false), nil
	default:
		return v, nil
	}
}

// message sends a logical message on its way.
func (p *plan) message(b *record.Buffer, row *wal.Row) error {
	d := p.d
	prefix := p.rel.Name
	if len(row.Values) > 1 {
		prefix = string(row.Values[1].Data)
	}
	if d.messagesIn != nil && !javaregex.MatchesAny(d.messagesIn, prefix) || d.messagesOut != nil && javaregex.MatchesAny(d.messagesOut, prefix) {
		return nil
	}
	content := row.Values[0].Data
	r := &d.scratch
	r.Reset()
	r.Topic = p.topic
	key, err := transform.StructOf(messageKeySchema, text(prefix))
	if err != nil {
		return err
	}
	r.Key = key
	at := time.Time{}
	if row.Txn != nil {
		at = row.Txn.Time
	}
	body, err := transform.StructOf(messageBlockSchema, text(prefix), connect.BufferValue(content))
	if err != nil {
		return err
	}
	r.Value, err = transform.StructOf(messageSchema, text("m"), connect.Int64Value(unixMillis(at)), d.sourceBlock(row, "", ""), connect.Null, body.Value)
	if err != nil {
		return err
	}
	d.chain.Message(row, content, messageSchema)
	keep, err := d.chain.Pass(r)
	if err != nil || !keep {
		return err
	}
	return d.emit(b, r, row)
}

var (
	messageKeySchema   = namedStruct("io.debezium.connector.postgresql.MessageKey", 1, false, member("prefix", connect.String, true))
	messageBlockSchema = namedStruct("io.debezium.connector.postgresql.Message", 1, false,
		member("prefix", connect.String, true), member("content", connect.Bytes, true))
	messageSchema = namedStruct("io.debezium.connector.postgresql.MessageValue", 1, false,
		member("op", connect.String, false), member("ts_ms", connect.Int64, true), connect.Field{Name: "source", Schema: sourceSchema},
		connect.Field{Name: "transaction", Schema: blockSchema}, connect.Field{Name: "message", Schema: messageBlockSchema})
)

var (
	heartbeatKeySchema = namedStruct("io.debezium.connector.common.ServerNameKey", 1, false, member("serverName", connect.String, false))
	heartbeatSchema    = namedStruct("io.debezium.connector.common.Heartbeat", 1, false, member("ts_ms", connect.Int64, false))
)

// Heartbeat is how often Debezium writes a heartbeat, and where to.
func (d *connector) Heartbeat() (every time.Duration, topic string) {
	return d.heartbeat, d.heartbeatTopic
}

// Counts reports whether provide.transaction.metadata is on, which counts the rows of a
// transaction.
func (d *connector) Counts() bool { return d.transactions != nil }

// Beat appends a heartbeat.
func (d *connector) Beat(b *record.Buffer, now time.Time) error {
	r := &d.scratch
	r.Reset()
	r.Topic, r.HasPartition = d.heartbeatTopic, true
	var err error
	if r.Key, err = transform.StructOf(heartbeatKeySchema, text(d.prefix)); err != nil {
		return err
	}
	if r.Value, err = transform.StructOf(heartbeatSchema, connect.Int64Value(now.UnixMilli())); err != nil {
		return err
	}
	keep, err := d.chain.Pass(r)
	if err == nil && keep {
		err = d.emit(b, r, nil)
	}
	if err != nil {
		b.DropHeaders()
	}
	return err
}

// checkHeartbeat tries one, so that what no converter can write is refused at load.
func (d *connector) checkHeartbeat() error {
	if d.heartbeat == 0 {
		return nil
	}
	return d.Beat(new(record.Buffer), time.UnixMilli(0))
}

// transactions is provide.transaction.metadata: what was sent of the transaction
// in hand. A nil one does nothing.
type transactions struct {
	open    bool
	txn     uint64 // its commit position
	ordinal uint64 // of the last row that was counted
	tables  []string
	counts  []int64
}

var (
	transactionKeySchema = namedStruct("io.debezium.connector.common.TransactionMetadataKey", 1, false, member("id", connect.String, false))
	collectionSchema     = namedStruct("event.collection", 1, false, member("data_collection", connect.String, false), member("event_count", connect.Int64, false))
	transactionSchema    = namedStruct("io.debezium.connector.common.TransactionMetadataValue", 1, false,
		member("status", connect.String, false), member("id", connect.String, false), member("event_count", connect.Int64, true),
		connect.Field{Name: "data_collections", Schema: &connect.Schema{Type: connect.Array, Optional: true, Elem: collectionSchema}},
		member("ts_ms", connect.Int64, false))
)

// begin announces the transaction of its first row.
func (t *transactions) begin(b *record.Buffer, d *connector, row *wal.Row) error {
	if t == nil || row.Txn == nil {
		return nil
	}
	commit := uint64(row.Txn.Commit)
	if t.open && t.txn == commit && (row.Ordinal > t.ordinal || t.uncount(row)) {
		return nil
	}
	*t = transactions{txn: commit}
	if err := t.send(b, d, row, "BEGIN"); err != nil {
		return err
	}
	return nil
}

// count takes a row that was sent into account.
func (t *transactions) count(row *wal.Row) {
	if t == nil || row.Txn == nil {
		return
	}
	t.open, t.ordinal = true, row.Ordinal
	name := row.Relation.Qualified()
	for i := range t.tables {
		if t.tables[i] == name {
			t.counts[i]++
			return
		}
	}
	t.tables, t.counts = append(t.tables, name), append(t.counts, 1)
}

// uncount takes back the row that was counted last, if this is it: its records were dropped, and it is
// routed again. It leaves the first row of a transaction, whose records begin with BEGIN.
func (t *transactions) uncount(row *wal.Row) bool {
	i := slices.Index(t.tables, row.Relation.Qualified())
	if row.Ordinal != t.ordinal || i < 0 || len(t.tables) == 1 && t.counts[0] == 1 {
		return false
	}
	if t.counts[i]--; t.counts[i] == 0 {
		t.tables, t.counts = t.tables[:i], t.counts[:i] // the row brought the table in
	}
	t.ordinal--
	return true
}

// end closes it.
func (t *transactions) end(b *record.Buffer, d *connector, row *wal.Row) error {
	if t == nil || !t.open || row.Txn == nil || t.txn != uint64(row.Txn.Commit) {
		return nil
	}
	if err := t.send(b, d, row, "END"); err != nil {
		return err
	}
	t.open = false
	return nil
}

func (t *transactions) send(b *record.Buffer, d *connector, row *wal.Row, status string) error {
	r := &d.scratch
	r.Reset()
	r.Topic = d.prefix + ".transaction"
	id := strconv.FormatUint(uint64(row.Txn.XID), 10) + ":" + strconv.FormatUint(uint64(row.LSN), 10)
	var err error
	if r.Key, err = transform.StructOf(transactionKeySchema, text(id)); err != nil {
		return err
	}
	count, collections := connect.Null, connect.Null
	if status == "END" {
		var total int64
		var items []connect.Value
		for i, name := range t.tables {
			total += t.counts[i]
			v, err := transform.StructOf(collectionSchema, text(name), connect.Int64Value(t.counts[i]))
			if err != nil {
				return err
			}
			items = append(items, v.Value)
		}
		count, collections = connect.Int64Value(total), connect.ArrayValue(items)
	}
	r.Value, err = transform.StructOf(transactionSchema, text(status), text(id), count, collections, connect.Int64Value(unixMillis(row.Txn.Time)))
	if err != nil {
		return err
	}
	keep, err := d.chain.Pass(r)
	if err != nil || !keep {
		return err
	}
	return d.emit(b, r, row)
}
