package converter

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// Converter writes a value as the bytes of a key, a value or a header.
type Converter interface {
	// Append appends the bytes of v to dst. null means that the record has a null
	// there, which is not the same as no bytes. dst is undefined after an error,
	// a *DataError.
	Append(dst []byte, s *connect.Schema, v connect.Value) (out []byte, null bool, err error)
}

// The converters by the names of their Java classes.
const (
	ClassString            = "org.apache.kafka.connect.storage.StringConverter"
	ClassJSON              = "org.apache.kafka.connect.json.JsonConverter"
	ClassByteArray         = "org.apache.kafka.connect.converters.ByteArrayConverter"
	ClassSimpleHeader      = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
	ClassBinaryData        = "io.debezium.converters.BinaryDataConverter"
	ClassDebeziumByteArray = "io.debezium.converters.ByteArrayConverter"
	ClassByteBuffer        = "io.debezium.converters.ByteBufferConverter"
	ClassBoolean           = "org.apache.kafka.connect.converters.BooleanConverter"
	ClassShort             = "org.apache.kafka.connect.converters.ShortConverter"
	ClassInteger           = "org.apache.kafka.connect.converters.IntegerConverter"
	ClassLong              = "org.apache.kafka.connect.converters.LongConverter"
	ClassFloat             = "org.apache.kafka.connect.converters.FloatConverter"
	ClassDouble            = "org.apache.kafka.connect.converters.DoubleConverter"
)

// delegateOption names the delegate of a binary converter; its options follow
// after a dot.
const delegateOption = "delegate.converter.type"

// converterOptions are the options of each class; OptionsOf adds those
// of a delegate.
var converterOptions = map[string][]string{
	ClassString:            {"converter.encoding", "converter.type"},
	ClassJSON:              {"schemas.enable", "schemas.cache.size", "decimal.format", "replace.null.with.default", "converter.type"},
	ClassByteArray:         {},
	ClassSimpleHeader:      {},
	ClassBinaryData:        {delegateOption},
	ClassDebeziumByteArray: {delegateOption},
	ClassByteBuffer:        {delegateOption},
	ClassBoolean:           {}, ClassShort: {}, ClassInteger: {}, ClassLong: {}, ClassFloat: {}, ClassDouble: {},
}

// Classes are the classes that New makes.
func Classes() []string { return slices.Sorted(maps.Keys(converterOptions)) }

// OptionsOf are the options of a class, without those of a delegate;
// false for a class that New does not make.
func OptionsOf(class string) ([]string, bool) {
	options, ok := converterOptions[class]
	return options, ok
}

// IsDataConverter reports whether Connect accepts the class as key.converter and value.converter.
func IsDataConverter(class string) bool {
	_, known := converterOptions[class]
	return known && class != ClassSimpleHeader
}

// New makes the converter of a Java class. Options are named without
// the key.converter. before them. An unknown class, option or value is an
// *OptionError, whose Option is "" when it is the class itself.
func New(class string, options map[string]string) (Converter, error) {
	known, ok := converterOptions[class]
	if !ok {
		return nil, &connect.OptionError{Value: class, Reason: "is not a converter that is supported; these are: " + strings.Join(Classes(), ", ")}
	}
	delegate := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if rest, of := strings.CutPrefix(name, delegateOption+"."); of && slices.Contains(known, delegateOption) {
			delegate[rest] = options[name]
		} else if !slices.Contains(known, name) {
			return nil, &connect.OptionError{Option: name, Reason: "is not an option of " + class}
		}
	}
	switch class {
	case ClassString:
		return newStringConverter(options)
	case ClassJSON:
		return newJSONConverter(options)
	case ClassByteArray:
		return byteArrayConverter{}, nil
	case ClassSimpleHeader:
		return simpleHeaderConverter{}, nil
	case ClassBinaryData, ClassByteBuffer, ClassDebeziumByteArray:
		return newBinaryConverter(class, options, delegate)
	case ClassBoolean:
		return booleanConverter{}, nil
	default:
		return numberConverter{class: class}, nil
	}
}

// stringConverter writes Java's toString.
type stringConverter struct{ encode func(dst, text []byte) []byte }

func newStringConverter(options map[string]string) (Converter, error) {
	name, ok := options["converter.encoding"]
	if !ok {
		name = "UTF-8"
	}
	encode, known := encodings[strings.ToUpper(strings.TrimSpace(name))]
	if !known {
		return nil, &connect.OptionError{Option: "converter.encoding", Value: name, Reason: "is not one of UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE"}
	}
	return &stringConverter{encode: encode}, nil
}

func (c *stringConverter) Append(dst []byte, _ *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if v.Kind() == connect.KindNull {
		return dst, true, nil
	}
	if c.encode == nil {
		start := len(dst)
		dst = v.AppendText(dst)
		return java.ReplaceSurrogates(dst, start), false, nil
	}
	return c.encode(dst, v.AppendText(nil)), false, nil
}

// encodings are the character sets that every JVM has. Nil is UTF-8.
var encodings = map[string]func(dst, text []byte) []byte{
	"UTF-8": nil, "UTF8": nil,
	"US-ASCII": latin(0x7f), "ASCII": latin(0x7f),
	"ISO-8859-1": latin(0xff), "LATIN1": latin(0xff), "ISO8859_1": latin(0xff),
	"UTF-16":   func(dst, text []byte) []byte { return utf16(append(dst, 0xfe, 0xff), text, binary.BigEndian) },
	"UTF-16BE": func(dst, text []byte) []byte { return utf16(dst, text, binary.BigEndian) },
	"UTF-16LE": func(dst, text []byte) []byte { return utf16(dst, text, binary.LittleEndian) },
}

func latin(last rune) func(dst, text []byte) []byte {
	return func(dst, text []byte) []byte {
		for len(text) > 0 {
			r, n := utf8.DecodeRune(text)
			if text = text[n:]; r > last {
				r = '?'
			}
			dst = append(dst, byte(r))
		}
		return dst
	}
}

func utf16(dst, text []byte, order binary.AppendByteOrder) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if text = text[n:]; r > 0xffff {
			r -= 0x10000
			dst = order.AppendUint16(dst, uint16(0xd800+r>>10))
			r = 0xdc00 + r&0x3ff
		}
		dst = order.AppendUint16(dst, uint16(r))
	}
	return dst
}

// byteArrayConverter writes bytes as they are and nothing else.
type byteArrayConverter struct{}

func (byteArrayConverter) Append(dst []byte, s *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if s != nil && s.Type != connect.Bytes {
		return dst, false, connect.DataErrorf("Invalid schema type for ByteArrayConverter: %s", s.Type)
	}
	switch v.Kind() {
	case connect.KindNull:
		return dst, true, nil
	case connect.KindBuffer, connect.KindBytes:
		return append(dst, v.Data()...), false, nil
	default:
		return dst, false, connect.DataErrorf("ByteArrayConverter is not compatible with objects of type %s", v.Kind())
	}
}

// binaryConverter is Debezium's: bytes as they are, the rest by a delegate.
type binaryConverter struct {
	delegate Converter // nil without one
	arrays   bool      // takes arrays of bytes only; buffers go to the delegate
}

func newBinaryConverter(class string, options, delegateOptions map[string]string) (Converter, error) {
	c := &binaryConverter{arrays: class == ClassDebeziumByteArray}
	delegate, ok := options[delegateOption]
	if !ok {
		for name := range delegateOptions {
			return nil, &connect.OptionError{Option: delegateOption + "." + name, Reason: "has no effect without " + delegateOption}
		}
		return c, nil
	}
	if !IsDataConverter(delegate) {
		return nil, &connect.OptionError{Option: delegateOption, Value: delegate, Reason: "is not a converter for keys and values that is supported"}
	}
	var err error
	if c.delegate, err = New(delegate, delegateOptions); err != nil {
		if e, of := err.(*connect.OptionError); of && e.Option != "" { //nolint:errorlint // New returns it bare
			e.Option = delegateOption + "." + e.Option
		}
		return nil, err
	}
	return c, nil
}

func (c *binaryConverter) Append(dst []byte, s *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if s == nil || s.Type == connect.Bytes {
		switch {
		case v.Kind() == connect.KindNull:
			return dst, true, nil
		case v.Kind() == connect.KindBytes, v.Kind() == connect.KindBuffer && !c.arrays:
			return append(dst, v.Data()...), false, nil
		}
	}
	if c.delegate != nil {
		return c.delegate.Append(dst, s, v)
	}
	kind := v.Kind().String()
	if s != nil {
		kind = s.Type.String()
	}
	return dst, false, connect.DataErrorf("A value of type %s requires a %s to be configured", kind, delegateOption)
}

// booleanConverter writes one byte.
type booleanConverter struct{}

func (booleanConverter) Append(dst []byte, s *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if s != nil && s.Type != connect.Boolean {
		return dst, false, connect.DataErrorf("Invalid schema type for BooleanConverter: %s", s.Type)
	}
	switch v.Kind() {
	case connect.KindNull:
		return dst, true, nil
	case connect.KindBoolean:
		return append(dst, byte(v.Int())), false, nil
	default:
		return dst, false, connect.DataErrorf("BooleanConverter is not compatible with objects of type %s", v.Kind())
	}
}

// numberConverter writes a number in big-endian order.
type numberConverter struct{ class string }

func (c numberConverter) Append(dst []byte, _ *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if v.Kind() == connect.KindNull {
		return dst, true, nil
	}
	name := ""
	switch c.class {
	case ClassShort:
		if name = "short"; v.Kind() == connect.KindInt16 {
			return binary.BigEndian.AppendUint16(dst, uint16(v.Int())), false, nil
		}
	case ClassInteger:
		if name = "integer"; v.Kind() == connect.KindInt32 {
			return binary.BigEndian.AppendUint32(dst, uint32(v.Int())), false, nil
		}
	case ClassLong:
		if name = "long"; v.Kind() == connect.KindInt64 {
			return binary.BigEndian.AppendUint64(dst, uint64(v.Int())), false, nil
		}
	case ClassFloat:
		if name = "float"; v.Kind() == connect.KindFloat32 {
			return binary.BigEndian.AppendUint32(dst, uint32(v.Int())), false, nil
		}
	case ClassDouble:
		if name = "double"; v.Kind() == connect.KindFloat64 {
			return binary.BigEndian.AppendUint64(dst, uint64(v.Int())), false, nil
		}
	}
	return dst, false, connect.DataErrorf("Failed to serialize to %s (was %s)", name, v.Kind())
}
