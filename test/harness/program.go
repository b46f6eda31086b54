package harness

import "context"

// KafkaProgram is the Java program and the folder of Apache Kafka's jars, for
// whoever runs brokers outside a test.
func KafkaProgram(ctx context.Context) (java, jars string, err error) { return apacheProgram(ctx) }
