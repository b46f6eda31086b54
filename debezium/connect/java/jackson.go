package java

// escapes says how Jackson writes a byte below U+0080: 0 as it is, u as \u00XX,
// else the letter after a backslash.
var escapes = func() (t [128]byte) {
	for i := range ' ' {
		t[i] = 'u'
	}
	t['\b'], t['\t'], t['\n'], t['\f'], t['\r'], t['"'], t['\\'] = 'b', 't', 'n', 'f', 'r', '"', '\\'
	return t
}()

const upperHex = "0123456789ABCDEF"

// AppendJSONString appends a JSON string. Jackson's generators of bytes write a
// character beyond U+FFFF as two escapes (pairs), those of characters as it is.
func AppendJSONString[T string | []byte](dst []byte, text T, pairs bool) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		b := text[i]
		switch {
		case b < 0x80:
			if escapes[b] == 0 {
				i++
				continue
			}
			dst = append(append(dst, text[start:i]...), '\\', escapes[b])
			if escapes[b] == 'u' {
				dst = append(dst, '0', '0', upperHex[b>>4], upperHex[b&15])
			}
			i++
			start = i
		case b >= 0xf0 && pairs || b == 0xed: // beyond U+FFFF, or perhaps a lone surrogate
			r, n := decodeRune([]byte(text[i:min(i+4, len(text))]))
			if r < SurrogateFirst || r > SurrogateLast && r <= 0xffff || n == 1 {
				i += n
				continue
			}
			dst = append(dst, text[start:i]...)
			if r > 0xffff {
				r -= 0x10000
				dst = appendUnit(dst, SurrogateFirst+r>>10)
				r = 0xdc00 + r&0x3ff
			}
			dst = appendUnit(dst, r)
			i += n
			start = i
		default:
			i++
		}
	}
	return append(append(dst, text[start:]...), '"')
}

func appendUnit(dst []byte, u rune) []byte {
	return append(dst, '\\', 'u', upperHex[u>>12&15], upperHex[u>>8&15], upperHex[u>>4&15], upperHex[u&15])
}
