package codec

import (
	"bytes"
	"errors"
	"regexp"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

var (
	functionDefault = regexp.MustCompile(`^[(]?[A-Za-z0-9_.]+\([^\n\r\x{85}\x{2028}\x{2029}]*\)`)
	literalDefault  = regexp.MustCompile(`'([^\n\r\x{85}\x{2028}\x{2029}]*?)'`)
	doubledDefault  = regexp.MustCompile(`'((?:[^'\n\r\x{85}\x{2028}\x{2029}]|'')*)'`)

	currentDefaults = map[string]bool{"current_timestamp": true, "current_time": true, "current_date": true, "localtime": true, "localtimestamp": true}

	errNullDefault = errors.New("the default is NULL")
	errExpression  = errors.New("an expression that is not evaluated")
)

// setDefault gives the schema the default that Debezium reads out of the
// expression. Types that it does not look at have none.
func (c *Codec) setDefault(col Column, t TypeInfo, m Modes) {
	v, err := defaultValue(col.Default, t, m, c.decode)
	switch {
	case errors.Is(err, errNullDefault):
	case err != nil:
		c.Warning = "the default of column " + col.Name + " cannot be read as a value of type " + c.typ + "; NULL stays null: " + err.Error()
	case v.Kind() == connect.KindStruct:
		c.Warning = "the default of column " + col.Name + " would be a struct, which cannot be a default; NULL stays null"
	case v.Kind() != connect.KindNull:
		if connect.Validate(col.Name, c.Schema, v) == nil {
			c.Schema.Default = &v
		}
	}
}

// defaultValue reads a default expression. The null value says that the type
// has no defaults.
func defaultValue(expression string, t TypeInfo, m Modes, decode decoder) (connect.Value, error) {
	if t.Labels != nil {
		label, ok := enumDefault(expression, t.Name)
		if !ok {
			return connect.Null, errNullDefault
		}
		return connect.StringValue(label), nil
	}
	text := func(placeholder string) (string, bool, error) {
		expression := expression
		if placeholder != "" && t.OID != oidJSON && t.OID != oidJSONB {
			expression = strings.TrimSpace(expression)
		}
		if functionDefault.MatchString(expression) || currentDefaults[strings.ToLower(expression)] {
			return placeholder, true, nil
		}
		s, err := literal(expression, m.DoubledQuotes)
		return s, false, err
	}
	if t.Elem != nil {
		return connect.Null, nil
	}
	switch t.OID {
	case oidBool, oidInt2, oidInt4, oidInt8, oidFloat4, oidFloat8, oidNumeric:
		if strings.HasPrefix(strings.TrimSpace(expression), "NULL::") {
			return connect.Null, errNullDefault
		}
	}
	switch t.OID {
	case oidText, oidVarchar, oidBpchar, oidXML:
		s, _, err := text("")
		return connect.StringValue(s), err
	case oidJSON, oidJSONB:
		s, _, err := text("{}")
		return connect.StringValue(s), err
	case oidBool:
		s, _, err := text("false")
		return connect.BooleanValue(strings.EqualFold(s, "true")), err
	case oidInt2, oidInt4, oidInt8:
		return decodeDefault(text, "0", decode, func(s string) string { return strings.TrimPrefix(s, "+") })
	case oidFloat4, oidFloat8:
		return decodeDefault(text, "0.0", decode, strings.TrimSpace)
	case oidNumeric:
		return numericDefault(text, t, m, decode)
	case oidBit, oidVarbit:
		return bitsDefault(text, t, decode)
	case oidUUID:
		return decodeDefault(text, "00000000-0000-0000-0000-000000000000", decode, strings.ToLower)
	case oidDate:
		return decodeDefault(text, "1970-01-01", decode, finite)
	case oidTime:
		return decodeDefault(text, "00:00:00", decode, finite)
	case oidTimestamp:
		return decodeDefault(text, "1970-01-01 00:00:00", decode, finite)
	case oidTimestampTZ:
		return decodeDefault(text, "1970-01-01 00:00:00+00", decode, finite)
	case oidInterval:
		return decodeDefault(text, "00:00:00", decode, func(s string) string {
			if s == "0" || s == "epoch" {
				return "00:00:00"
			}
			return s
		})
	default:
		return connect.Null, nil
	}
}

type defaultText func(placeholder string) (text string, generated bool, err error)

func decodeDefault(text defaultText, placeholder string, decode decoder, prepare func(string) string) (connect.Value, error) {
	s, _, err := text(placeholder)
	if err != nil {
		return connect.Null, err
	}
	v, err := decode([]byte(prepare(s)))
	if err != nil {
		return connect.Null, errExpression
	}
	return v, nil
}

// finite makes infinity unreadable: the driver's stand-in for it overflows.
func finite(s string) string {
	if strings.HasSuffix(s, "infinity") {
		return ""
	}
	return s
}

// literal is what stands between the first two quotes, or all of it when there
// is none. A quote inside a literal is written twice, and ends it.
func literal(expression string, doubled bool) (string, error) {
	if !strings.Contains(expression, "'") {
		if strings.HasPrefix(expression, "NULL::") {
			return "", errNullDefault
		}
		return expression, nil
	}
	pattern := literalDefault
	if doubled {
		pattern = doubledDefault
	}
	found := pattern.FindStringSubmatch(expression)
	if found == nil {
		return "", errExpression
	}
	if doubled {
		return strings.ReplaceAll(found[1], "''", "'"), nil
	}
	return found[1], nil
}

// enumDefault reads 'label'::type, where the type may be quoted and have a
// schema before it.
func enumDefault(expression, typ string) (string, bool) {
	at := strings.LastIndex(expression, "::")
	if at < 2 || expression[0] != '\'' || expression[at-1] != '\'' {
		return "", false
	}
	if expression[at+2:] != typ && !strings.HasSuffix(expression[at+2:], "."+typ) {
		if quoted := `"` + strings.ReplaceAll(typ, `"`, `""`) + `"`; expression[at+2:] != quoted && !strings.HasSuffix(expression[at+2:], "."+quoted) {
			return "", false
		}
	}
	return expression[1 : at-1], true
}

func numericDefault(text defaultText, t TypeInfo, m Modes, decode decoder) (connect.Value, error) {
	s, _, err := text("0.0")
	if err != nil {
		return connect.Null, err
	}
	plain, scale, ok := java.ParseBigDecimal(s)
	if !ok {
		return connect.Null, errExpression
	}
	if t.TypeMod >= 4 && m.Decimal != DecimalDouble {
		if plain, ok = java.Rescale(plain, scale, int(t.TypeMod-4)&0x7ff, true); !ok {
			return connect.Null, errExpression
		}
	}
	v, err := decode(plain)
	if err != nil {
		return connect.Null, errExpression
	}
	return v, nil
}

func bitsDefault(text defaultText, t TypeInfo, decode decoder) (connect.Value, error) {
	placeholder := "00"
	if t.OID == oidVarbit {
		placeholder = "0"
	}
	s, generated, err := text(placeholder)
	if err != nil {
		return connect.Null, err
	}
	data := []byte(s)
	if generated && t.OID == oidBit && t.TypeMod <= 1 {
		data = []byte("0")
	}
	if len(bytes.Trim(data, "01")) != 0 {
		return connect.Null, errExpression
	}
	v, err := decode(data)
	if err != nil {
		return connect.Null, errExpression
	}
	return v, nil
}
