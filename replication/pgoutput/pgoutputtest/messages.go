package pgoutputtest

import (
	"encoding/binary"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The builders make messages as PostgreSQL's proto.c writes them.

type Message []byte

func (m Message) U8(v byte) Message     { return append(m, v) }
func (m Message) U16(v int) Message     { return binary.BigEndian.AppendUint16(m, uint16(v)) }
func (m Message) U32(v uint32) Message  { return binary.BigEndian.AppendUint32(m, v) }
func (m Message) U64(v uint64) Message  { return binary.BigEndian.AppendUint64(m, v) }
func (m Message) Str(s string) Message  { return append(append(m, s...), 0) }
func (m Message) LSN(l wal.LSN) Message { return m.U64(uint64(l)) }
func (m Message) Text(kind byte, s string) Message {
	return append(m.U8(kind).U32(uint32(len(s))), s...)
}

const Micros = 817_473_600_000_000 // some time in 2025

func Begin(commit wal.LSN, xid uint32) Message {
	return Message{'B'}.LSN(commit).U64(Micros).U32(xid)
}

func Commit(at, end wal.LSN) Message {
	return Message{'C'}.U8(0).LSN(at).LSN(end).U64(Micros)
}

// Relation announces a table whose columns are all text.
func Relation(oid uint32, schema, name string, columns ...string) Message {
	m := Message{'R'}.U32(oid).Str(schema).Str(name).U8('d').U16(len(columns))
	for i, c := range columns {
		m = m.U8(byte(Bit(i == 0))).Str(c).U32(25).U32(0xffffffff)
	}
	return m
}

func Bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Tuple makes text columns; "\x00" stands for NULL.
func (m Message) Tuple(values ...string) Message {
	m = m.U16(len(values))
	for _, v := range values {
		if v == "\x00" {
			m = m.U8('n')
		} else {
			m = m.Text('t', v)
		}
	}
	return m
}

func Insert(oid uint32, values ...string) Message {
	return Message{'I'}.U32(oid).U8('N').Tuple(values...)
}

// InWAL and KeepAlive wrap for the replication protocol, frame for the copy.
func InWAL(start wal.LSN, sent int64, payload []byte) []byte {
	return append(Message{'w'}.LSN(start).LSN(start).U64(uint64(sent)), payload...)
}

func KeepAlive(end wal.LSN, ask bool) []byte {
	return Message{'k'}.LSN(end).U64(Micros).U8(byte(Bit(ask)))
}

func Frame(kind byte, body []byte) []byte {
	return append(Message{kind}.U32(uint32(len(body)+4)), body...)
}

const (
	OutboxOID = 16400
	OddOID    = 16500
	OtherOID  = 16600
)

var OutboxColumns = []string{"id", "payload"}
