package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ClusterOptions says how to run several Apache Kafka brokers.
type ClusterOptions struct {
	Java, Jars string            // as in ApacheOptions
	Brokers    int               // defaults to 3
	Settings   map[string]string // broker settings beside the sandbox's own
	Link       *Link             // the proxies are behind it; nil is none
	Direct     bool              // clients reach the brokers themselves and not the proxies
	JVM        []string          // options beside the sandbox's own, which are for quick starts
	Log        io.Writer         // the brokers' logs; may be nil
}

// Cluster is a number of Apache Kafka brokers, each broker and controller in one
// process with a Proxy before its clients' listener, unless Direct. Replication and election do
// not pass through the proxies.
type Cluster struct {
	options ClusterOptions
	nodes   []*node
	fronts
}

type node struct {
	id                             int
	clients, internal, controllers string // host:port
	dir                            string
	out                            *tail
	process                        *process
}

// StartCluster formats and starts the brokers and returns once each answers. The
// caller calls Close.
func StartCluster(ctx context.Context, options ClusterOptions) (*Cluster, error) {
	if options.Brokers == 0 {
		options.Brokers = 3
	}
	c := &Cluster{options: options}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	id := kafkaID()
	for _, n := range c.nodes {
		if err := c.format(ctx, n, id); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	for i := range c.nodes { // together: none serves before a majority is up
		if err := c.launch(i); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	for i := range c.nodes {
		if err := c.await(ctx, i); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *Cluster) prepare() error {
	for i := range c.options.Brokers {
		n := &node{id: i + 1, out: &tail{to: c.options.Log}}
		for _, at := range []*string{&n.clients, &n.internal, &n.controllers} {
			port, err := FreePort()
			if err != nil {
				return err
			}
			*at = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
		var err error
		if n.dir, err = TempDir("kafka"); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
		proxy, err := NewProxyBehind(c.options.Link, n.clients)
		if err != nil {
			return err
		}
		c.add(proxy, n.clients)
	}
	return nil
}

func (n *node) properties() string { return filepath.Join(n.dir, "server.properties") }

func (c *Cluster) format(ctx context.Context, n *node, cluster string) error {
	if err := os.WriteFile(n.properties(), []byte(c.settings(n)), 0o600); err != nil {
		return fmt.Errorf("format Kafka: %w", err)
	}
	return formatKafka(ctx, formatting{
		java: c.options.Java, jars: c.options.Jars, cluster: cluster, node: n.id, dir: n.dir,
		settings: fmt.Sprint(len(c.nodes), c.options.Settings),
	})
}

// settings has failures noticed within seconds, so that a test of many takes
// minutes.
func (c *Cluster) settings(n *node) string {
	var voters []string
	for _, each := range c.nodes {
		voters = append(voters, strconv.Itoa(each.id)+"@"+each.controllers)
	}
	replicas := strconv.Itoa(len(c.nodes))
	insync := strconv.Itoa(max(1, len(c.nodes)-1))
	lines := []string{
		"process.roles=broker,controller",
		"node.id=" + strconv.Itoa(n.id),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"listeners=CLIENTS://" + n.clients + ",INTERNAL://" + n.internal + ",CONTROLLER://" + n.controllers,
		"advertised.listeners=CLIENTS://" + c.addr(n.id-1) + ",INTERNAL://" + n.internal,
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=INTERNAL",
		"listener.security.protocol.map=CLIENTS:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
		// The brokers have a name of their own: until they found one another no ACL is
		// loaded, and nobody else may do anything.
		"super.users=User:brokers",
		"sasl.enabled.mechanisms=PLAIN",
		"sasl.mechanism.controller.protocol=PLAIN",
		"sasl.mechanism.inter.broker.protocol=PLAIN",
		"listener.name.internal.plain.sasl.jaas.config=" + brokersLogin,
		"listener.name.controller.plain.sasl.jaas.config=" + brokersLogin,
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found=true",
		"log.dirs=" + filepath.Join(n.dir, "log"),
		"auto.create.topics.enable=false",
		"unclean.leader.election.enable=false",
		"default.replication.factor=" + replicas,
		"min.insync.replicas=" + insync,
		"offsets.topic.replication.factor=" + replicas,
		"transaction.state.log.replication.factor=" + replicas,
		"transaction.state.log.min.isr=" + insync,
		"group.initial.rebalance.delay.ms=0",
		"broker.heartbeat.interval.ms=500",
		"broker.session.timeout.ms=3000",
		"replica.lag.time.max.ms=3000",
		"controlled.shutdown.enable=true",
	}
	for name, value := range c.options.Settings {
		lines = append(lines, name+"="+value)
	}
	return strings.Join(lines, "\n") + "\n"
}

const brokersLogin = `org.apache.kafka.common.security.plain.PlainLoginModule required username="brokers" password="brokers-secret" user_brokers="brokers-secret";`

func (c *Cluster) launch(i int) error {
	n := c.nodes[i]
	args := slices.Concat(quick, []string{"-Xmx512m"}, c.options.JVM, []string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(c.options.Jars, "*"), "kafka.Kafka", n.properties()})
	cmd := exec.Command(c.options.Java, args...)
	cmd.Stdout, cmd.Stderr = n.out, n.out
	process, err := startProcess(cmd, n.dir)
	if err != nil {
		return fmt.Errorf("start Kafka: %w", err)
	}
	n.process = process
	return nil
}

func (c *Cluster) await(ctx context.Context, i int) error {
	n := c.nodes[i]
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return n.process.await(ctx, fmt.Sprintf("Kafka broker %d", n.id), 100*time.Millisecond, n.out, func(ctx context.Context) error { return pingKafka(ctx, n.clients) })
}

// Brokers is how many there are; they are numbered from 0.
func (c *Cluster) Brokers() int { return len(c.nodes) }

// Addrs are the addresses to connect to: the proxies', or with Direct the brokers' own.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for i := range c.nodes {
		addrs = append(addrs, c.addr(i))
	}
	return addrs
}

func (c *Cluster) addr(i int) string {
	if c.options.Direct {
		return c.nodes[i].clients
	}
	return c.proxies[i].Addr()
}

// Kill ends a broker as a power failure of its process would.
func (c *Cluster) Kill(i int) error {
	if c.nodes[i].process == nil {
		return fmt.Errorf("kill Kafka broker %d: it is not running", i+1)
	}
	c.nodes[i].process.kill()
	c.nodes[i].process = nil
	return nil
}

// Stop ends a broker in good order: it hands its partitions over first.
func (c *Cluster) Stop(i int) error {
	if c.nodes[i].process == nil {
		return fmt.Errorf("stop Kafka broker %d: it is not running", i+1)
	}
	c.nodes[i].process.end(syscall.SIGTERM, 20*time.Second)
	c.nodes[i].process = nil
	return nil
}

// Start starts a broker that was killed or stopped, with its records, and returns
// once it answers.
func (c *Cluster) Start(ctx context.Context, i int) error {
	if c.nodes[i].process != nil {
		return fmt.Errorf("start Kafka broker %d: it is running", i+1)
	}
	if err := c.launch(i); err != nil {
		return err
	}
	return c.await(ctx, i)
}

// Pause freezes a broker: connections stay open and nobody answers.
func (c *Cluster) Pause(i int) error { return c.signal(i, syscall.SIGSTOP) }

// Continue ends a Pause.
func (c *Cluster) Continue(i int) error { return c.signal(i, syscall.SIGCONT) }

func (c *Cluster) signal(i int, s syscall.Signal) error {
	if c.nodes[i].process == nil {
		return fmt.Errorf("signal Kafka broker %d: it is not running", i+1)
	}
	return c.nodes[i].process.signal(s)
}

// Close ends the brokers and removes their directories.
func (c *Cluster) Close() error {
	errs := []error{c.closeFronts()}
	for _, n := range c.nodes {
		if n.process != nil {
			n.process.kill()
			n.process = nil
		}
		errs = append(errs, os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}
