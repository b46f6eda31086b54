package match

import "encoding/binary"

// Row is a row of the table, with the record that the mapping makes of it.
type Row struct {
	ID ID
	Content
	Topic  uint16 // number of the topic
	Table  uint8  // number of the table
	Number uint64 // of the row in its table's order, from 1 on
	Rank   uint64 // number of the first row with the same order values: the order of rows with one rank is not known
	XID    uint32 // of the transaction that wrote the version
	At     uint32 // time of the row in Unix seconds; zero: it has none
}

// Record is a record of a topic.
type Record struct {
	ID ID
	Content
	Topic     uint16
	Partition int32
	Offset    int64
	LSN       uint64 // of the position headers; zero: it has none
	Seq       uint32
	Resent    bool // somebody sent it again on purpose
}

// seen is what was found of a row, for the order within its key.
type seen struct {
	Row
	found     bool // there is a record
	faulty    bool // it is counted already, and not as proven
	resent    bool // the first record was sent again on purpose
	partition int32
	offset    int64
	lsn       uint64
	seq       uint32
}

const (
	rowSize    = 16 + contentSize + 2 + 1 + 5 + 5 + 4 + 4
	recordSize = 16 + contentSize + 2 + 4 + 6 + 1 + placeSize
	seenSize   = rowSize + 1 + 4 + 6 + placeSize

	contentSize = 8 + 8 + 2 + 2 + 1
	placeSize   = 8 + 4
)

func flags(set ...bool) (b byte) {
	for i, is := range set {
		if is {
			b |= 1 << i
		}
	}
	return b
}

func (c *Content) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, c.Key)
	b = binary.BigEndian.AppendUint64(b, c.Rest)
	b = binary.BigEndian.AppendUint16(b, c.Value)
	b = binary.BigEndian.AppendUint16(b, c.Headers)
	return append(b, flags(c.NoKey, c.NoValue))
}

func (c *Content) parse(b []byte) []byte {
	c.Key, c.Rest = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	c.Value, c.Headers = binary.BigEndian.Uint16(b[16:]), binary.BigEndian.Uint16(b[18:])
	c.NoKey, c.NoValue = b[20]&1 != 0, b[20]&2 != 0
	return b[contentSize:]
}

func (r *Row) append(b []byte) []byte {
	b = r.Content.append(append(b, r.ID[:]...))
	b = append(binary.BigEndian.AppendUint16(b, r.Topic), r.Table)
	for _, n := range [...]uint64{r.Number, r.Rank} {
		b = binary.BigEndian.AppendUint32(append(b, byte(n>>32)), uint32(n))
	}
	b = binary.BigEndian.AppendUint32(b, r.XID)
	return binary.BigEndian.AppendUint32(b, r.At)
}

func (r *Row) parse(b []byte) []byte {
	b = b[copy(r.ID[:], b):]
	b = r.Content.parse(b)
	r.Topic, r.Table = binary.BigEndian.Uint16(b), b[2]
	r.Number = uint64(b[3])<<32 | uint64(binary.BigEndian.Uint32(b[4:]))
	r.Rank = uint64(b[8])<<32 | uint64(binary.BigEndian.Uint32(b[9:]))
	r.XID, r.At = binary.BigEndian.Uint32(b[13:]), binary.BigEndian.Uint32(b[17:])
	return b[21:]
}

func appendPlace(b []byte, partition int32, offset int64, lsn uint64, seq uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(partition))
	b = binary.BigEndian.AppendUint16(b, uint16(offset>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(offset))
	b = binary.BigEndian.AppendUint64(b, lsn)
	return binary.BigEndian.AppendUint32(b, seq)
}

func parsePlace(b []byte) (partition int32, offset int64, lsn uint64, seq uint32) {
	partition = int32(binary.BigEndian.Uint32(b))
	offset = int64(binary.BigEndian.Uint16(b[4:]))<<32 | int64(binary.BigEndian.Uint32(b[6:]))
	return partition, offset, binary.BigEndian.Uint64(b[10:]), binary.BigEndian.Uint32(b[18:])
}

func (r *Record) append(b []byte) []byte {
	b = r.Content.append(append(b, r.ID[:]...))
	b = append(binary.BigEndian.AppendUint16(b, r.Topic), flags(r.Resent))
	return appendPlace(b, r.Partition, r.Offset, r.LSN, r.Seq)
}

func (r *Record) parse(b []byte) {
	b = b[copy(r.ID[:], b):]
	b = r.Content.parse(b)
	r.Topic, r.Resent = binary.BigEndian.Uint16(b), b[2]&1 != 0
	r.Partition, r.Offset, r.LSN, r.Seq = parsePlace(b[3:])
}

func (s *seen) append(b []byte) []byte {
	b = append(s.Row.append(b), flags(s.found, s.faulty, s.resent))
	return appendPlace(b, s.partition, s.offset, s.lsn, s.seq)
}

func (s *seen) parse(b []byte) {
	b = s.Row.parse(b)
	s.found, s.faulty, s.resent = b[0]&1 != 0, b[0]&2 != 0, b[0]&4 != 0
	s.partition, s.offset, s.lsn, s.seq = parsePlace(b[1:])
}
