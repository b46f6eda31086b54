package connect

import (
	"bytes"
	"errors"
	"strconv"
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
		return &shape{schema: &Schema{Type: String}, decode: decodeNumericText}, ""
	case t.TypeMod < 4:
		return variableScaleShape(), ""
	}
	return &shape{
		schema: named(Bytes, DecimalName, Parameter{"scale", strconv.Itoa(scale)},
			Parameter{"connect.decimal.precision", strconv.Itoa(precision)}),
		decode: func(text []byte) (Value, error) { return decodeDecimal(text, scale) },
	}, ""
}

func decimalValue(text []byte, from, to int) Value {
	text, _ = rescale(text, from, to, false)
	return Value{kind: KindDecimal, num: int64(to), data: text}
}

func decodeDecimal(text []byte, scale int) (Value, error) {
	has, ok := isPlain(text)
	if !ok {
		return Null, errNotDecimal(text)
	}
	if text, ok = rescale(text, has, scale, true); !ok {
		return Null, errors.New("more fraction digits than the column's scale")
	}
	return Value{kind: KindDecimal, num: int64(scale), data: text}, nil
}

func errNotDecimal(text []byte) error {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		return errors.New("not a finite number")
	default:
		return errors.New("not a decimal number")
	}
}

func decodeNumericText(text []byte) (Value, error) {
	switch string(text) {
	case "NaN":
		return StringValue("NAN"), nil
	case "Infinity":
		return StringValue("POSITIVE_INFINITY"), nil
	case "-Infinity":
		return StringValue("NEGATIVE_INFINITY"), nil
	}
	if _, ok := isPlain(text); !ok {
		return Null, errNotDecimal(text)
	}
	return TextValue(text), nil
}

func doubleShape() *shape {
	return &shape{schema: &Schema{Type: Float64}, decode: decodeFloat(64)}
}

func variableScaleSchema() *Schema {
	s := named(Struct, variableScaleName)
	s.Doc = "Variable scaled decimal"
	s.Fields = []Field{{"scale", &Schema{Type: Int32}}, {"value", &Schema{Type: Bytes}}}
	return s
}

func variableScaleShape() *shape {
	s := variableScaleSchema()
	decode := func(text []byte) (Value, error) {
		scale, ok := isPlain(text)
		if !ok {
			return Null, errNotDecimal(text)
		}
		text, scale = stripZeros(text, scale)
		return structOf(s, []Value{Int32Value(int32(scale)), BytesValue(appendUnscaled(nil, text))}), nil
	}
	return &shape{schema: s, decode: decode}
}

func moneyShape(m Modes) *shape {
	switch m.Decimal {
	case DecimalDouble:
		sh := doubleShape()
		read := sh.decode
		sh.decode = func(text []byte) (Value, error) {
			plain, err := moneyText(text)
			if err != nil {
				return Null, err
			}
			return read(plain)
		}
		return sh
	case DecimalString:
		return &shape{schema: &Schema{Type: String}, decode: func(text []byte) (Value, error) {
			plain, err := moneyText(text)
			return TextValue(plain), err
		}}
	default:
		return &shape{
			schema: named(Bytes, DecimalName, Parameter{"scale", strconv.Itoa(m.MoneyDigits)}),

			decode: func(text []byte) (Value, error) {
				plain, err := moneyText(text)
				if err != nil {
					return Null, err
				}
				scale, _ := isPlain(plain)
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
	_, n := decodeUTF8(rest)
	out := make([]byte, 0, len(text))
	if negative {
		out = append(out, '-')
	}
	for _, b := range rest[n:] {
		if b != ',' {
			out = append(out, b)
		}
	}
	if _, ok := isPlain(out); !ok {
		return nil, errors.New("not an amount; lc_monetary must be C or English")
	}
	return out, nil
}
