package replication

import (
	"encoding/binary"

	"github.com/jackc/pglogrepl"
)

// The builders make messages as PostgreSQL's proto.c writes them.

type msg []byte

func (m msg) u8(v byte) msg                { return append(m, v) }
func (m msg) u16(v int) msg                { return binary.BigEndian.AppendUint16(m, uint16(v)) }
func (m msg) u32(v uint32) msg             { return binary.BigEndian.AppendUint32(m, v) }
func (m msg) u64(v uint64) msg             { return binary.BigEndian.AppendUint64(m, v) }
func (m msg) str(s string) msg             { return append(append(m, s...), 0) }
func (m msg) lsn(l pglogrepl.LSN) msg      { return m.u64(uint64(l)) }
func (m msg) text(kind byte, s string) msg { return append(m.u8(kind).u32(uint32(len(s))), s...) }

const testMicros = 817_473_600_000_000 // some time in 2025

func begin(commit pglogrepl.LSN, xid uint32) msg {
	return msg{'B'}.lsn(commit).u64(testMicros).u32(xid)
}

func commit(at, end pglogrepl.LSN) msg {
	return msg{'C'}.u8(0).lsn(at).lsn(end).u64(testMicros)
}

// relationMsg announces a table whose columns are all text.
func relationMsg(oid uint32, schema, name string, columns ...string) msg {
	m := msg{'R'}.u32(oid).str(schema).str(name).u8('d').u16(len(columns))
	for i, c := range columns {
		m = m.u8(byte(b2i(i == 0))).str(c).u32(25).u32(0xffffffff)
	}
	return m
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tuple makes text columns; "\x00" stands for NULL.
func (m msg) tuple(values ...string) msg {
	m = m.u16(len(values))
	for _, v := range values {
		if v == "\x00" {
			m = m.u8('n')
		} else {
			m = m.text('t', v)
		}
	}
	return m
}

func insert(oid uint32, values ...string) msg {
	return msg{'I'}.u32(oid).u8('N').tuple(values...)
}

// inWAL and keepAliveMsg wrap for the replication protocol, frame for the copy.
func inWAL(start pglogrepl.LSN, sent int64, payload []byte) []byte {
	return append(msg{'w'}.lsn(start).lsn(start).u64(uint64(sent)), payload...)
}

func keepAliveMsg(end pglogrepl.LSN, ask bool) []byte {
	return msg{'k'}.lsn(end).u64(testMicros).u8(byte(b2i(ask)))
}

func frame(kind byte, body []byte) []byte {
	return append(msg{kind}.u32(uint32(len(body)+4)), body...)
}

const (
	outboxOID = 16400
	oddOID    = 16500
	otherOID  = 16600
)

var outboxColumns = []string{"id", "payload"}
