package column

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Source is a column of one relation, or what a JSON pointer finds in it.
type Source struct {
	Index   int // into Row.Values
	Column  string
	Spec    string // as the configuration writes it: column, or column#/pointer
	Typ     Type
	Pointer []string

	Fallback *Source // read by Bytes where this one is NULL or empty; nil: none
	Base64   bool    // what the pointer finds is base64
	message  bool    // the column is the body of a logical message
}

// NewSource finds spec, `column` or `column#/json/pointer`, among rel's columns.
// A column whose whole name is spec comes first.
func NewSource(rel *wal.Relation, spec string) (*Source, error) {
	column, rest := spec, ""
	if Index(rel, spec) < 0 {
		column, rest = SplitPointer(spec)
	}
	index := Index(rel, column)
	if index < 0 {
		return nil, Missing(rel, column)
	}
	s := &Source{Index: index, Column: column, Spec: spec, message: rel.IsMessages(), Typ: TypeOf(rel.Columns[index])}
	if rest == "" {
		return s, nil
	}
	if s.Typ.Form != FormJSON && s.Typ.Form != FormText && s.Typ.Form != FormBytes {
		return nil, &record.ColumnError{Column: column, Err: advice.Give(fmt.Errorf("a JSON pointer needs JSON, and %s", s.Described(rel)), "leave the pointer out, or point into a json, jsonb, text or bytea column")}
	}
	var err error
	if s.Pointer, err = jsontext.ParsePointer(rest); err != nil {
		return nil, &record.ColumnError{Column: column, Err: err}
	}
	return s, nil
}

// Described names the column with its type.
func (s *Source) Described(rel *wal.Relation) string {
	return fmt.Sprintf("column %q of table %s is of type %s", s.Column, TableName(rel), TypeName(rel.Columns[s.Index]))
}

// Called is how an error about a row names the source.
func (s *Source) Called() string {
	switch {
	case s.message && s.Pointer != nil:
		return "the message body's member " + s.Spec[strings.IndexByte(s.Spec, '#')+1:]
	case s.message:
		return "the message body"
	}
	return fmt.Sprintf("column %q", s.Spec)
}

// Null is what a source without a value is.
func (s *Source) Null() string {
	if s.message && s.Pointer != nil {
		return "missing or null"
	}
	return "NULL"
}

// BinarySafe reports whether the text of every value of the column is known from its binary form.
func (s *Source) BinarySafe() bool { return s.Typ.exact }

// Json reports whether the server has checked that the text is JSON.
func (s *Source) Json() bool { return s.Typ.Form == FormJSON }

// Whole reports whether Bytes gives JSON that the server has checked.
func (s *Source) Whole() bool { return s.Json() && s.Pointer == nil }

// Text gives the column's text form, nil for NULL. With a pointer it is what
// lies there: strings without quotes, anything else as its JSON is written.
func (s *Source) Text(b *record.Buffer, row *wal.Row) ([]byte, error) {
	if s.Pointer != nil {
		found, err := s.Fragment(b, row)
		if err != nil || len(found) == 0 || found[0] != '"' {
			return found, err
		}
		found, err = s.Unquote(b, found)
		if err != nil || !s.Base64 {
			return found, err
		}
		return s.unbase64(b, found)
	}
	v := &row.Values[s.Index]
	switch {
	case v.Kind == wal.Text:
		return v.Data, nil
	case v.Kind == wal.Null:
		return nil, nil
	case !s.Typ.exact:
		return nil, record.RejectBinary(s.Column)
	case s.Typ.read == nil:
		return v.Data, nil
	case s.Json() && len(v.Data) > 1 && v.Data[0] == 1:
		return v.Data[1:], nil // jsonb: after the version byte
	}
	out, ok := s.Typ.read(b.Tail(2*len(v.Data)+40), v.Data)
	if !ok {
		return nil, record.Reject(fault.ReasonMapping, s.Column, "column %q is not in its type's binary format; this is a defect of the relay or of a proxy, please report it", s.Column)
	}
	return b.Claim(out), nil
}

func (s *Source) unbase64(b *record.Buffer, text []byte) ([]byte, error) {
	out, err := base64.StdEncoding.AppendDecode(b.Tail(base64.StdEncoding.DecodedLen(len(text))), text)
	if err != nil {
		return nil, record.Reject(fault.ReasonMapping, s.Column, "column %q does not hold base64 where the mapping points; correct the program that writes it, or name another preset", s.Column)
	}
	return b.Claim(out), nil
}

// Bytes is the text; of bytea it is the bytes themselves.
func (s *Source) Bytes(b *record.Buffer, row *wal.Row) ([]byte, error) {
	own, err := s.own(b, row)
	if len(own) > 0 || s.Fallback == nil || err != nil {
		return own, err
	}
	return s.Fallback.Bytes(b, row)
}

// own is Bytes without the Fallback.
func (s *Source) own(b *record.Buffer, row *wal.Row) ([]byte, error) {
	if s.Typ.Form != FormBytes || s.Pointer != nil {
		return s.Text(b, row)
	}
	return s.decoded(b, row)
}

// decoded is the value of a bytea column.
func (s *Source) decoded(b *record.Buffer, row *wal.Row) ([]byte, error) {
	v := &row.Values[s.Index]
	if v.Kind != wal.Text {
		return v.Data, nil // NULL, or the send format, which is the bytes
	}
	out, ok := unhex(b.Tail(len(v.Data)/2), v.Data)
	if !ok {
		return nil, record.Reject(fault.ReasonMapping, s.Column, "bytea column %q is not in hex format, which the connection asks for; connect to PostgreSQL itself", s.Column)
	}
	return b.Claim(out), nil
}

// Fragment gives what the pointer finds, as JSON; nil for NULL, JSON null or nothing.
func (s *Source) Fragment(b *record.Buffer, row *wal.Row) ([]byte, error) {
	whole := Source{Index: s.Index, Column: s.Column, Typ: s.Typ}
	text, err := whole.Bytes(b, row)
	if err != nil || text == nil {
		return nil, err
	}
	if !s.Json() && !json.Valid(text) {
		return nil, record.Reject(fault.ReasonMapping, s.Column, "column %q is not JSON, and the mapping points into it; write JSON, or leave the pointer out", s.Column)
	}
	found, err := jsontext.Lookup(text, s.Pointer)
	if err != nil {
		return nil, record.Reject(fault.ReasonMapping, s.Column, "column %q %v", s.Column, err)
	}
	return found, nil
}

// Unquote gives the text of a JSON string.
func (s *Source) Unquote(b *record.Buffer, quoted []byte) ([]byte, error) {
	inner := quoted[1 : len(quoted)-1]
	if !slices.Contains(inner, '\\') {
		return inner, nil
	}
	out, err := jsontext.AppendUnescaped(b.Tail(len(inner)), inner)
	if err != nil {
		return nil, record.Reject(fault.ReasonMapping, s.Column, "column %q holds a malformed JSON string; correct the program that writes it", s.Column)
	}
	return b.Claim(out), nil
}

// AppendJSON appends the column as a member of a JSON value: json and jsonb as
// they are, numbers and booleans as such, NULL as null, anything else as a
// string of its text form.
func (s *Source) AppendJSON(dst []byte, b *record.Buffer, row *wal.Row) ([]byte, error) {
	var text []byte
	var err error
	if s.Pointer != nil {
		text, err = s.Fragment(b, row)
	} else {
		text, err = s.Text(b, row)
	}
	if err != nil {
		return dst, err
	}
	switch {
	case text == nil:
		return append(dst, "null"...), nil
	case s.Pointer != nil, s.Json(), s.Typ.Form == FormInteger:
		return append(dst, text...), nil
	case s.Typ.Form == FormBool:
		if string(text) == "t" {
			return append(dst, "true"...), nil
		}
		return append(dst, "false"...), nil
	case s.Typ.Form == FormNumber && json.Valid(text): // not NaN, not Infinity
		return append(dst, text...), nil
	}
	dst, err = jsontext.AppendString(dst, text)
	if err != nil {
		return dst, s.notText(err)
	}
	return dst, nil
}

func (s *Source) notText(err error) error {
	if errors.Is(err, jsontext.ErrNotUTF8) {
		return record.Reject(fault.ReasonEncode, s.Column, "column %q is not UTF-8 text, which a JSON string needs; correct the program that writes it, or set key or value to raw", s.Column)
	}
	return err
}

// HeaderText is the text to read headers from; what a pointer finds stays JSON.
func (s *Source) HeaderText(b *record.Buffer, row *wal.Row) ([]byte, error) {
	if s.Pointer != nil {
		return s.Fragment(b, row)
	}
	return s.Text(b, row)
}

// AppendText appends text, which the source gave, as a JSON string.
func (s *Source) AppendText(dst, text []byte) ([]byte, error) {
	dst, err := jsontext.AppendString(dst, text)
	if err != nil {
		return dst, s.notText(err)
	}
	return dst, nil
}

// Nothing is how an error calls a value that is NULL or, else, empty.
func (s *Source) Nothing(null bool) string {
	if null {
		return s.Null()
	}
	return "empty"
}

// SeveralTexts gives an example of equal values of a column whose texts differ, or
// nothing. A numeric with a scale has one text for each value.
func (s *Source) SeveralTexts(rel *wal.Relation) string {
	col := rel.Columns[s.Index]
	switch name := TypeName(col); {
	case slices.Contains(s.Typ.Names, "numeric") && col.TypeMod < 0 && !strings.Contains(name, "("):
		return "1.0 and 1.00"
	case name == "citext" || strings.HasSuffix(name, ".citext"):
		return "Key and key"
	}
	return ""
}
