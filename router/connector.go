package router

import (
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// ConnectorConfig is the configuration of another program's connector. A mapping that
// has one gives the records that the connector would write.
type ConnectorConfig interface {
	// Open checks the configuration and the fields of the mapping that it stands in. Its
	// errors are *ConfigError values, joined.
	Open(o Opening) (Connector, error)

	// Wants is what m has to be given beyond inserts.
	Wants(m *Mapping) wal.Wants
}

// Opening is what a ConnectorConfig is opened with.
type Opening struct {
	Mapping *Mapping
	RunID   string // of Config

	// Opened are those of the mappings before. One of them is returned again where records
	// of several tables depend on each other.
	Opened []Connector

	// Notice takes what Router.Notices will give; an empty column stands for the row.
	Notice func(row *wal.Row, column, text string)
}

// Connector makes the records of the tables whose mapping opened it. It belongs to one
// Router, with the Router's owner.
type Connector interface {
	// Compile makes the connector ready for the rows of rel, a table of the mapping m.
	Compile(m *Mapping, rel *wal.Relation) (ConnectorPlan, *Explanation, error)

	// Heartbeat is how often a heartbeat is due and the topic that it goes to; zero: never.
	Heartbeat() (every time.Duration, topic string)

	// Beat appends the heartbeat of now, a record without a Row. On an error it appends
	// nothing.
	Beat(b *record.Buffer, now time.Time) error

	// Counts reports whether a row's records depend on the rows of its transaction that
	// were routed before.
	Counts() bool
}

// ConnectorPlan is a Connector made ready for one relation.
type ConnectorPlan interface {
	// Route appends the records of row: none, one or more. An error appends none; headers
	// that were begun in b may be left there.
	Route(b *record.Buffer, row *wal.Row) error

	// Salvage gives what can be had of a row that Route refuses. It appends nothing.
	Salvage(b *record.Buffer, row *wal.Row) record.Record

	// ReadsAll reports whether records may show columns that the Explanation ignores.
	ReadsAll() bool
}

// Wants is what the mapping has to be given beyond inserts.
func (m *Mapping) Wants() wal.Wants {
	if m.Connector == nil {
		return wal.Wants{}
	}
	return m.Connector.Wants(m)
}

// open opens the connector of a mapping.
func (r *Router) open(m *mapping, runID string) error {
	c, err := m.Connector.Open(Opening{Mapping: &m.Mapping, RunID: runID, Opened: r.connectors, Notice: r.notices.Add})
	if err != nil {
		return err
	}
	m.connector = c
	if !slices.Contains(r.connectors, c) {
		r.connectors = append(r.connectors, c)
	}
	return nil
}

// compileConnector is compile for a mapping that has a connector.
func (m *mapping) compileConnector(rel *wal.Relation) (*plan, *Explanation, error) {
	p, e, err := m.connector.Compile(&m.Mapping, rel)
	if err != nil {
		return nil, nil, err
	}
	return &plan{relation: rel, connector: p}, e, nil
}

// HeartbeatInterval is how often Heartbeats is to be called; zero: never.
func (r *Router) HeartbeatInterval() time.Duration {
	var least time.Duration
	for _, c := range r.connectors {
		if every, _ := c.Heartbeat(); every > 0 && (least == 0 || every < least) {
			least = every
		}
	}
	return least
}

// HeartbeatTopics are where Heartbeats writes to.
func (r *Router) HeartbeatTopics() []string {
	var topics []string
	for _, c := range r.connectors {
		if every, topic := c.Heartbeat(); every > 0 {
			topics = append(topics, topic)
		}
	}
	return topics
}

// Heartbeats appends the heartbeat records that are due at now. Their Row is nil: no
// position hangs on them.
func (r *Router) Heartbeats(b *record.Buffer, now time.Time) error {
	for _, c := range r.connectors {
		every, topic := c.Heartbeat()
		if every == 0 {
			continue
		}
		if err := c.Beat(b, now); err != nil {
			return fmt.Errorf("write a heartbeat to %s: %w", topic, err)
		}
	}
	return nil
}

// SkipRow takes a row that was delivered before and is not sent again. A connector that counts
// the rows of a transaction counts it; its records are dropped.
func (r *Router) SkipRow(b *record.Buffer, row *wal.Row) {
	if !slices.ContainsFunc(r.connectors, Connector.Counts) {
		return
	}
	n := len(b.Records)
	_ = r.Route(b, row) // a row that is refused was dealt with when it came first
	b.Records = b.Records[:n]
}
