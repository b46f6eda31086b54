package format

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Content makes the value of a record, and those headers that a column or the format
// of the value gives, from the columns of a row. Its maps and the attributes of event
// are scratch, so it has one owner.
type Content struct {
	Id      *column.Source
	Payload *column.Source
	Trace   *column.Source

	Format    string
	Tombstone bool // a payload that is empty gives a null value
	Fields    []*Field
	Event     *Event // nil except with the cloudevents formats

	HeadersColumn *HeadersColumn
	Configured    []string          // names of the headers that the configuration gives: they replace others
	keys          map[string]string // header keys that came from rows
}

// HeadersColumn is a column whose entries become headers.
type HeadersColumn struct {
	Source *column.Source
	Values *column.Source // the values of source's names; nil where source has both
}

// Replaces says of a header that the configuration gives it.
func (p *Content) Replaces(name string) bool { return slices.Contains(p.Configured, name) }

// given adds a header that a configured one of its name replaces.
func (p *Content) given(b *record.Buffer, name string, value []byte) {
	if len(p.Configured) == 0 || !p.Replaces(name) {
		b.Header(name, value)
	}
}
