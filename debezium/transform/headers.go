package transform

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/options"
)

// Transforms of headers: DropHeaders, InsertHeader, HeaderFrom.

type dropHeaders []string

func (t dropHeaders) apply(_ *Chain, r *Record) (bool, error) {
	r.Headers = slices.DeleteFunc(r.Headers, func(h Header) bool { return slices.Contains(t, h.Key) })
	return true, nil
}

type insertHeader Header

// newInsertHeader reads the literal as Connect does, which makes numbers and
// booleans of what looks like them. Literals that it would take for a date, a list
// or a map are refused.
func newInsertHeader(o *ownerOptions) transform {
	h := insertHeader{Key: o.required("header")}
	literal, given := o.names["value.literal"]
	if !given {
		o.fail("value.literal", "%svalue.literal is missing: InsertHeader needs it", o.prefix)
		return nil
	}
	var ok bool
	if h.Schema, h.Value, ok = parseLiteral(literal); !ok {
		o.fail("value.literal", "Connect makes a list, a map, a date or an unquoted text of this literal, which is not carried")
		return nil
	}
	return &h
}

func (t *insertHeader) apply(_ *Chain, r *Record) (bool, error) {
	r.addHeader(Header(*t))
	return true, nil
}

// parseLiteral is Connect's Values.parseString for scalars.
func parseLiteral(text string) (*connect.Schema, connect.Value, bool) {
	schema := func(t connect.Type) *connect.Schema { return &connect.Schema{Type: t, Optional: false} }
	trimmed := strings.TrimSpace(text)
	switch {
	case text == "":
		return schema(connect.String), connect.StringValue(""), true
	case trimmed == "null":
		return nil, connect.Null, true
	case trimmed == "true" || trimmed == "false":
		return schema(connect.Boolean), connect.BooleanValue(trimmed == "true"), true
	case strings.ContainsAny(text[:1], `[{"`) || isoDate(trimmed):
		return nil, connect.Null, false
	}
	if n, err := strconv.ParseInt(trimmed, 10, 64); err == nil && text == trimmed {
		switch {
		case n >= math.MinInt8 && n <= math.MaxInt8:
			return schema(connect.Int8), connect.Int8Value(int8(n)), true
		case n >= math.MinInt16 && n <= math.MaxInt16:
			return schema(connect.Int16), connect.Int16Value(int16(n)), true
		case n >= math.MinInt32 && n <= math.MaxInt32:
			return schema(connect.Int32), connect.Int32Value(int32(n)), true
		}
		return schema(connect.Int64), connect.Int64Value(n), true
	}
	if _, err := strconv.ParseFloat(trimmed, 64); err == nil {
		return nil, connect.Null, false // float, double or decimal by rules of its own
	}
	return schema(connect.String), connect.StringValue(text), true
}

// isoDate tells what Connect may take for a date or a time.
func isoDate(text string) bool {
	return len(text) >= 8 && isDigit(text[0]) && (strings.Count(text, "-") == 2 || strings.Count(text, ":") >= 2)
}

type headerFrom struct {
	side           fieldOf
	fields, header []string
	move, raw      bool
}

func newHeaderFrom(o *ownerOptions, side bool) transform {
	t := &headerFrom{side: fieldOf(side), fields: options.List(o.required("fields")), header: options.List(o.required("headers")), raw: !o.bool("replace.null.with.default", true)}
	if len(t.fields) != len(t.header) {
		o.fail("headers", "fields names %d and headers %d; they go in pairs", len(t.fields), len(t.header))
	}
	switch o.word("operation", "") {
	case "move":
		t.move = true
	case "copy":
	default:
		o.required("operation")
	}
	return t
}

func (t *headerFrom) apply(_ *Chain, r *Record) (bool, error) {
	f, err := t.side.revealed(r)
	if err != nil || f.Value.IsNull() {
		return true, err
	}
	for i, name := range t.fields {
		v, err := f.field(name)
		if err != nil {
			return false, err
		}
		if t.raw {
			v.Value = f.Value.Items()[f.Value.StructSchema().Index(name)]
		}
		r.addHeader(Header{Key: t.header[i], Schema: v.Schema, Value: v.Value})
	}
	if t.move {
		return true, f.rebuild(func(name string) (string, bool) { return name, !slices.Contains(t.fields, name) })
	}
	return true, nil
}
