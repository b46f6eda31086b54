package debezium

import (
	"errors"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
)

// Setting is one option of Debezium or Kafka Connect under its own name.
type Setting struct{ Name, Value string }

// Config holds options of Debezium's PostgreSQL connector, its transforms and
// converters under their own names. They decide what the records are, and of the fields
// of a Mapping only those may be set beside them that say the same as one of them.
type Config []Setting

// Open compiles the options, or shares what an earlier mapping opened with them.
func (s Config) Open(o router.Opening) (router.Connector, error) {
	for _, other := range o.Opened {
		if d, ok := other.(*connector); ok && slices.Equal(d.settings, s) && sameConnector(d.mapping, o.Mapping) {
			return d, nil
		}
	}
	d, errs := newConnector(o.Mapping, s, o.RunID)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	d.settings, d.mapping, d.chain.Notice = s, o.Mapping, o.Notice
	return d, nil
}

// sameConnector reports whether two mappings with the same options differ in nothing but
// the table.
func sameConnector(a, b *router.Mapping) bool {
	return a.Columns == b.Columns && a.TopicRegex == b.TopicRegex &&
		a.Partition == b.Partition && a.TombstoneOnEmpty == b.TombstoneOnEmpty && a.Topic == b.Topic && a.Value == b.Value && a.Key == b.Key
}

// Wants is what the options look at beyond inserts.
func (s Config) Wants(m *router.Mapping) wal.Wants {
	d, errs := newConnector(m, s, "")
	if len(errs) > 0 {
		return wal.Wants{} // New reports them
	}
	return d.wants()
}
