// Package sink is the contract of making records durable: in order for each key, and with
// the exact records that are not.
//
// It has no Kafka client. Package kafka delivers at least once, and kafkatx in transactions
// with the position inside; producer is what the two share. topics looks after the topics, broker
// connects, auth authenticates. What a sink may be able to do beside the contract is a small interface of
// its own: Gatherer, Abandoner, Pinger, LetterKeeper, Incidents, Refuser. Package sinktest is the
// suite of the contract.
//
// A Sink promises nothing about positions: package checkpoint decides what an acknowledgement is
// worth. A Transactional commits a position with the records. No sink logs keys, values or secrets.
package sink
