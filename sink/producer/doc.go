// Package producer is what the sinks that produce to Kafka share: kafka, which delivers at least once,
// and kafkatx, which delivers in transactions.
//
// Config says how to produce, and Brokers.Options are the client's options for it. FillRecord makes the
// client's record of ours, Partitioner chooses its partition, and Config.Check knows beforehand which
// records cannot be sent. Brokers knows whether the brokers answer, makes missing topics, and says what a failure
// means. It sends no record and owns no client: the order of records is each sink's own matter.
package producer
