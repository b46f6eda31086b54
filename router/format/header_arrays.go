package format

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

var errUneven = errors.New("and its column of values have different lengths")

// appendArrays adds the headers whose names are in one array and whose values
// are in another. NULL for both adds nothing.
func (p *Content) appendArrays(b *record.Buffer, row *wal.Row, names []byte) error {
	values, err := p.HeadersColumn.Values.Text(b, row)
	if err != nil {
		return err
	}
	if values == nil {
		values = []byte("{}")
	}
	keys, others := arrayText{quotedText: quotedText{text: names}}, arrayText{quotedText: quotedText{text: values}}
	if !keys.open() || !others.open() {
		return errArray
	}
	for {
		key, null, more, err := keys.next(b)
		if err != nil {
			return err
		}
		value, none, another, err := others.next(b)
		switch {
		case err != nil:
			return err
		case more != another:
			return errUneven
		case !more:
			return nil
		case null:
			return errNullKey
		case none:
			value = nil
		}
		if !p.ownHeader(key) {
			b.Header(p.intern(key), value)
		}
	}
}
