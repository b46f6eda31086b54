package router

import (
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// appendEventuate writes the object that consumers of Eventuate Tram read:
// {"payload":"…","headers":{…}}, the payload's text as a string and the headers
// column as it is.
func (p *content) appendEventuate(dst []byte, b *Buffer, row *wal.Row, payload []byte) ([]byte, error) {
	dst, err := p.payload.appendText(append(dst, `{"payload":`...), payload)
	if err != nil {
		return dst, err
	}
	s := p.headersColumn.source
	headers, err := s.headerText(b, row)
	if err != nil {
		return dst, err
	}
	headers = trimBlank(headers)
	switch {
	case len(headers) == 0:
		headers = []byte("{}")
	case headers[0] != '{':
		return dst, reject(ReasonEncode, s.column, "headers column %q %v, which value format %s needs; write an object of strings, or set value: raw", s.column, errNotObject, FormatEventuate)
	case !s.json() && !json.Valid(headers):
		return dst, reject(ReasonEncode, s.column, "headers column %q %v, which value format %s needs; write an object of strings, or set value: raw", s.column, errNotJSON, FormatEventuate)
	}
	dst = append(append(dst, `,"headers":`...), headers...)
	return append(dst, '}'), nil
}
