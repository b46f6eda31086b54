package connect

import (
	"strconv"
	"strings"
)

// TimeMode is time.precision.mode.
type TimeMode uint8

// The time modes.
const (
	TimeAdaptive TimeMode = iota
	TimeAdaptiveMicros
	TimeConnect
	TimeISO
	TimeMicros
	TimeNanos
)

// DecimalMode is decimal.handling.mode.
type DecimalMode uint8

// The decimal modes.
const (
	DecimalPrecise DecimalMode = iota
	DecimalString
	DecimalDouble
)

// BinaryMode is binary.handling.mode.
type BinaryMode uint8

// The binary modes.
const (
	BinaryBytes BinaryMode = iota
	BinaryBase64
	BinaryBase64URL
	BinaryHex
)

// FailureMode is event.converting.failure.handling.mode.
type FailureMode uint8

// The failure modes: null and a warning, null and a quiet note, refuse.
const (
	FailureWarn FailureMode = iota
	FailureSkip
	FailureFail
)

// NameMode is schema.name.adjustment.mode and field.name.adjustment.mode.
type NameMode uint8

// The name modes.
const (
	NamesAsIs NameMode = iota
	NamesAvro
	NamesAvroUnicode
)

// Modes are the connector options that decide what a column becomes. The zero
// value is not the default: use DefaultModes or ParseModes.
type Modes struct {
	Time          TimeMode
	Decimal       DecimalMode
	Binary        BinaryMode
	HstoreMap     bool // hstore.handling.mode=map
	IntervalText  bool // interval.handling.mode=string
	MoneyDigits   int
	Unknown       bool // include.unknown.datatypes
	Failure       FailureMode
	SchemaNames   NameMode
	FieldNames    NameMode
	Placeholder   string // unavailable.value.placeholder
	DoubledQuotes bool   // read '' inside a default's literal as one quote (3.7); 3.6 ends the literal there
}

// DefaultModes are the connector's defaults.
func DefaultModes() Modes { return Modes{MoneyDigits: 2, Placeholder: "__debezium_unavailable_value"} }

// ModeOptions are the names that ParseModes reads, in the order of the documentation.
var ModeOptions = []string{
	"time.precision.mode", "decimal.handling.mode", "binary.handling.mode", "hstore.handling.mode", "interval.handling.mode",
	"money.fraction.digits", "include.unknown.datatypes", "event.converting.failure.handling.mode",
	"schema.name.adjustment.mode", "field.name.adjustment.mode", "unavailable.value.placeholder",
}

var (
	timeModes = words[TimeMode]{"adaptive": TimeAdaptive, "adaptive_time_microseconds": TimeAdaptiveMicros, "connect": TimeConnect,
		"isostring": TimeISO, "microseconds": TimeMicros, "nanoseconds": TimeNanos}
	decimalModes  = words[DecimalMode]{"precise": DecimalPrecise, "string": DecimalString, "double": DecimalDouble}
	binaryModes   = words[BinaryMode]{"bytes": BinaryBytes, "base64": BinaryBase64, "base64-url-safe": BinaryBase64URL, "hex": BinaryHex}
	hstoreModes   = words[bool]{"json": false, "map": true}
	intervalModes = words[bool]{"numeric": false, "string": true}
	failureModes  = words[FailureMode]{"warn": FailureWarn, "skip": FailureSkip, "fail": FailureFail}
	nameModes     = words[NameMode]{"none": NamesAsIs, "avro": NamesAvro, "avro_unicode": NamesAvroUnicode}
	booleans      = words[bool]{"true": true, "false": false}
)

type words[T any] map[string]T

// set reads an option the way Debezium reads an enumeration: any case, spaces
// around it ignored.
func (w words[T]) set(dst *T, options map[string]string, name string) error {
	value, ok := options[name]
	if !ok {
		return nil
	}
	v, ok := w[strings.ToLower(strings.TrimSpace(value))]
	if !ok {
		return &OptionError{Option: name, Value: value, Reason: "is not one of " + strings.Join(sortedKeys(w), ", ")}
	}
	*dst = v
	return nil
}

// ParseModes reads the options of ModeOptions; others are ignored.
func ParseModes(options map[string]string) (Modes, error) {
	m := DefaultModes()
	if strings.EqualFold(strings.TrimSpace(options["time.precision.mode"]), "structured") {
		return m, &OptionError{Option: "time.precision.mode", Value: options["time.precision.mode"], Reason: "structs for dates and times are not supported"}
	}
	for _, err := range []error{
		timeModes.set(&m.Time, options, "time.precision.mode"),
		decimalModes.set(&m.Decimal, options, "decimal.handling.mode"),
		binaryModes.set(&m.Binary, options, "binary.handling.mode"),
		hstoreModes.set(&m.HstoreMap, options, "hstore.handling.mode"),
		intervalModes.set(&m.IntervalText, options, "interval.handling.mode"),
		booleans.set(&m.Unknown, options, "include.unknown.datatypes"),
		failureModes.set(&m.Failure, options, "event.converting.failure.handling.mode"),
		nameModes.set(&m.SchemaNames, options, "schema.name.adjustment.mode"),
		nameModes.set(&m.FieldNames, options, "field.name.adjustment.mode"),
	} {
		if err != nil {
			return m, err
		}
	}
	if v, ok := options["unavailable.value.placeholder"]; ok {
		m.Placeholder = v
	}
	if v, ok := options["money.fraction.digits"]; ok {
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil || n < 0 || n > 100 {
			return m, &OptionError{Option: "money.fraction.digits", Value: v, Reason: "is not a number of digits from 0 to 100"}
		}
		m.MoneyDigits = n
	}
	return m, nil
}

// SchemaName is a schema's full name as the mode allows it.
func (m NameMode) SchemaName(name string) string {
	return m.adjust(name, true)
}

// FieldName is a field's name as the mode allows it.
func (m NameMode) FieldName(name string) string {
	return m.adjust(name, false)
}

func (m NameMode) adjust(name string, dots bool) string {
	if m == NamesAsIs {
		return name
	}
	var b strings.Builder
	changed := false
	for i, r := range name {
		digit := r >= '0' && r <= '9'
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || digit && i > 0 || dots && r == '.' && i > 0 || r == '_' && m == NamesAvro:
			b.WriteRune(r)
			continue
		case digit && m == NamesAvro:
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			m.replace(&b, r) // the underscore too where it begins an escape
		}
		changed = true
	}
	if !changed {
		return name
	}
	return b.String()
}

// replace writes what stands for each UTF-16 unit of r.
func (m NameMode) replace(b *strings.Builder, r rune) {
	units := []uint16{uint16(r)}
	if r > 0xffff {
		r -= 0x10000
		units = []uint16{uint16(0xd800 + r>>10), uint16(0xdc00 + r&0x3ff)}
	}
	for _, u := range units {
		b.WriteByte('_')
		if m == NamesAvroUnicode {
			const hex = "0123456789abcdef"
			b.WriteString("u")
			for shift := 12; shift >= 0; shift -= 4 {
				b.WriteByte(hex[u>>shift&15])
			}
		}
	}
}
