package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// checkTimeout bounds each question to the brokers.
const checkTimeout = 10 * time.Second

// Expected is what Check holds the topics against. All sizes are in bytes.
type Expected struct {
	topics  map[string]*expectedTopic
	payload int64 // the largest of all tables; zero when it is not known

	fate   string // see Rejected
	matter advice.Level
}

type expectedTopic struct {
	kept, read bool // see DeadLetters

	nullKeys int
	largest  int   // a batch with nothing but the largest record known
	around   int   // the most of such a batch that is not the record's value
	payload  int64 // the largest payload that a row of it has
	possible int64 // the largest payload that a row of it may have
}

// needs is the known size of a batch with the topic's largest record: that of the newest rows, or
// one with the largest payload of the table.
func (t *expectedTopic) needs() int64 {
	if t.payload == 0 {
		return int64(t.largest)
	}
	return max(int64(t.largest), t.with(t.payload))
}

// with is the size of a batch with a payload and with the largest known headers and key of the
// topic.
func (t *expectedTopic) with(payload int64) int64 {
	empty := broker.BatchSize(&record.Record{})
	return payload + int64(max(t.around, empty))
}

// Topic adds a topic of which no record is known.
func (e *Expected) Topic(name string) { e.topic(name) }

// DeadLetters adds the dead-letter topic, which has to keep its records; read says
// that the relay reads it too.
func (e *Expected) DeadLetters(name string, read bool) {
	t := e.topic(name)
	t.kept, t.read = true, read
}

// Rejected sets the words that follow "such a row" in a finding, and the finding's level. By
// default such a row blocks the relay.
func (e *Expected) Rejected(fate string, matter advice.Level) { e.fate, e.matter = fate, matter }

// Record adds a record that would be sent. Nothing of it is kept.
func (e *Expected) Record(r *record.Record) {
	t := e.topic(strings.Clone(r.Topic))
	size := broker.BatchSize(r)
	t.largest, t.around = max(t.largest, size), max(t.around, size-len(r.Value))
	if r.Key == nil {
		t.nullKeys++
	}
}

// Payload adds the size of a table's largest payload. If the table has several topics, it is not
// known to which of them that row goes.
func (e *Expected) Payload(size int64, topics ...string) {
	e.payload = max(e.payload, size)
	for _, name := range topics {
		t := e.topic(name)
		t.possible = max(t.possible, size)
		if len(topics) == 1 {
			t.payload = max(t.payload, size)
		}
	}
}

func (e *Expected) topic(name string) *expectedTopic {
	if e.topics == nil {
		e.topics = make(map[string]*expectedTopic)
	}
	if e.topics[name] == nil {
		e.topics[name] = &expectedTopic{}
	}
	return e.topics[name]
}

// Topics are the names of what was added, in order.
func (e *Expected) Topics() []string {
	names := make([]string, 0, len(e.topics))
	for name := range e.topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// CheckConfig is what Check needs to know of the configuration.
type CheckConfig struct {
	broker.Connection
	CreateTopics    Creation
	Compression     string
	MaxMessageBytes int // default 1 MiB
}

// Check asks the brokers whether the expected records can be delivered. It writes nothing; the
// brokers hand out a producer id, as at every start. ctx bounds the whole check.
func Check(ctx context.Context, cfg CheckConfig, expected Expected) advice.Findings {
	if expected.fate == "" {
		expected.Rejected("blocks the relay", advice.Fail)
	}
	c, err := newChecker(ctx, cfg, expected)
	if err != nil {
		c.fail("kafka.connection", "correct the configuration", "%v", err)
		return c.findings
	}
	defer c.client.Close()
	if !c.checkConnection() {
		return c.findings
	}
	c.checkSeeds()
	c.checkBrokers()
	c.checkIdempotence()
	c.checkSizes()
	c.checkTopics()
	return c.findings
}

type checker struct {
	ctx      context.Context
	cfg      CheckConfig
	reach    broker.Reach
	client   *kgo.Client
	admin    *kadm.Client
	expected Expected
	findings advice.Findings
}

// newChecker connects to nothing. After an error it can take findings alone.
func newChecker(ctx context.Context, cfg CheckConfig, expected Expected) (*checker, error) {
	c := &checker{ctx: ctx, cfg: cfg, expected: expected}
	var err error
	if c.cfg.Connection, err = cfg.WithDefaults(); err != nil {
		return c, err
	}
	c.cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, broker.DefaultMaxMessageBytes)
	c.cfg.CreateTopics = cfg.CreateTopics.WithDefaults()
	opts, err := c.cfg.ClientOptions()
	if err != nil {
		return c, err
	}
	if c.client, err = kgo.NewClient(append(opts, kgo.WithHooks(&c.reach), kgo.DisableClientMetrics())...); err != nil {
		return c, fmt.Errorf("configure kafka client: %w", err)
	}
	c.admin = kadm.NewClient(c.client)
	return c, nil
}

func (c *checker) add(check string, level advice.Level, next, seen string, args ...any) {
	c.findings.Add(check, level, next, "%s", strings.Join(strings.Fields(fmt.Sprintf(seen, args...)), " "))
}

func (c *checker) ok(check, seen string, args ...any) { c.add(check, advice.OK, "", seen, args...) }

func (c *checker) warn(check, next, seen string, args ...any) {
	c.add(check, advice.Warn, next, seen, args...)
}

func (c *checker) fail(check, next, seen string, args ...any) {
	c.add(check, advice.Fail, next, seen, args...)
}

// rejected is a finding about rows whose records would be refused.
func (c *checker) rejected(check, next, seen string, args ...any) {
	c.add(check, c.expected.matter, next+": such a row "+c.expected.fate, seen, args...)
}

func (c *checker) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, checkTimeout)
}

// checkConnection reports whether any broker takes us.
func (c *checker) checkConnection() bool {
	ctx, cancel := c.within()
	defer cancel()
	err := c.reach.Ready(ctx, c.client, c.cfg.Brokers)
	if err == nil {
		with := "without authentication"
		if c.cfg.SASL.Mechanism != "" {
			with = "authenticated with " + c.cfg.SASL.Mechanism
		}
		if c.cfg.TLS != nil {
			with += ", over TLS"
		}
		c.ok("kafka.connection", "connected to %s, %s", strings.Join(c.cfg.Brokers, ", "), with)
		return true
	}
	e, ok := errors.AsType[*sink.Error](err)
	check, seen, next := "kafka.connection", err.Error(), "start the brokers, or correct kafka.brokers"
	if ok && (strings.HasPrefix(e.Reason, "sasl") || strings.HasPrefix(e.Reason, "tls")) {
		check = "kafka.authentication"
		next = "correct kafka.sasl and kafka.tls"
	}
	if eof := (*kgo.ErrFirstReadEOF)(nil); errors.As(err, &eof) {
		check = "kafka.authentication"
	}
	if cause, told := advice.Split(err); told != "" { // what to do is part of the error already
		seen, next = cause, told
	}
	c.fail(check, next, "%s", seen)
	return false
}

// checkSeeds connects to each address of kafka.brokers: one that is dead is not
// missed until the others are away.
func (c *checker) checkSeeds() {
	seeds := c.client.SeedBrokers()
	if len(seeds) != len(c.cfg.Brokers) || len(seeds) == 1 {
		return // one alone has answered
	}
	ctx, cancel := c.within()
	defer cancel()
	failures := make([]error, len(seeds))
	var group sync.WaitGroup
	for i, seed := range seeds {
		group.Go(func() { _, failures[i] = seed.Request(ctx, kmsg.NewPtrApiVersionsRequest()) })
	}
	group.Wait()
	for i, err := range failures {
		if err != nil {
			c.warn("kafka.brokers", "correct kafka.brokers, or start that broker: a start needs one of them",
				"nobody answers at %s: %v", c.cfg.Brokers[i], broker.Classify(err))
		}
	}
}

// checkBrokers connects to each broker at its advertised address, as clients do, not at the
// configured one.
func (c *checker) checkBrokers() {
	ctx, cancel := c.within()
	defer cancel()
	metadata, err := c.admin.BrokerMetadata(ctx)
	if err != nil {
		c.fail("kafka.brokers", "run the check again", "ask for the brokers: %v", err)
		return
	}
	brokers := metadata.Brokers
	failures := make([]error, len(brokers))
	var group sync.WaitGroup
	for i, broker := range brokers {
		group.Go(func() {
			_, failures[i] = c.client.Broker(int(broker.NodeID)).Request(ctx, kmsg.NewPtrApiVersionsRequest())
		})
	}
	group.Wait()
	reached := 0
	for i, found := range brokers {
		if failures[i] == nil {
			reached++
			continue
		}
		c.fail("kafka.brokers", "correct advertised.listeners of the broker, name resolution or the firewall: clients connect there, not only to kafka.brokers",
			"broker %d cannot be reached at the address that it advertises, %s: %v", found.NodeID, net.JoinHostPort(found.Host, strconv.Itoa(int(found.Port))), broker.Classify(failures[i]))
	}
	if reached == len(brokers) {
		c.ok("kafka.brokers", "%s can be reached where they say", wording.Count(reached, "broker"))
	}
}

// checkIdempotence asks for a producer id, as each start does.
func (c *checker) checkIdempotence() {
	ctx, cancel := c.within()
	defer cancel()
	request := kmsg.NewPtrInitProducerIDRequest()
	request.ProducerID, request.ProducerEpoch = -1, -1
	response, err := request.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	switch {
	case err == nil:
		c.ok("kafka.idempotence", "idempotent producing is allowed")
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		c.fail("kafka.idempotence", "grant WRITE on the topics; before Kafka 2.8 also IDEMPOTENT_WRITE on the cluster: "+c.command("kafka-acls.sh", "--add --allow-principal User:… --cluster --operation IdempotentWrite"),
			"the brokers refuse an idempotent producer: %v", err)
	default:
		c.fail("kafka.idempotence", "see the broker's log; the relay needs Kafka 2.1 or later", "no producer id: %v", err)
	}
}

// checkSizes compares what is known of the records with our own limit.
func (c *checker) checkSizes() {
	largest, what := c.expected.payload, "the largest payload in the tables has"
	needs := largest
	for _, t := range c.expected.topics {
		needs = max(needs, t.needs())
		if int64(t.largest) > largest {
			largest, what = int64(t.largest), "the largest record of the newest rows takes"
		}
	}
	seen := fmt.Sprintf("%s %d bytes", what, largest)
	if needs > largest {
		seen += fmt.Sprintf(", at least %d with its key, headers and framing", needs)
	}
	switch {
	case largest == 0:
	case needs > int64(c.cfg.MaxMessageBytes):
		c.rejected("kafka.max_message_bytes", "raise kafka.max_message_bytes, and max.message.bytes of the topics with it, or store less in the row",
			"%s, and kafka.max_message_bytes is %d", seen, c.cfg.MaxMessageBytes)
	default:
		c.ok("kafka.max_message_bytes", "%s, and kafka.max_message_bytes is %d", seen, c.cfg.MaxMessageBytes)
	}
}
