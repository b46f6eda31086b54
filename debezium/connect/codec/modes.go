package codec

import (
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
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
	SchemaNames   connect.NameMode
	FieldNames    connect.NameMode
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
	timeModes = connect.Words[TimeMode]{"adaptive": TimeAdaptive, "adaptive_time_microseconds": TimeAdaptiveMicros, "connect": TimeConnect,
		"isostring": TimeISO, "microseconds": TimeMicros, "nanoseconds": TimeNanos}
	decimalModes  = connect.Words[DecimalMode]{"precise": DecimalPrecise, "string": DecimalString, "double": DecimalDouble}
	binaryModes   = connect.Words[BinaryMode]{"bytes": BinaryBytes, "base64": BinaryBase64, "base64-url-safe": BinaryBase64URL, "hex": BinaryHex}
	hstoreModes   = connect.Words[bool]{"json": false, "map": true}
	intervalModes = connect.Words[bool]{"numeric": false, "string": true}
	failureModes  = connect.Words[FailureMode]{"warn": FailureWarn, "skip": FailureSkip, "fail": FailureFail}
	nameModes     = connect.Words[connect.NameMode]{"none": connect.NamesAsIs, "avro": connect.NamesAvro, "avro_unicode": connect.NamesAvroUnicode}
)

// ParseModes reads the options of ModeOptions; others are ignored.
func ParseModes(options map[string]string) (Modes, error) {
	m := DefaultModes()
	if strings.EqualFold(strings.TrimSpace(options["time.precision.mode"]), "structured") {
		return m, &connect.OptionError{Option: "time.precision.mode", Value: options["time.precision.mode"], Reason: "structs for dates and times are not supported"}
	}
	for _, err := range []error{
		timeModes.Set(&m.Time, options, "time.precision.mode"),
		decimalModes.Set(&m.Decimal, options, "decimal.handling.mode"),
		binaryModes.Set(&m.Binary, options, "binary.handling.mode"),
		hstoreModes.Set(&m.HstoreMap, options, "hstore.handling.mode"),
		intervalModes.Set(&m.IntervalText, options, "interval.handling.mode"),
		connect.Booleans.Set(&m.Unknown, options, "include.unknown.datatypes"),
		failureModes.Set(&m.Failure, options, "event.converting.failure.handling.mode"),
		nameModes.Set(&m.SchemaNames, options, "schema.name.adjustment.mode"),
		nameModes.Set(&m.FieldNames, options, "field.name.adjustment.mode"),
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
			return m, &connect.OptionError{Option: "money.fraction.digits", Value: v, Reason: "is not a number of digits from 0 to 100"}
		}
		m.MoneyDigits = n
	}
	return m, nil
}
