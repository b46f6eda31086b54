package router

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// source is a column of one relation, or what a JSON pointer finds in it.
type source struct {
	index   int // into Row.Values
	column  string
	spec    string // as the configuration writes it: column, or column#/pointer
	typ     columnType
	pointer []string

	otherwise *source // read by bytes where this one is NULL or empty; nil: none
	base64    bool    // what the pointer finds is base64
	message   bool    // the column is the body of a logical message
}

// newSource finds spec, `column` or `column#/json/pointer`, among rel's columns.
// A column whose whole name is spec comes first.
func newSource(rel *wal.Relation, spec string) (*source, error) {
	column, rest := spec, ""
	if columnIndex(rel, spec) < 0 {
		column, rest = splitPointer(spec)
	}
	index := columnIndex(rel, column)
	if index < 0 {
		return nil, noColumn(rel, column)
	}
	s := &source{index: index, column: column, spec: spec, message: isMessages(rel), typ: typeOf(rel.Columns[index])}
	if rest == "" {
		return s, nil
	}
	if s.typ.form != formJSON && s.typ.form != formText && s.typ.form != formBytes {
		return nil, &columnError{column: column, err: advise(fmt.Errorf("a JSON pointer needs JSON, and %s", s.described(rel)), "leave the pointer out, or point into a json, jsonb, text or bytea column")}
	}
	var err error
	if s.pointer, err = parsePointer(rest); err != nil {
		return nil, &columnError{column: column, err: err}
	}
	return s, nil
}

// described names the column with its type.
func (s *source) described(rel *wal.Relation) string {
	return fmt.Sprintf("column %q of table %s is of type %s", s.column, tableName(rel), TypeName(rel.Columns[s.index]))
}

// called is how an error about a row names the source.
func (s *source) called() string {
	switch {
	case s.message && s.pointer != nil:
		return "the message body's member " + s.spec[strings.IndexByte(s.spec, '#')+1:]
	case s.message:
		return "the message body"
	}
	return fmt.Sprintf("column %q", s.spec)
}

// null is what a source without a value is.
func (s *source) null() string {
	if s.message && s.pointer != nil {
		return "missing or null"
	}
	return "NULL"
}

func (s *source) binarySafe() bool { return s.typ.exact }

// json tells whether the server has checked that the text is JSON.
func (s *source) json() bool { return s.typ.form == formJSON }

// whole tells whether bytes gives JSON that the server has checked.
func (s *source) whole() bool { return s.json() && s.pointer == nil }

// text gives the column's text form, nil for NULL. With a pointer it is what
// lies there: strings without quotes, anything else as its JSON is written.
func (s *source) text(b *Buffer, row *wal.Row) ([]byte, error) {
	if s.pointer != nil {
		found, err := s.fragment(b, row)
		if err != nil || len(found) == 0 || found[0] != '"' {
			return found, err
		}
		found, err = s.unquote(b, found)
		if err != nil || !s.base64 {
			return found, err
		}
		return s.unbase64(b, found)
	}
	v := &row.Values[s.index]
	switch {
	case v.Kind == wal.Text:
		return v.Data, nil
	case v.Kind == wal.Null:
		return nil, nil
	case !s.typ.exact:
		return nil, rejectBinary(s.column)
	case s.typ.read == nil:
		return v.Data, nil
	case s.json() && len(v.Data) > 1 && v.Data[0] == 1:
		return v.Data[1:], nil // jsonb: behind the version byte
	}
	out, ok := s.typ.read(b.tail(2*len(v.Data)+40), v.Data)
	if !ok {
		return nil, reject(ReasonMapping, s.column, "column %q is not in its type's binary format; this is a defect of the relay or of what stands before the server, please report it", s.column)
	}
	return b.keep(out), nil
}

func (s *source) unbase64(b *Buffer, text []byte) ([]byte, error) {
	out, err := base64.StdEncoding.AppendDecode(b.tail(base64.StdEncoding.DecodedLen(len(text))), text)
	if err != nil {
		return nil, reject(ReasonMapping, s.column, "column %q does not hold base64 where the mapping points; correct what writes it, or name another preset", s.column)
	}
	return b.keep(out), nil
}

// bytes is text, but for bytea it gives the bytes themselves.
func (s *source) bytes(b *Buffer, row *wal.Row) ([]byte, error) {
	own, err := s.own(b, row)
	if len(own) > 0 || s.otherwise == nil || err != nil {
		return own, err
	}
	return s.otherwise.bytes(b, row)
}

// own is bytes without a look at otherwise.
func (s *source) own(b *Buffer, row *wal.Row) ([]byte, error) {
	if s.typ.form != formBytes || s.pointer != nil {
		return s.text(b, row)
	}
	return s.decoded(b, row)
}

// decoded is bytes without a look at the pointer.
func (s *source) decoded(b *Buffer, row *wal.Row) ([]byte, error) {
	v := &row.Values[s.index]
	if v.Kind != wal.Text {
		return v.Data, nil // NULL, or the send format, which is the bytes
	}
	out, ok := unhex(b.tail(len(v.Data)/2), v.Data)
	if !ok {
		return nil, reject(ReasonMapping, s.column, "bytea column %q is not in hex format, which the connection asks for; connect to PostgreSQL itself", s.column)
	}
	return b.keep(out), nil
}

// fragment gives what the pointer finds, as JSON; nil for NULL, JSON null or nothing.
func (s *source) fragment(b *Buffer, row *wal.Row) ([]byte, error) {
	whole := source{index: s.index, column: s.column, typ: s.typ}
	text, err := whole.bytes(b, row)
	if err != nil || text == nil {
		return nil, err
	}
	if !s.json() && !json.Valid(text) {
		return nil, reject(ReasonMapping, s.column, "column %q is not JSON, and the mapping points into it; write JSON, or leave the pointer out", s.column)
	}
	found, err := lookup(text, s.pointer)
	if err != nil {
		return nil, reject(ReasonMapping, s.column, "column %q %v", s.column, err)
	}
	return found, nil
}

// unquote gives the text of a JSON string.
func (s *source) unquote(b *Buffer, quoted []byte) ([]byte, error) {
	inner := quoted[1 : len(quoted)-1]
	if !slices.Contains(inner, '\\') {
		return inner, nil
	}
	out, err := appendUnescaped(b.tail(len(inner)), inner)
	if err != nil {
		return nil, reject(ReasonMapping, s.column, "column %q holds a malformed JSON string; correct what writes it", s.column)
	}
	return b.keep(out), nil
}

// appendJSON appends the column as a member of a JSON value: json and jsonb as
// they are, numbers and booleans as such, NULL as null, anything else as a
// string of its text form.
func (s *source) appendJSON(dst []byte, b *Buffer, row *wal.Row) ([]byte, error) {
	var text []byte
	var err error
	if s.pointer != nil {
		text, err = s.fragment(b, row)
	} else {
		text, err = s.text(b, row)
	}
	if err != nil {
		return dst, err
	}
	switch {
	case text == nil:
		return append(dst, "null"...), nil
	case s.pointer != nil, s.json(), s.typ.form == formInteger:
		return append(dst, text...), nil
	case s.typ.form == formBool:
		if string(text) == "t" {
			return append(dst, "true"...), nil
		}
		return append(dst, "false"...), nil
	case s.typ.form == formNumber && json.Valid(text): // not NaN, not Infinity
		return append(dst, text...), nil
	}
	dst, err = appendString(dst, text)
	if err != nil {
		return dst, s.notText(err)
	}
	return dst, nil
}

func (s *source) notText(err error) error {
	if errors.Is(err, errNotUTF8) {
		return reject(ReasonEncode, s.column, "column %q is not UTF-8 text, which a JSON string needs; correct what writes it, or set key or value to raw", s.column)
	}
	return err
}

// headerText is the text to read headers from; what a pointer finds stays JSON.
func (s *source) headerText(b *Buffer, row *wal.Row) ([]byte, error) {
	if s.pointer != nil {
		return s.fragment(b, row)
	}
	return s.text(b, row)
}

// appendText appends text, which the source gave, as a JSON string.
func (s *source) appendText(dst, text []byte) ([]byte, error) {
	dst, err := appendString(dst, text)
	if err != nil {
		return dst, s.notText(err)
	}
	return dst, nil
}

// nothing is how an error calls a value that is NULL or, else, empty.
func (s *source) nothing(null bool) string {
	if null {
		return s.null()
	}
	return "empty"
}
