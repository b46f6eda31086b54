package connect

import (
	"strconv"

	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// AppendText appends Java's toString of v. For an array of bytes Java prints an
// identity hash, which differs in each run; here it is a hash of the bytes.
func (v Value) AppendText(dst []byte) []byte {
	switch v.kind {
	case KindNull:
		return append(dst, "null"...)
	case KindString:
		return append(dst, v.data...)
	case KindBuffer:
		n := int64(len(v.data))
		dst = strconv.AppendInt(append(dst, "java.nio.HeapByteBuffer[pos=0 lim="...), n, 10)
		return append(strconv.AppendInt(append(dst, " cap="...), n, 10), ']')
	case KindBytes:
		return strconv.AppendUint(append(dst, "[B@"...), uint64(uint32(java.HashCode(v.data))), 16)
	case KindDate:
		return java.AppendDate(dst, v.num)
	case KindArray:
		dst = append(dst, '[')
		for i, item := range v.node.items {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = item.AppendText(dst)
		}
		return append(dst, ']')
	case KindMap:
		dst = append(dst, '{')
		for i := 0; i+1 < len(v.node.items); i += 2 {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(v.node.items[i].AppendText(dst), '=')
			dst = v.node.items[i+1].AppendText(dst)
		}
		return append(dst, '}')
	case KindStruct:
		return v.appendStructText(dst)
	default:
		return v.AppendScalar(dst)
	}
}

// AppendScalar appends toString of a number or a boolean.
func (v Value) AppendScalar(dst []byte) []byte {
	switch v.kind {
	case KindBoolean:
		return strconv.AppendBool(dst, v.num != 0)
	case KindFloat32:
		return java.AppendFloat32(dst, float32(v.Float()))
	case KindFloat64:
		return java.AppendDouble(dst, v.Float())
	case KindDecimal:
		return java.AppendDecimal(dst, v.data, int(v.num))
	default:
		return strconv.AppendInt(dst, v.num, 10)
	}
}

// appendStructText leaves out null members, and does not know defaults.
func (v Value) appendStructText(dst []byte) []byte {
	dst = append(dst, "Struct{"...)
	first := true
	for i, item := range v.node.items {
		if item.kind == KindNull {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, v.node.schema.Fields[i].Name...), '=')
		dst = item.AppendText(dst)
	}
	return append(dst, '}')
}

// IsBlank reports whether v is null or its text has nothing but characters up
// to U+0020, Java's trim: what the EventRouter calls an empty payload.
func (v Value) IsBlank() bool {
	switch v.kind {
	case KindNull:
		return true
	case KindString:
		for _, b := range v.data {
			if b > ' ' {
				return false
			}
		}
		return true
	default:
		return false
	}
}
