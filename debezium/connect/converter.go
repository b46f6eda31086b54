package connect

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Converter writes a value as the bytes of a key, a value or a header.
type Converter interface {
	// Append appends the bytes of v to dst. null means that the record has a null
	// there, which is not the same as no bytes. dst is undefined after an error,
	// a *DataError.
	Append(dst []byte, s *Schema, v Value) (out []byte, null bool, err error)
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

// converterOptions are the options of each class; ConverterOptions adds those
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

// ConverterClasses are the classes that NewConverter makes.
func ConverterClasses() []string { return slices.Sorted(maps.Keys(converterOptions)) }

// ConverterOptions are the options of a class, without those of a delegate;
// false for a class that NewConverter does not make.
func ConverterOptions(class string) ([]string, bool) {
	options, ok := converterOptions[class]
	return options, ok
}

// IsHeaderConverter reports whether Connect accepts the class as header.converter.
func IsHeaderConverter(class string) bool {
	_, known := converterOptions[class]
	return known
}

// IsDataConverter reports whether Connect accepts the class as key.converter and value.converter.
func IsDataConverter(class string) bool {
	_, known := converterOptions[class]
	return known && class != ClassSimpleHeader
}

// NewConverter makes the converter of a Java class. Options are named without
// the key.converter. before them. An unknown class, option or value is an
// *OptionError, whose Option is "" when it is the class itself.
func NewConverter(class string, options map[string]string) (Converter, error) {
	known, ok := converterOptions[class]
	if !ok {
		return nil, &OptionError{Value: class, Reason: "is not a converter that is supported; these are: " + strings.Join(ConverterClasses(), ", ")}
	}
	delegate := map[string]string{}
	for _, name := range sortedKeys(options) {
		if rest, of := strings.CutPrefix(name, delegateOption+"."); of && slices.Contains(known, delegateOption) {
			delegate[rest] = options[name]
		} else if !slices.Contains(known, name) {
			return nil, &OptionError{Option: name, Reason: "is not an option of " + class}
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
		return nil, &OptionError{Option: "converter.encoding", Value: name, Reason: "is not one of UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE"}
	}
	return &stringConverter{encode: encode}, nil
}

func (c *stringConverter) Append(dst []byte, _ *Schema, v Value) ([]byte, bool, error) {
	if v.kind == KindNull {
		return dst, true, nil
	}
	if c.encode == nil {
		start := len(dst)
		dst = v.AppendText(dst)
		return replaceSurrogates(dst, start), false, nil
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

func (byteArrayConverter) Append(dst []byte, s *Schema, v Value) ([]byte, bool, error) {
	if s != nil && s.Type != Bytes {
		return dst, false, dataError("Invalid schema type for ByteArrayConverter: %s", s.Type)
	}
	switch v.kind {
	case KindNull:
		return dst, true, nil
	case KindBuffer, KindBytes:
		return append(dst, v.data...), false, nil
	default:
		return dst, false, dataError("ByteArrayConverter is not compatible with objects of type %s", v.kind)
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
			return nil, &OptionError{Option: delegateOption + "." + name, Reason: "has no effect without " + delegateOption}
		}
		return c, nil
	}
	if !IsDataConverter(delegate) {
		return nil, &OptionError{Option: delegateOption, Value: delegate, Reason: "is not a converter for keys and values that is supported"}
	}
	var err error
	if c.delegate, err = NewConverter(delegate, delegateOptions); err != nil {
		if e, of := err.(*OptionError); of && e.Option != "" { //nolint:errorlint // NewConverter returns it bare
			e.Option = delegateOption + "." + e.Option
		}
		return nil, err
	}
	return c, nil
}

func (c *binaryConverter) Append(dst []byte, s *Schema, v Value) ([]byte, bool, error) {
	if s == nil || s.Type == Bytes {
		switch {
		case v.kind == KindNull:
			return dst, true, nil
		case v.kind == KindBytes, v.kind == KindBuffer && !c.arrays:
			return append(dst, v.data...), false, nil
		}
	}
	if c.delegate != nil {
		return c.delegate.Append(dst, s, v)
	}
	kind := v.kind.String()
	if s != nil {
		kind = s.Type.String()
	}
	return dst, false, dataError("A value of type %s requires a %s to be configured", kind, delegateOption)
}

// booleanConverter writes one byte.
type booleanConverter struct{}

func (booleanConverter) Append(dst []byte, s *Schema, v Value) ([]byte, bool, error) {
	if s != nil && s.Type != Boolean {
		return dst, false, dataError("Invalid schema type for BooleanConverter: %s", s.Type)
	}
	switch v.kind {
	case KindNull:
		return dst, true, nil
	case KindBoolean:
		return append(dst, byte(v.num)), false, nil
	default:
		return dst, false, dataError("BooleanConverter is not compatible with objects of type %s", v.kind)
	}
}

// numberConverter writes a number in big-endian order.
type numberConverter struct{ class string }

func (c numberConverter) Append(dst []byte, _ *Schema, v Value) ([]byte, bool, error) {
	if v.kind == KindNull {
		return dst, true, nil
	}
	name := ""
	switch c.class {
	case ClassShort:
		if name = "short"; v.kind == KindInt16 {
			return binary.BigEndian.AppendUint16(dst, uint16(v.num)), false, nil
		}
	case ClassInteger:
		if name = "integer"; v.kind == KindInt32 {
			return binary.BigEndian.AppendUint32(dst, uint32(v.num)), false, nil
		}
	case ClassLong:
		if name = "long"; v.kind == KindInt64 {
			return binary.BigEndian.AppendUint64(dst, uint64(v.num)), false, nil
		}
	case ClassFloat:
		if name = "float"; v.kind == KindFloat32 {
			return binary.BigEndian.AppendUint32(dst, uint32(v.num)), false, nil
		}
	case ClassDouble:
		if name = "double"; v.kind == KindFloat64 {
			return binary.BigEndian.AppendUint64(dst, uint64(v.num)), false, nil
		}
	}
	return dst, false, dataError("Failed to serialize to %s (was %s)", name, v.kind)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
