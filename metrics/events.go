package metrics

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/prometheus/client_golang/prometheus"
)

// Events are the calls that feed the counters and histograms.
func (m *Metrics) Events() relay.Events {
	return relay.Events{
		Reconnecting:     func(reason string, _ error) { m.reconnects.WithLabelValues(reason).Inc() },
		StateChanged:     func(_, to status.State, _ string) { m.changes.WithLabelValues(string(to)).Inc() },
		BatchReceived:    m.batchReceived,
		TransactionEnded: func(e sink.Ending) { m.endings.WithLabelValues(string(e)).Inc() },
		SchemaAsked:      func(outcome string) { m.schemas.WithLabelValues(outcome).Inc() },
		Events: delivery.Events{
			RecordsAcknowledged: m.acknowledged,
			BatchDelivered:      m.batchDelivered,
			RowRejected:         func(reason string, _ error) { m.rejected.WithLabelValues(reason).Inc() },
			DeadLettered:        func(reason string) { m.letters.WithLabelValues(reason).Inc() },
			ProduceRetried:      func(reason string) { m.retried.WithLabelValues(reason).Inc() },
		},
	}
}

// ops are the labels of changes that are no inserts. The end of a transaction is no row.
var ops = map[wal.Op]string{wal.Update: "update", wal.Delete: "delete", wal.Truncate: "truncate"}

func (m *Metrics) batchReceived(b *wal.Batch) {
	m.receivedBytes.Add(float64(b.Received))
	m.transactions.Add(float64(b.Transactions))
	m.skippedTable.Add(float64(b.Foreign))
	m.skippedOp.Add(float64(b.OtherOps))
	if len(b.Rows) == 0 {
		return
	}
	m.rows.add(func(item func(string)) {
		var relation *wal.Relation
		var table string
		for i := range b.Rows {
			if r := b.Rows[i].Relation; r != relation {
				relation, table = r, r.Qualified()
			}
			if c := b.Rows[i].Change; c == nil {
				item(table)
			} else if op, ok := ops[c.Op]; ok {
				m.rowsByOp.WithLabelValues(table, op).Inc()
			}
		}
	})
}

func (m *Metrics) acknowledged(records []record.Record) {
	m.published.add(func(item func(string)) {
		for i := range records {
			item(records[i].Topic)
		}
	})
}

func (m *Metrics) batchDelivered(b *wal.Batch, records []record.Record, took time.Duration) {
	if len(records) > 0 {
		m.produceTime.Observe(took.Seconds())
	}
	now := m.now()
	sampled, trace := m.exemplar(now, records)
	var txn *wal.Txn
	for i := range b.Rows {
		if b.Rows[i].Txn != txn {
			txn = b.Rows[i].Txn
			if !txn.Time.IsZero() { // a message outside any transaction has no commit time
				of := ""
				if txn == sampled {
					of = trace
				}
				m.observeAge(now.Sub(txn.Time), of)
			}
		}
	}
}

// observeAge counts an age; trace is an example of it, or empty.
func (m *Metrics) observeAge(age time.Duration, trace string) {
	if age < 0 {
		m.clockSkew.Inc()
		age = 0
	}
	if observer, ok := m.eventAge.(prometheus.ExemplarObserver); ok && trace != "" {
		observer.ObserveWithExemplar(age.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	m.eventAge.Observe(age.Seconds())
}
