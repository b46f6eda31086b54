package sandbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// KafkaOptions says what the in-process brokers are like.
type KafkaOptions struct {
	Brokers    int                // defaults to 1
	Ports      []int              // fixed ports, one a broker; empty takes free ones
	Topics     map[string]int32   // topics that exist from the start, and their partitions
	AutoCreate bool               // a client that allows it creates a topic by asking for it
	Partitions int                // of a topic made without a number; defaults to 10
	DataDir    string             // keeps records over a restart; empty keeps them in memory
	TLS        *tls.Config        // server's side; nil is plain
	Users      []KafkaUser        // any user turns SASL on
	ACLs       bool               // users that are not Super may do only what their ACLs allow
	Settings   map[string]string  // broker settings such as message.max.bytes
	Speaks     *kversion.Versions // the newest that they speak, as those of an older Kafka; nil is all
	Discard    bool               // acknowledges records and forgets them, for benchmarks
	Proxied    bool               // a Proxy stands before each broker, and is what the brokers advertise
	Link       *Link              // the proxies are behind it; nil is none
}

// KafkaUser may authenticate.
type KafkaUser struct {
	Mechanism string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	Name      string
	Password  string
	Super     bool
	ACLs      []kfake.ACL // ignored for Super
}

// Kafka is a cluster of in-process brokers. Its methods may be called from any
// goroutine. It is a testing broker: what holds here is to be proven against a
// real one.
type Kafka struct {
	cluster *kfake.Cluster
	options KafkaOptions
	gate    *gate
	fronts
}

// StartKafka starts the brokers. The caller calls Close.
func StartKafka(options KafkaOptions) (*Kafka, error) {
	k := &Kafka{options: options, gate: &gate{conns: map[net.Conn]struct{}{}}}
	cluster, err := kfake.NewCluster(k.settings()...)
	if err != nil {
		return nil, fmt.Errorf("start brokers: %w", err)
	}
	k.cluster = cluster
	return k, nil
}

func (k *Kafka) settings() []kfake.Opt {
	o := k.options
	opts := []kfake.Opt{kfake.NumBrokers(max(o.Brokers, 1, len(o.Ports))), kfake.ListenFn(k.listen)}
	if len(o.Ports) > 0 {
		opts = append(opts, kfake.Ports(o.Ports...))
	}
	for topic, partitions := range o.Topics {
		opts = append(opts, kfake.SeedTopics(partitions, topic))
	}
	if o.AutoCreate {
		opts = append(opts, kfake.AllowAutoTopicCreation())
	}
	if o.Partitions > 0 {
		opts = append(opts, kfake.DefaultNumPartitions(o.Partitions))
	}
	if o.DataDir != "" {
		opts = append(opts, kfake.DataDir(o.DataDir))
	}
	if o.Speaks != nil {
		opts = append(opts, kfake.MaxVersions(o.Speaks))
	}
	if o.ACLs {
		opts = append(opts, kfake.EnableACLs())
	}
	if o.Discard {
		opts = append(opts, kfake.BlackholeProduce())
	}
	if len(o.Settings) > 0 {
		opts = append(opts, kfake.BrokerConfigs(o.Settings))
	}
	if len(o.Users) > 0 {
		opts = append(opts, kfake.EnableSASL())
	}
	for _, u := range o.Users {
		if u.Super {
			opts = append(opts, kfake.Superuser(u.Mechanism, u.Name, u.Password))
		} else {
			opts = append(opts, kfake.User(u.Mechanism, u.Name, u.Password, u.ACLs...))
		}
	}
	return opts
}

// listen puts the gate below TLS, so that a connection can be taken away at any
// moment of its life.
func (k *Kafka) listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	listener = &gatedListener{Listener: listener, gate: k.gate}
	if k.options.Proxied {
		if listener, err = k.front(listener, k.options.Link); err != nil {
			return nil, err
		}
	}
	if k.options.TLS != nil {
		listener = tls.NewListener(listener, k.options.TLS)
	}
	return listener, nil
}

// Addrs are the brokers' addresses.
func (k *Kafka) Addrs() []string { return k.cluster.ListenAddrs() }

// Cluster is the in-process cluster, for faults that have no name here.
func (k *Kafka) Cluster() *kfake.Cluster { return k.cluster }

// Close stops the brokers.
func (k *Kafka) Close() error {
	k.cluster.Close()
	return k.closeFronts()
}

// TakeAway cuts every connection and lets none in until Return, or until d has
// passed when d is positive. Records stay.
func (k *Kafka) TakeAway(d time.Duration) {
	k.gate.shut(d)
}

// Return ends a TakeAway.
func (k *Kafka) Return() { k.gate.open() }

// Away reports whether the brokers are taken away.
func (k *Kafka) Away() bool { return k.gate.isShut() }

// FailProduce answers the next n produce requests for a topic, or all until the
// returned function is called when n is negative, with an error, before anything
// is stored. An empty topic is every topic.
func (k *Kafka) FailProduce(topic string, with *kerr.Error, n int) (heal func()) {
	return k.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: with, Count: n})
}

// LoseProduceAnswers stores the records of the next n produce requests and then
// answers as if it had not.
func (k *Kafka) LoseProduceAnswers(topic string, n int) (heal func()) {
	return k.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicasAfterAppend, Count: n})
}

// DenyTopic refuses to produce to a topic, as a missing ACL does, until the
// returned function is called.
func (k *Kafka) DenyTopic(topic string) (allow func()) {
	return k.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
}

func (k *Kafka) fault(f kfake.Fault) func() {
	if f.Count == 0 {
		f.Count = 1
	}
	handle := k.cluster.Fault(f)
	return handle.Remove
}

// HoldProduce lets produce requests wait, unanswered and not stored, until the
// returned function is called.
func (k *Kafka) HoldProduce() (release func()) { return k.HoldProduceAfter(0) }

// HoldProduceAfter is HoldProduce for those after the first n.
func (k *Kafka) HoldProduceAfter(n int64) (release func()) {
	released := make(chan struct{})
	var seen atomic.Int64
	k.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-released:
			k.cluster.DropControl()
		default:
			k.cluster.KeepControl()
			if seen.Add(1) > n {
				k.cluster.SleepControl(func() { <-released })
			}
		}
		return nil, nil, false
	})
	return sync.OnceFunc(func() { close(released) })
}

// ShuffleLeaders moves every partition to a broker chosen at random.
func (k *Kafka) ShuffleLeaders() { k.cluster.ShufflePartitionLeaders() }

// CreateTopic makes a topic.
func (k *Kafka) CreateTopic(ctx context.Context, topic string, partitions int32) error {
	return k.admin(func(client *kadm.Client) error {
		response, err := client.CreateTopic(ctx, partitions, -1, nil, topic)
		if err == nil {
			err = response.Err
		}
		if err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
		return nil
	})
}

// DeleteTopic removes a topic and its records.
func (k *Kafka) DeleteTopic(ctx context.Context, topic string) error {
	return k.admin(func(client *kadm.Client) error {
		response, err := client.DeleteTopic(ctx, topic)
		if err == nil {
			err = response.Err
		}
		if err != nil {
			return fmt.Errorf("delete topic %s: %w", topic, err)
		}
		return nil
	})
}

func (k *Kafka) admin(do func(*kadm.Client) error) error {
	if k.options.TLS != nil || len(k.options.Users) > 0 {
		return errors.New("administer brokers: only plain ones can be administered here; seed the topics instead")
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addrs()...))
	if err != nil {
		return err
	}
	defer client.Close()
	return do(kadm.NewClient(client))
}
