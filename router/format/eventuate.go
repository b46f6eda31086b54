package format

import (
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// appendEventuate writes the object that consumers of Eventuate Tram read:
// {"payload":"…","headers":{…}}, the payload's text as a string and the headers
// column as it is.
func (p *Content) appendEventuate(dst []byte, b *record.Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	dst, err := p.Payload.AppendText(append(dst, `{"payload":`...), payload)
	if err != nil {
		return dst, err
	}
	s := p.HeadersColumn.Source
	headers, err := s.HeaderText(b, row)
	if err != nil {
		return dst, err
	}
	headers = column.TrimBlank(headers)
	switch {
	case len(headers) == 0:
		headers = []byte("{}")
	case headers[0] != '{':
		return dst, record.Reject(fault.ReasonEncode, s.Column, "headers column %q %v, which value format %s needs; write an object of strings, or set value: raw", s.Column, jsontext.ErrNotObject, Eventuate)
	case !s.Json() && !json.Valid(headers):
		return dst, record.Reject(fault.ReasonEncode, s.Column, "headers column %q %v, which value format %s needs; write an object of strings, or set value: raw", s.Column, jsontext.ErrNotJSON, Eventuate)
	}
	dst = append(append(dst, `,"headers":`...), headers...)
	return append(dst, '}'), nil
}
