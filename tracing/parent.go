package tracing

// Context is what a traceparent says (W3C Trace Context).
type Context struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// The flags that the relay passes on. Others belong to versions that it does not know.
const (
	flagSampled = 1
	flagRandom  = 2
	knownFlags  = flagSampled | flagRandom
)

// Sampled reports whether the trace is recorded.
func (c Context) Sampled() bool { return c.Flags&flagSampled != 0 }

// parentLength is the length of a traceparent of version 00:
// 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.
const parentLength = 55

// ParseParent reads a traceparent. Version 00 has four parts and nothing behind them; a later
// version may have more, behind another hyphen. A context of zeros is none.
func ParseParent[T string | []byte](text T) (c Context, ok bool) {
	if len(text) < parentLength || text[2] != '-' || text[35] != '-' || text[52] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !decode(version[:], text, 0) || !decode(c.Trace[:], text, 3) || !decode(c.Span[:], text, 36) || !decode(flags[:], text, 53) {
		return Context{}, false
	}
	longer := len(text) > parentLength
	if version[0] == 0xff || longer && (version[0] == 0 || text[parentLength] != '-') {
		return Context{}, false
	}
	if c.Trace == [16]byte{} || c.Span == [8]byte{} {
		return Context{}, false
	}
	c.Flags = flags[0]
	return c, true
}

// decode reads lower-case hexadecimal; no other is allowed.
func decode[T string | []byte](dst []byte, text T, at int) bool {
	for i := range dst {
		high, low := digits[text[at+2*i]], digits[text[at+2*i+1]]
		if high|low > 15 {
			return false
		}
		dst[i] = high<<4 | low
	}
	return true
}

// digits are the values of hexadecimal digits; of all other characters 255.
var digits = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range "0123456789abcdef" {
		t[c] = byte(i)
	}
	return t
}()

// surelyUnsampled tells, of a traceparent of the usual length, that its last digit says that the
// trace is not recorded. It looks at nothing else: such a row is not traced whatever the rest is.
func surelyUnsampled(parent []byte) bool {
	return len(parent) == parentLength && digits[parent[parentLength-1]]&flagSampled == 0
}

// AppendParent writes a traceparent of version 00.
func AppendParent(dst []byte, c Context) []byte {
	dst = append(dst, "00-"...)
	dst = append(appendHex(dst, c.Trace[:]), '-')
	dst = append(appendHex(dst, c.Span[:]), '-')
	return appendHex(dst, []byte{c.Flags})
}

func appendHex(dst, src []byte) []byte {
	const alphabet = "0123456789abcdef"
	for _, b := range src {
		dst = append(dst, alphabet[b>>4], alphabet[b&15])
	}
	return dst
}
