package codec

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// numericShape follows decimal.handling.mode. A numeric without precision is a
// struct of its scale and its unscaled bytes in mode precise.
func numericShape(t TypeInfo, m Modes) (*shape, string) {
	precision, scale := 0, 0
	if t.TypeMod >= 4 {
		precision = int(t.TypeMod-4) >> 16
		scale = (int(t.TypeMod-4)&0x7ff ^ 1024) - 1024
		if scale < 0 {
			return nil, "a numeric with a negative scale is not supported"
		}
	}
	switch {
	case m.Decimal == DecimalDouble:
		return doubleShape(), ""
	case m.Decimal == DecimalString:
		return &shape{schema: &connect.Schema{Type: connect.String}, decode: decodeNumericText}, ""
	case t.TypeMod < 4:
		return variableScaleShape(), ""
	}
	return &shape{
		schema: named(connect.Bytes, connect.DecimalName, connect.Parameter{Name: "scale", Value: strconv.Itoa(scale)},
			connect.Parameter{Name: "connect.decimal.precision", Value: strconv.Itoa(precision)}),
		decode: func(text []byte) (connect.Value, error) { return decodeDecimal(text, scale) },
	}, ""
}

func decimalValue(text []byte, from, to int) connect.Value {
	text, _ = java.Rescale(text, from, to, false)
	return connect.DecimalValue(text, to)
}

func decodeDecimal(text []byte, scale int) (connect.Value, error) {
	has, ok := java.IsPlain(text)
	if !ok {
		return connect.Null, errNotDecimal(text)
	}
	if text, ok = java.Rescale(text, has, scale, true); !ok {
		return connect.Null, errors.New("more fraction digits than the column's scale")
	}
	return connect.DecimalValue(text, scale), nil
}

func errNotDecimal(text []byte) error {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		return errors.New("not a finite number")
	default:
		return errors.New("not a decimal number")
	}
}

func decodeNumericText(text []byte) (connect.Value, error) {
	switch string(text) {
	case "NaN":
		return connect.StringValue("NAN"), nil
	case "Infinity":
		return connect.StringValue("POSITIVE_INFINITY"), nil
	case "-Infinity":
		return connect.StringValue("NEGATIVE_INFINITY"), nil
	}
	if _, ok := java.IsPlain(text); !ok {
		return connect.Null, errNotDecimal(text)
	}
	return connect.TextValue(text), nil
}

func doubleShape() *shape {
	return &shape{schema: &connect.Schema{Type: connect.Float64}, decode: decodeFloat(64)}
}

func variableScaleSchema() *connect.Schema {
	s := named(connect.Struct, connect.VariableScaleName)
	s.Doc = "Variable scaled decimal"
	s.Fields = []connect.Field{{Name: "scale", Schema: &connect.Schema{Type: connect.Int32}}, {Name: "value", Schema: &connect.Schema{Type: connect.Bytes}}}
	return s
}

func variableScaleShape() *shape {
	s := variableScaleSchema()
	decode := func(text []byte) (connect.Value, error) {
		scale, ok := java.IsPlain(text)
		if !ok {
			return connect.Null, errNotDecimal(text)
		}
		text, scale = java.StripZeros(text, scale)
		return connect.StructOf(s, []connect.Value{connect.Int32Value(int32(scale)), connect.BytesValue(java.AppendUnscaled(nil, text))}), nil
	}
	return &shape{schema: s, decode: decode}
}

func moneyShape(m Modes) *shape {
	switch m.Decimal {
	case DecimalDouble:
		sh := doubleShape()
		read := sh.decode
		sh.decode = func(text []byte) (connect.Value, error) {
			plain, err := moneyText(text)
			if err != nil {
				return connect.Null, err
			}
			return read(plain)
		}
		return sh
	case DecimalString:
		return &shape{schema: &connect.Schema{Type: connect.String}, decode: func(text []byte) (connect.Value, error) {
			plain, err := moneyText(text)
			return connect.TextValue(plain), err
		}}
	default:
		return &shape{
			schema: named(connect.Bytes, connect.DecimalName, connect.Parameter{Name: "scale", Value: strconv.Itoa(m.MoneyDigits)}),

			decode: func(text []byte) (connect.Value, error) {
				plain, err := moneyText(text)
				if err != nil {
					return connect.Null, err
				}
				scale, _ := java.IsPlain(plain)
				return decimalValue(plain, scale, m.MoneyDigits), nil
			},
		}
	}
}

// moneyText is the plain decimal of money as a C or English locale prints it:
// -$1,234.50.
func moneyText(text []byte) ([]byte, error) {
	rest, negative := bytes.CutPrefix(text, []byte("-"))
	if len(rest) == 0 || rest[0] >= '0' && rest[0] <= '9' {
		return nil, errors.New("no currency symbol before the number; lc_monetary must be C or English")
	}
	_, n := utf8.DecodeRune(rest)
	out := make([]byte, 0, len(text))
	if negative {
		out = append(out, '-')
	}
	for _, b := range rest[n:] {
		if b != ',' {
			out = append(out, b)
		}
	}
	if _, ok := java.IsPlain(out); !ok {
		return nil, errors.New("not an amount; lc_monetary must be C or English")
	}
	return out, nil
}
