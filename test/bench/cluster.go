package main

import (
	"context"
	"os"
	"strconv"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Contestants that write to three brokers.
const (
	relayThree    = "relay-three"
	debeziumThree = "debezium-three"
)

// startThree starts the brokers. They share the processors with everything else, so the
// figures are for comparing the contestants, and not for what three machines can do.
func (b *bench) startThree(ctx context.Context) (*cluster, error) {
	if err := b.findKafka(ctx); err != nil {
		return nil, err
	}
	three, err := sandbox.StartCluster(ctx, sandbox.ClusterOptions{Java: b.java, Jars: b.jars, Direct: true,
		JVM:      []string{"-XX:TieredStopAtLevel=" + strconv.Itoa(b.tier), "-Xms1g", "-Xmx1g"},
		Settings: map[string]string{"log.retention.check.interval.ms": "3600000", "replica.lag.time.max.ms": "30000", "broker.session.timeout.ms": "18000"}, Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	return &cluster{addrs: three.Addrs(), copies: int16(three.Brokers()), stop: three.Close}, nil
}

func compareCluster(ctx context.Context, b *bench) error {
	return b.compare(ctx, "cluster", usual(b.rows), func(c contestant) bool { return c.replicated })
}
