package format

import (
	"encoding/json"
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// AppendColumnHeaders adds one header for each entry of a headers column:
//
//   - json, jsonb, or text holding JSON: an object; strings as they are, null as
//     a null value, other scalars and nested values as their JSON is written
//   - hstore: keys and values as they are, NULL as a null value
//   - text[] and varchar[]: key, value, key, value, …, or pairs in a second
//     dimension; a key that is NULL, or without a value, is an error
//
// With a column of values beside it, an array holds the names alone.
//
// An entry named id, or with record.OwnPrefix, is passed over, and so is what a cloudevents format
// sets. NULL adds nothing. Strings that hold no escapes alias the row; only keys are copied, once for
// each distinct key.
func (p *Content) AppendColumnHeaders(b *record.Buffer, row *wal.Row) error {
	s := p.HeadersColumn
	text, err := s.Source.HeaderText(b, row)
	if err != nil || text == nil {
		return err
	}
	switch {
	case s.Values != nil:
		err = p.appendArrays(b, row, text)
	case s.Source.Typ.Form == column.FormHstore:
		err = p.appendHstore(b, text)
	case s.Source.Typ.Form == column.FormArray:
		err = p.appendPairs(b, text)
	default:
		err = p.appendObject(b, text, s.Source.Json())
	}
	if err != nil {
		return record.Reject(fault.ReasonMapping, s.Source.Column, "headers column %q %v; correct the program that writes it, or map columns.headers to another column", s.Source.Column, err)
	}
	return nil
}

func (p *Content) appendObject(b *record.Buffer, text []byte, trusted bool) error {
	if !trusted && !json.Valid(text) {
		return jsontext.ErrNotJSON
	}
	e, ok := jsontext.OpenElements(text, '{', '}')
	if !ok {
		if string(column.TrimBlank(text)) == "null" {
			return nil
		}
		return jsontext.ErrNotObject
	}
	for name, value, ok := e.Next(); ok; name, value, ok = e.Next() {
		key, err := plain(b, name)
		if err != nil {
			return err
		}
		if p.ownHeader(key) {
			continue
		}
		if value, err = scalar(b, value); err != nil {
			return err
		}
		b.Header(p.intern(key), value)
	}
	if e.Bad {
		return jsontext.ErrNotJSON
	}
	return nil
}

// plain gives a JSON string's text from what stands between its quotes.
func plain(b *record.Buffer, inner []byte) ([]byte, error) {
	for _, c := range inner {
		if c == '\\' {
			out, err := jsontext.AppendUnescaped(b.Tail(len(inner)), inner)
			if err != nil {
				return nil, err
			}
			return b.Claim(out), nil
		}
	}
	return inner, nil
}

// scalar gives a JSON value as a header value.
func scalar(b *record.Buffer, value []byte) ([]byte, error) {
	switch {
	case string(value) == "null":
		return nil, nil
	case value[0] == '"':
		return plain(b, value[1:len(value)-1])
	}
	return value, nil
}

// maxInterned bounds the memory for header keys that come from rows.
const maxInterned = 1024

// intern gives key as a string, the same one for the same key.
func (p *Content) intern(key []byte) string {
	if s, ok := p.keys[string(key)]; ok {
		return s
	}
	if len(p.keys) >= maxInterned {
		clear(p.keys)
	}
	if p.keys == nil {
		p.keys = make(map[string]string)
	}
	s := string(key)
	p.keys[s] = s
	return s
}

var (
	errHstore  = errors.New("is not in hstore's text form")
	errArray   = errors.New("is not in an array's text form")
	errOddPair = errors.New("has a key without a value; the array holds key, value, key, value, …")
	errNullKey = errors.New("has a key that is NULL")
)

// appendHstore reads `"key"=>"value", "key"=>NULL` as hstore_out writes it.
func (p *Content) appendHstore(b *record.Buffer, text []byte) error {
	q := quotedText{text: text}
	q.space()
	for q.at < len(q.text) {
		key, null, err := q.quoted(b)
		if err != nil || null || !q.take('=') || !q.take('>') {
			return errHstore
		}
		value, null, err := q.quoted(b)
		if err != nil {
			return errHstore
		}
		if null {
			value = nil
		}
		if !p.ownHeader(key) {
			b.Header(p.intern(key), value)
		}
		q.space()
		if q.at == len(q.text) {
			return nil
		}
		if !q.take(',') {
			return errHstore
		}
		q.space()
		if q.at == len(q.text) {
			return errHstore
		}
	}
	return nil
}

// appendPairs reads an array as array_out writes it, whatever its dimensions.
func (p *Content) appendPairs(b *record.Buffer, text []byte) error {
	a := arrayText{quotedText: quotedText{text: text}}
	if !a.open() {
		return errArray
	}
	for {
		key, null, more, err := a.next(b)
		if err != nil || !more {
			return err
		}
		if null {
			return errNullKey
		}
		value, null, more, err := a.next(b)
		if err != nil {
			return err
		}
		if !more {
			return errOddPair
		}
		if null {
			value = nil
		}
		if !p.ownHeader(key) {
			b.Header(p.intern(key), value)
		}
	}
}

// quotedText reads the quoted strings of hstore and of arrays, in which a
// backslash makes the next character stand for itself.
type quotedText struct {
	text []byte
	at   int
}

func (q *quotedText) space() {
	for q.at < len(q.text) && q.text[q.at] == ' ' {
		q.at++
	}
}

func (q *quotedText) take(c byte) bool {
	if q.at < len(q.text) && q.text[q.at] == c {
		q.at++
		return true
	}
	return false
}

// quoted reads a quoted string or the word NULL.
func (q *quotedText) quoted(b *record.Buffer) (s []byte, null bool, err error) {
	if len(q.text)-q.at >= 4 && string(q.text[q.at:q.at+4]) == "NULL" {
		q.at += 4
		return nil, true, nil
	}
	if !q.take('"') {
		return nil, false, errHstore
	}
	start, escaped := q.at, false
	for q.at < len(q.text) {
		switch q.text[q.at] {
		case '"':
			s = q.text[start:q.at:q.at]
			q.at++
			if escaped {
				s = b.Claim(dropBackslashes(b.Tail(len(s)), s))
			}
			return s, false, nil
		case '\\':
			escaped = true
			q.at++
		}
		q.at++
	}
	return nil, false, errHstore
}

func dropBackslashes(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		dst = append(dst, s[i])
	}
	return dst
}

// arrayText walks the elements of an array's text form.
type arrayText struct {
	quotedText
	depth  int
	filled bool // an element or an inner array stands before the next byte
}

// open passes over bounds such as `[2:3]=` to the outermost brace.
func (a *arrayText) open() bool {
	if len(a.text) > 0 && a.text[0] == '[' {
		for a.at < len(a.text) && a.text[a.at] != '=' {
			a.at++
		}
		a.at++
	}
	if !a.take('{') {
		return false
	}
	a.depth = 1
	return true
}

func (a *arrayText) next(b *record.Buffer) (s []byte, null, more bool, err error) {
	for a.at < len(a.text) && a.depth > 0 {
		switch a.text[a.at] {
		case '{':
			if a.filled {
				return nil, false, false, errArray
			}
			a.depth++
			a.at++
		case '}':
			a.depth--
			a.at++
			a.filled = true
		case ',':
			if !a.filled {
				return nil, false, false, errArray
			}
			a.filled = false
			a.at++
		default:
			if a.filled {
				return nil, false, false, errArray
			}
			a.filled = true
			return a.element(b)
		}
	}
	if a.depth != 0 || a.at != len(a.text) {
		return nil, false, false, errArray
	}
	return nil, false, false, nil
}

func (a *arrayText) element(b *record.Buffer) (s []byte, null, more bool, err error) {
	if a.text[a.at] == '"' {
		if s, _, err = a.quoted(b); err != nil {
			return nil, false, false, errArray
		}
		return s, false, true, nil
	}
	start := a.at
	for a.at < len(a.text) && a.text[a.at] != ',' && a.text[a.at] != '}' {
		if c := a.text[a.at]; c == '"' || c == '{' || c == '\\' {
			return nil, false, false, errArray
		}
		a.at++
	}
	s = a.text[start:a.at:a.at]
	return s, string(s) == "NULL", true, nil
}
