package pgoutput

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

var (
	errShort    = errors.New("message ends early")
	errTrailing = errors.New("message has bytes after its end")
)

// PostgresEpoch is 2000-01-01 in Unix microseconds, the zero of the wire's clock.
const PostgresEpoch = 946684800 * 1e6

func wireTime(micros int64) time.Time {
	return time.UnixMicro(micros + PostgresEpoch).UTC()
}

// fields reads a message's big-endian fields. The first failure sticks, so a
// caller checks once, with done.
type fields struct {
	rest []byte
	err  error
}

func (f *fields) take(n int) []byte {
	if f.err != nil || n < 0 || n > len(f.rest) {
		f.fail(errShort)
		return nil
	}
	head := f.rest[:n]
	f.rest = f.rest[n:]
	return head
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *fields) byte() byte {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) uint16() int {
	if b := f.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (f *fields) uint32() uint32 {
	if b := f.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (f *fields) int64() int64 {
	if b := f.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (f *fields) lsn() wal.LSN { return wal.LSN(f.int64()) }

func (f *fields) string() string {
	end := bytes.IndexByte(f.rest, 0)
	if f.err != nil || end < 0 {
		f.fail(errShort)
		return ""
	}
	return string(f.take(end + 1)[:end])
}

// tuple reads past a TupleData of a change that is not delivered.
func (f *fields) tuple(columns int) {
	n := f.uint16()
	if n != columns {
		f.fail(fmt.Errorf("row has %d columns, its relation %d", n, columns))
	}
	for range n {
		if f.err != nil {
			return
		}
		switch kind := f.byte(); kind {
		case 'n', 'u':
		case 't', 'b':
			f.take(int(int32(f.uint32())))
		default:
			f.fail(fmt.Errorf("column kind %q", kind))
		}
	}
}

func (f *fields) done() error {
	if f.err == nil && len(f.rest) > 0 {
		f.err = errTrailing
	}
	return f.err
}

// carve fills values with the columns of data, which is an insert's TupleData
// after its count. The values alias data.
func carve(data []byte, values []wal.Value) error {
	at := 0
	for i := range values {
		if at >= len(data) {
			return errShort
		}
		kind := wal.Kind(data[at])
		at++
		switch kind {
		case wal.Null:
			values[i] = wal.Value{Kind: wal.Null}
			continue
		case wal.Text, wal.Binary:
		case 'u':
			return fmt.Errorf("column %d of an insert is an unchanged TOAST value", i+1)
		default:
			return fmt.Errorf("column kind %q", byte(kind))
		}
		if len(data)-at < 4 {
			return errShort
		}
		n := int(int32(binary.BigEndian.Uint32(data[at:])))
		at += 4
		if n < 0 || n > len(data)-at {
			return errShort
		}
		values[i] = wal.Value{Kind: kind, Data: data[at : at+n : at+n]}
		at += n
	}
	if at != len(data) {
		return errTrailing
	}
	return nil
}
