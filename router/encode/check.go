package encode

import (
	"encoding/binary"
	"fmt"
)

// Framing is what a value says that somebody else framed.
func Framing(value []byte) (id uint32, err error) {
	switch {
	case len(value) > 0 && value[0] != 0:
		return 0, &Mismatch{What: fmt.Sprintf("the payload begins with byte 0x%02x, and values of a schema registry with a zero byte and the number of their schema (byte 0)", value[0])}
	case len(value) < prefixLength:
		return 0, &Mismatch{What: fmt.Sprintf("the payload has %d bytes, and values of a schema registry begin with five: a zero byte and the number of their schema (byte %d)", len(value), len(value))}
	}
	return binary.BigEndian.Uint32(value[1:]), nil
}

// Indexes checks what values of Protobuf have behind the framing: which message of the schema they are.
func Indexes(value []byte) error {
	at := prefixLength
	read := func() (int64, bool) {
		v, n := binary.Varint(value[at:])
		if n <= 0 {
			return 0, false
		}
		at += n
		return v, true
	}
	count, ok := read()
	for n := int64(0); ok && n < count; n++ {
		var index int64
		index, ok = read()
		ok = ok && index >= 0
	}
	if !ok || count < 0 {
		return &Mismatch{What: fmt.Sprintf("the payload does not say which message of its Protobuf schema it is (byte %d)", at)}
	}
	return nil
}
