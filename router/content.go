package router

import (
	"slices"
)

// content makes the value of a record, and those headers that a column or the format
// of the value gives, from the columns of a row. Its maps and the attributes of event
// are scratch, so it has one owner.
type content struct {
	id      *source
	payload *source
	trace   *source

	format    string
	tombstone bool // a payload that is empty gives a null value
	fields    []*valueField
	event     *eventPlan // nil but for the cloudevents formats

	headersColumn *headersColumn
	configured    []string          // names of the headers that the configuration gives: they replace others
	keys          map[string]string // header keys that came from rows
}

// headersColumn is a column whose entries become headers.
type headersColumn struct {
	source *source
	values *source // the values of source's names; nil where source has both
}

// replaces says of a header that the configuration gives it.
func (p *content) replaces(name string) bool { return slices.Contains(p.configured, name) }

// given adds a header that a configured one of its name replaces.
func (p *content) given(b *Buffer, name string, value []byte) {
	if len(p.configured) == 0 || !p.replaces(name) {
		b.header(name, value)
	}
}
