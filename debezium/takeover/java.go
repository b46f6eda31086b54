package takeover

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A file of offsets is a java.util.HashMap<byte[], byte[]> in Java's serialization
// (protocol 5). Only that shape is read: nothing is ever made from a class name.
const (
	javaMagic     = 0xaced
	javaVersion   = 5
	tcNull        = 0x70
	tcReference   = 0x71
	tcClassDesc   = 0x72
	tcObject      = 0x73
	tcArray       = 0x75
	tcBlockData   = 0x77
	tcEndBlock    = 0x78
	scWriteMethod = 0x01
	scSerial      = 0x02
	baseHandle    = 0x7e0000

	hashMapUID = 0x0507dac1c31660d1
	bytesUID   = 0xacf317f8060854e0

	maxPairs = 100_000
	maxBytes = 1 << 20 // of one key or value
)

type pair struct{ key, value []byte }

// ErrNotOffsets means that the content is no file of offsets at all.
var ErrNotOffsets = errors.New("is neither a file of offsets (of a standalone worker or Debezium Server) nor JSON (of GET /connectors/NAME/offsets, or what Redis or a table has)")

// javaReader reads from bounds-checked bytes; the first mistake sticks, and what is read
// behind it is zero.
type javaReader struct {
	data []byte
	at   int
	err  error

	handles    uint32 // given out so far
	bytesClass uint32 // handle of [B; zero: not seen
	arrays     map[uint32][]byte
}

func parseJavaMap(data []byte) ([]pair, error) {
	r := &javaReader{data: data, arrays: map[uint32][]byte{}}
	if len(data) < 4 || binary.BigEndian.Uint16(data) != javaMagic || binary.BigEndian.Uint16(data[2:]) != javaVersion {
		return nil, ErrNotOffsets
	}
	r.at = 4
	pairs := r.hashMap()
	if r.err == nil && r.at != len(data) {
		r.fail("something follows the map")
	}
	if r.err != nil {
		return nil, r.err
	}
	return pairs, nil
}

func (r *javaReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("cannot be read as a file of offsets: at byte %d: %s", r.at, fmt.Sprintf(format, args...))
	}
}

func (r *javaReader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n > len(r.data)-r.at {
		r.fail("it ends too early")
		return nil
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *javaReader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *javaReader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *javaReader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *javaReader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *javaReader) want(what string, wanted byte) {
	if got := r.u8(); got != wanted {
		r.at--
		r.fail("%s is not where it should be", what)
	}
}

func (r *javaReader) handle() uint32 {
	r.handles++
	return baseHandle + r.handles - 1
}

func (r *javaReader) text() string { return string(r.take(int(r.u16()))) }

// hashMap reads the one object that the file is.
func (r *javaReader) hashMap() []pair {
	r.want("an object", tcObject)
	r.want("its class", tcClassDesc)
	if name, uid := r.text(), r.u64(); name != "java.util.HashMap" || uid != hashMapUID {
		r.fail("the object is no java.util.HashMap")
	}
	r.handle() // the class
	if flags := r.u8(); flags != scWriteMethod|scSerial {
		r.fail("the class is written in an unknown way")
	}
	fields := r.u16()
	if fields != 2 {
		r.fail("the map has %d fields, not 2", fields)
		return nil
	}
	for range fields {
		if kind := r.u8(); kind != 'F' && kind != 'I' {
			r.fail("the map has a field of an unknown type")
		}
		r.text()
	}
	r.want("the end of the class", tcEndBlock)
	r.want("the class without a parent", tcNull)
	r.handle() // the map
	r.take(8)  // load factor and threshold
	r.want("the map's size", tcBlockData)
	if n := r.u8(); n != 8 {
		r.fail("the map's size has %d bytes, not 8", n)
	}
	r.u32() // buckets
	size := r.u32()
	if size > maxPairs {
		r.fail("the map has %d entries", size)
	}
	var pairs []pair
	for i := uint32(0); i < size && r.err == nil; i++ {
		pairs = append(pairs, pair{r.bytes(), r.bytes()})
	}
	r.want("the end of the map", tcEndBlock)
	return pairs
}

// bytes reads a byte[], null, or an array that was there before.
func (r *javaReader) bytes() []byte {
	switch kind := r.u8(); kind {
	case tcNull:
		return nil
	case tcReference:
		handle := r.u32()
		array, ok := r.arrays[handle]
		if !ok {
			r.fail("a reference leads nowhere")
		}
		return array
	case tcArray:
		r.bytesDescription()
		handle := r.handle()
		n := r.u32()
		if n > maxBytes {
			r.fail("an entry has %d bytes", n)
		}
		array := r.take(int(n))
		r.arrays[handle] = array
		return array
	default:
		r.at--
		r.fail("an entry is no byte array")
		return nil
	}
}

// bytesDescription reads the class [B, in full the first time.
func (r *javaReader) bytesDescription() {
	switch kind := r.u8(); kind {
	case tcReference:
		if handle := r.u32(); r.bytesClass == 0 || handle != r.bytesClass {
			r.fail("an entry is no byte array")
		}
	case tcClassDesc:
		if name, uid := r.text(), r.u64(); name != "[B" || uid != bytesUID {
			r.fail("an entry is no byte array")
		}
		r.bytesClass = r.handle()
		if flags, fields := r.u8(), r.u16(); flags != scSerial || fields != 0 {
			r.fail("byte arrays are written in an unknown way")
		}
		r.want("the end of the class", tcEndBlock)
		r.want("the class without a parent", tcNull)
	default:
		r.fail("an entry is no byte array")
	}
}
