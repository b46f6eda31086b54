package pgoutput

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Decoder turns the messages of pgoutput's protocol 1 into batches. It does no
// I/O, reads no clock, and is not safe for concurrent use.
//
//  1. Inserts into configured tables become rows, and so do the other changes of a
//     table that asked for them and logical messages with a configured prefix. Other
//     inserts are counted as Foreign, other updates, deletes and truncates as
//     OtherOps; other logical messages, and origins, are read and dropped.
//  2. Every message given to Decode is checked to its last byte. The first error is final,
//     names the LSN, and leaves the rows before it to be taken.
//  3. A position becomes a batch's Through only at a Commit, or at a keep-alive
//     outside a transaction, and never goes back.
type Decoder struct {
	maxBytes int // where a batch ends, if its slab is not full before

	tables   []wal.Table
	byName   map[wal.Table]int
	expected map[uint32]int // OID → table, as the catalog has it
	oids     []uint32       // table → OID, as the catalog has it; 0 is unknown

	wants    []wal.Wants // parallel to tables
	describe func(*wal.Relation) ([]wal.ColumnMeta, error)

	byPrefix map[string]*wal.Relation
	messages []*wal.Relation // of Options.Messages, in order

	walEnd wal.LSN // end of the WAL when the stream was opened; zero without a catalog

	types     map[uint32]string
	relations map[uint32]*relation
	latest    *relation // of the last change: most streams have one table

	open     bool // between Begin and Commit
	carried  bool // open, and a batch was taken since Begin
	txn      wal.Txn
	stamped  *wal.Txn // txn's copy for the rows of this batch; nil before the first
	ordinal  uint64
	atCommit *wal.Relation // the table that gets a row at each commit; nil: there is none, or the server has not announced it yet
	commit   wal.LSN       // of the last Begin
	micros   int64         // its commit time in the wire's microseconds
	through  wal.LSN       // highest ever given out

	batch *wal.Batch // nil when nothing was read since Take
	slab  *wal.Slab
	full  bool
	pool  *wal.SlabPool

	failed error
}

// relation is a Relation, and whether its rows may be delivered.
type relation struct {
	*wal.Relation
	drift *drift // why rows of it must not be delivered; nil when it is as expected
}

type drift struct {
	table         int // of the configuration, whose rows they were to be
	subject, hint string
	err           error
}

// Options say which rows are wanted, and where a batch ends.
type Options struct {
	// Tables are the configured tables. Relation.Table indexes this slice.
	Tables []wal.Table

	// Wants says, by table, what is delivered beyond the inserts. It may be shorter.
	Wants []wal.Wants

	// Messages are prefixes of logical messages. Relation.Table of the i-th is
	// len(Tables)+i.
	Messages []string

	// MaxRows and MaxBytes end a batch. Default 1024 and 512 KiB.
	MaxRows  int
	MaxBytes int

	// StartLSN is the position that was confirmed before: no batch repeats it.
	StartLSN wal.LSN

	// WALEnd is the end of the WAL when the stream was opened; zero without a catalog.
	WALEnd wal.LSN

	// Describe reads the metadata of a relation's columns, for tables that want it.
	Describe func(*wal.Relation) ([]wal.ColumnMeta, error)
}

// Defaults of Options.
const (
	DefaultMaxRows  = 1024
	DefaultMaxBytes = 512 << 10
)

func (o Options) withDefaults() Options {
	if o.MaxRows <= 0 {
		o.MaxRows = DefaultMaxRows
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	return o
}

// NewDecoder makes a decoder for one connection: the server announces every
// relation again on the next.
func NewDecoder(opt Options) *Decoder {
	opt = opt.withDefaults()
	d := &Decoder{
		maxBytes:  opt.MaxBytes,
		tables:    opt.Tables,
		wants:     make([]wal.Wants, len(opt.Tables)),
		describe:  opt.Describe,
		byName:    make(map[wal.Table]int, len(opt.Tables)),
		byPrefix:  make(map[string]*wal.Relation, len(opt.Messages)),
		expected:  make(map[uint32]int, len(opt.Tables)),
		oids:      make([]uint32, len(opt.Tables)),
		walEnd:    opt.WALEnd,
		types:     make(map[uint32]string),
		relations: make(map[uint32]*relation),
		through:   opt.StartLSN,
		pool:      wal.NewSlabPool(opt.MaxRows, opt.MaxBytes),
	}
	copy(d.wants, opt.Wants)
	for i, t := range opt.Tables {
		d.byName[t] = i
	}
	for i, prefix := range opt.Messages {
		r := wal.MessageRelation(prefix, len(opt.Tables)+i)
		d.byPrefix[prefix] = r
		d.messages = append(d.messages, r)
	}
	return d
}

// Expect sets which OID a configured table has in the catalog, so that a rename
// (which keeps the OID) or a replacement (which keeps the name) is noticed. The
// types' names are remembered for relations of the stream. Without Expect a table
// is known by its name alone. Call it before the first Decode.
func (d *Decoder) Expect(rel *wal.Relation) {
	d.expected[rel.OID] = rel.Table
	d.oids[rel.Table] = rel.OID
	for _, c := range rel.Columns {
		if c.TypeName != "" {
			d.types[c.Type] = c.TypeName
		}
	}
}

// Decode takes one message. It keeps nothing of msg. walStart is what the message
// came with; it may be zero.
func (d *Decoder) Decode(msg []byte, walStart wal.LSN) error {
	if d.failed != nil {
		return d.failed
	}
	d.current().Received += len(msg)
	d.failed = d.decode(msg, walStart)
	return d.failed
}

func (d *Decoder) decode(msg []byte, walStart wal.LSN) error {
	if len(msg) == 0 {
		return d.refuse(walStart, "decode message", "", errShort)
	}
	f := fields{rest: msg[1:]}
	switch msg[0] {
	case 'I':
		return d.insert(msg, walStart)
	case 'B':
		return d.refuse(walStart, "decode begin", "", d.begin(&f))
	case 'C':
		return d.refuse(walStart, "decode commit", "", d.commitTxn(&f))
	case 'R':
		return d.refuse(walStart, "decode relation", "", d.relate(&f))
	case 'Y':
		oid, _, name := f.uint32(), f.string(), f.string()
		if f.done() == nil {
			d.types[oid] = name
		}
		return d.refuse(walStart, "decode type", "", f.err)
	case 'O':
		_, _ = f.int64(), f.string()
		return d.refuse(walStart, "decode origin", "", d.inside(f.done()))
	case 'U', 'D':
		return d.refuse(walStart, "decode update or delete", "", d.inside(d.change(msg[0], &f, walStart)))
	case 'T':
		return d.refuse(walStart, "decode truncate", "", d.inside(d.truncate(&f, walStart)))
	case 'M':
		return d.refuse(walStart, "decode logical message", "", d.message(&f, walStart))
	}
	return d.refuse(walStart, "decode message", "", fmt.Errorf("type %q is not of protocol 1", msg[0]))
}

// refuse makes err, if any, the error that ends the stream.
func (d *Decoder) refuse(at wal.LSN, op, subject string, err error) error {
	if err == nil {
		return nil
	}
	if _, own := errors.AsType[*fault.Error](err); own {
		return err
	}
	return &fault.Error{
		Kind: fault.KindProtocol, Op: op, Subject: subject, LSN: d.position(at), Err: err,
		Hint: "nothing at or after this position was confirmed; report it with the server's version",
	}
}

// position is at, or for a message that carries none, the nearest known one.
func (d *Decoder) position(at wal.LSN) wal.LSN {
	switch {
	case at != 0:
		return at
	case d.open:
		return d.txn.Commit
	}
	return d.through
}

func (d *Decoder) inside(err error) error {
	if err == nil && !d.open {
		return errors.New("change outside a transaction")
	}
	return err
}

func (d *Decoder) begin(f *fields) error {
	commit, at, xid := f.lsn(), f.int64(), f.uint32()
	if err := f.done(); err != nil {
		return err
	}
	if d.open {
		return fmt.Errorf("begin of transaction %d inside transaction %d", xid, d.txn.XID)
	}
	if commit <= d.commit {
		return fmt.Errorf("transaction %d commits at %s, not after the one before at %s", xid, commit, d.commit)
	}
	d.open, d.ordinal, d.commit, d.micros = true, 0, commit, at
	d.txn = wal.Txn{XID: xid, Commit: commit, Time: wireTime(at)}
	return nil
}

func (d *Decoder) commitTxn(f *fields) error {
	flags, commit, end, _ := f.byte(), f.lsn(), f.lsn(), f.int64()
	if err := f.done(); err != nil {
		return err
	}
	switch {
	case !d.open:
		return errors.New("commit outside a transaction")
	case flags != 0:
		return fmt.Errorf("flags %#x", flags)
	case commit != d.txn.Commit:
		return fmt.Errorf("commit at %s of a transaction that began for %s", commit, d.txn.Commit)
	case end <= commit:
		return fmt.Errorf("commit at %s ends at %s", commit, end)
	}
	d.commitRow(commit)
	b := d.current()
	b.Transactions++
	if end > d.through {
		d.through = end
		b.Through, b.ThroughTime = end, d.txn.Time
	}
	if d.stamped != nil {
		d.stamped.End = end // the batch is still ours
	}
	if d.carried {
		b.Closes = end
	}
	d.open, d.carried, d.stamped = false, false, nil
	return nil
}

// CommitsAt is where the transaction commits that a message begins, or where a message outside
// any transaction stands; zero for every other message.
func CommitsAt(msg []byte) wal.LSN {
	switch {
	case len(msg) >= 9 && msg[0] == 'B':
		return wal.LSN(binary.BigEndian.Uint64(msg[1:]))
	case len(msg) >= 10 && msg[0] == 'M' && msg[1]&1 == 0:
		return wal.LSN(binary.BigEndian.Uint64(msg[2:])) - 1 // as wal.Row.Place
	}
	return 0
}

// Commit is where the transaction in hand commits; it means nothing outside one.
func (d *Decoder) Commit() wal.LSN { return d.txn.Commit }

// CommitMicros is the commit time of the last transaction that began, in microseconds of
// the wire's clock; zero before the first.
func (d *Decoder) CommitMicros() int64 { return d.micros }

// Through is the highest position that a batch was given.
func (d *Decoder) Through() wal.LSN { return d.through }

// Messages are the relations of the configured prefixes, in order.
func (d *Decoder) Messages() []*wal.Relation { return d.messages }

// Idle takes a keep-alive's position: everything before it was sent or is of no
// interest. Inside a transaction it says nothing about that transaction's rows,
// so it is dropped; the commit brings a later one.
func (d *Decoder) Idle(serverEnd wal.LSN) {
	if d.open || serverEnd <= d.through || d.failed != nil {
		return
	}
	d.through = serverEnd
	b := d.current()
	b.Through = serverEnd
	b.ThroughTime = wal.Txn{}.Time
}

const insertHead = 1 + 4 + 1 + 2 // I, relation, N, count

func (d *Decoder) insert(msg []byte, walStart wal.LSN) error {
	r, err := d.insertInto(msg, walStart)
	if err != nil {
		return err
	}
	if r.Table >= 0 {
		err = d.row(r, msg[insertHead:], walStart)
	} else {
		err = d.foreign(msg[insertHead-2:], len(r.Columns))
	}
	if err != nil {
		return d.refuse(walStart, "decode insert", r.Qualified(), err)
	}
	return nil
}

// insertInto is the relation of an insert, of which no more than the head is looked at.
func (d *Decoder) insertInto(msg []byte, walStart wal.LSN) (*relation, error) {
	if len(msg) < insertHead {
		return nil, d.refuse(walStart, "decode insert", "", errShort)
	}
	if msg[5] != 'N' {
		return nil, d.refuse(walStart, "decode insert", "", fmt.Errorf("tuple kind %q", msg[5]))
	}
	r, err := d.lookup(binary.BigEndian.Uint32(msg[1:]))
	if err = d.inside(err); err != nil {
		return nil, d.refuse(walStart, "decode insert", "", err)
	}
	if n := int(binary.BigEndian.Uint16(msg[6:])); n != len(r.Columns) {
		err := fmt.Errorf("row has %d columns, its relation %d", n, len(r.Columns))
		return nil, d.refuse(walStart, "decode insert", r.Qualified(), err)
	}
	if r.drift != nil {
		return nil, d.drifted(r, "decode insert", walStart)
	}
	return r, nil
}

// wanted is what the configured table asks for that a relation is, or was to be.
func (d *Decoder) wanted(r *relation) wal.Wants {
	switch {
	case r.drift != nil:
		return d.wants[r.drift.table]
	case r.Table >= 0:
		return d.wants[r.Table]
	}
	return wal.Wants{}
}

func (d *Decoder) drifted(r *relation, op string, walStart wal.LSN) error {
	return &fault.Error{
		Kind: fault.KindDrift, Reason: fault.ReasonTableChanged, Op: op, Subject: r.drift.subject,
		LSN: d.position(walStart), Err: r.drift.err, Hint: r.drift.hint,
	}
}

// row copies data once and appends the row. On error the batch is unchanged.
func (d *Decoder) row(r *relation, data []byte, walStart wal.LSN) error {
	s := d.room(d.current())
	values, own := s.Columns(len(r.Columns)), s.Bytes(len(data))
	copy(own, data)
	if err := carve(own, values); err != nil {
		return err
	}
	d.addRow(r.Relation, own, values, walStart)
	return nil
}

// NumberingRules is raised with every change of how the rows of a transaction are numbered (addRow,
// passForeign, message): a checkpoint inside a transaction names a row by its number.
const NumberingRules = 1

// addRow appends a row whose bytes and values are the slab's.
func (d *Decoder) addRow(r *wal.Relation, own []byte, values []wal.Value, walStart wal.LSN) *wal.Row {
	b, s := d.batch, d.slab
	b.Bytes += s.Claim(own, values)
	if d.stamped == nil {
		d.stamped = s.Stamp(d.txn)
		b.Bytes += wal.TxnSize
	}
	d.ordinal++
	row := s.Add(wal.Row{
		Txn: d.stamped, LSN: walStart, Ordinal: d.ordinal, Relation: r, Values: values,
	})
	d.full = b.Bytes >= d.maxBytes || s.Full()
	return row
}

// message makes a row of a logical message with a configured prefix; its body is
// the only column. A message that is not transactional stands where it was written, on
// its own, whether or not its writer commits: it counts as a transaction of one
// row, whose end the next position covers.
func (d *Decoder) message(f *fields, walStart wal.LSN) error {
	flags, at, prefix := f.byte(), f.lsn(), f.string()
	body := f.take(int(int32(f.uint32())))
	if err := f.done(); err != nil {
		return err
	}
	if err := d.placed(flags); err != nil {
		return err
	}
	transactional := d.open
	r := d.byPrefix[prefix]
	if r == nil {
		if r = d.byPrefix[wal.AnyPrefix]; r == nil {
			return nil
		}
	}
	if !transactional {
		d.txn, d.stamped, d.ordinal = wal.Txn{Commit: at}, nil, 0
	}
	s := d.room(d.current())
	values, own := s.Columns(len(r.Columns)), s.Bytes(len(body))
	copy(own, body)
	values[0] = wal.Value{Kind: wal.Text, Data: own}
	if len(values) > 1 {
		values[1] = wal.Value{Kind: wal.Text, Data: []byte(prefix)}
	}
	d.addRow(r, own, values, walStart)
	if !transactional {
		d.stamped = nil
	}
	return nil
}

// placed checks that a logical message is where its flags have it.
func (d *Decoder) placed(flags byte) error {
	if transactional := flags&1 != 0; transactional != d.open {
		return fmt.Errorf("transactional %t, inside a transaction %t", transactional, d.open)
	}
	return nil
}

func (d *Decoder) foreign(tuple []byte, columns int) error {
	f := fields{rest: tuple}
	f.tuple(columns)
	if err := f.done(); err != nil {
		return err
	}
	d.passForeign()
	return nil
}

// passForeign counts a row of a table that is not delivered: its ordinal is taken.
func (d *Decoder) passForeign() {
	d.ordinal++
	d.current().Foreign++
}

func (d *Decoder) lookup(oid uint32) (*relation, error) {
	if d.latest != nil && d.latest.OID == oid {
		return d.latest, nil
	}
	r := d.relations[oid]
	if r == nil {
		return nil, fmt.Errorf("relation %d was never announced", oid)
	}
	d.latest = r
	return r, nil
}
