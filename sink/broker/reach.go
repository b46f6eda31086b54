package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/peer"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reach is a hook that knows whether any broker answers.
type Reach struct {
	mu      sync.Mutex
	brokers map[int32]error // last outcome by broker; addresses of the configuration have negative ids
	last    error           // nil after an answer
}

var (
	_ kgo.HookBrokerConnect = (*Reach)(nil)
	_ kgo.HookBrokerE2E     = (*Reach)(nil)
)

// OnBrokerConnect sees connections that failed, in the handshakes too.
func (r *Reach) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		r.set(meta.NodeID, err)
	}
}

// OnBrokerE2E sees every request with its answer.
func (r *Reach) OnBrokerE2E(meta kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	err := e2e.Err()
	if err == nil {
		switch kmsg.Key(key) {
		case kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate:
			return // answered before the broker knows whether it wants us
		default:
		}
	} else if broker := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port))); kmsg.Key(key) == kmsg.SASLAuthenticate {
		err = &refusedError{broker, err}
	} else if errors.Is(err, io.EOF) {
		err = fmt.Errorf("broker %s closed the connection: %w", broker, err)
	}
	r.set(meta.NodeID, err)
}

func (r *Reach) set(broker int32, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.brokers == nil {
		r.brokers = make(map[int32]error)
	}
	r.brokers[broker] = err
	if err == nil {
		r.last = nil
		return
	}
	var before *refusedError // the same failure is seen again as one of the connection
	if errors.As(r.last, &before) && errors.Is(err, before.err) {
		return
	}
	r.last = err
}

// Reset forgets what was seen of the brokers: the client is replaced.
func (r *Reach) Reset() {
	r.mu.Lock()
	r.brokers, r.last = nil, nil
	r.mu.Unlock()
}

// Err is the latest failure when every broker's last outcome is one. An
// address of the configuration counts only until brokers are known: it is not
// used after that, so what it did last means nothing.
func (r *Reach) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.brokers) == 0 {
		return nil
	}
	seeds := true
	for id := range r.brokers {
		seeds = seeds && id < 0
	}
	for id, err := range r.brokers {
		if err == nil && (seeds || id >= 0) {
			return nil
		}
	}
	return r.last
}

// refusedError is a broker that hung up on our authentication, as some do when
// they mean no.
type refusedError struct {
	broker string
	err    error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("broker %s closed the connection during authentication (%v); check user, secret and mechanism of kafka.sasl", e.broker, e.err)
}

func (e *refusedError) Unwrap() error { return e.err }

// Cause is the latest failure, nil once any broker has answered after it.
func (r *Reach) Cause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Ready asks a broker for metadata, which connects and authenticates. client has the hook.
// The error is a *sink.Error.
func (r *Reach) Ready(ctx context.Context, client *kgo.Client, brokers []string) error {
	other, err := peer.While(ctx, brokers, peer.Kafka, client.Ping)
	if err == nil {
		return nil
	}
	if other != "" {
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError,
			Err: advice.Give(fmt.Errorf("connect to kafka %v: %s", brokers, other), "a Kafka broker is expected there: correct kafka.brokers")}
	}
	var refused *refusedError
	if cause := r.Cause(); cause != nil && (ctx.Err() != nil || errors.As(cause, &refused)) {
		err = cause // what a deadline or a hung-up connection leaves says less
	}
	e := Classify(err)
	return &sink.Error{Class: e.Class, Reason: e.Reason, Err: fmt.Errorf("connect to kafka %v: %w", brokers, e.Err)}
}
