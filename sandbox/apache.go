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

	"github.com/ory/dockertest/v3"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ApacheOptions says how to run a real Apache Kafka: one process that is broker
// and controller.
type ApacheOptions struct {
	Java     string            // the program; at least Java 17
	Jars     string            // folder with Kafka's jars
	Settings map[string]string // broker settings beside the sandbox's own
	TLS      []ApacheTLS       // listeners beside the plain one
	Links    map[string]*Link  // plain listeners behind links, by a name in capitals
	JVM      []string          // options of the Java machine behind the sandbox's own
	Log      io.Writer         // the broker's log; may be nil
}

// Apache is one Apache Kafka broker. Besides the plain listener it has one with
// SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) for the user alice, and an
// authorizer that allows what no ACL mentions.
type Apache struct {
	options   ApacheOptions
	addr      string
	sasl      string
	named     map[string]string // address by name, of listeners with TLS and behind links
	dir       string
	out       *tail
	process   *process
	container *container
}

// The user of the SASL listener.
const (
	ApacheUser     = "alice"
	ApachePassword = "alice-secret"
)

// ApacheImage is the container image that StartApacheContainer runs.
const ApacheImage = "apache/kafka"

// ApacheVersion is the version of jars and image.
const ApacheVersion = "4.3.1"

// StartApache formats a directory and starts the broker; it returns once that
// answers. The caller calls Close.
func StartApache(ctx context.Context, options ApacheOptions) (*Apache, error) {
	dir, err := TempDir("kafka")
	if err != nil {
		return nil, err
	}
	a := &Apache{options: options, dir: dir, out: &tail{to: options.Log}}
	if err := a.format(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if err := a.start(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Apache) properties() string { return filepath.Join(a.dir, "server.properties") }

func (a *Apache) format(ctx context.Context) error {
	ports := make([]string, 3+len(a.options.TLS))
	for i := range ports {
		var err error
		if ports[i], err = freeAddr("127.0.0.1"); err != nil {
			return err
		}
	}
	a.addr, a.sasl, a.named = ports[0], ports[1], map[string]string{}
	for i, listener := range a.options.TLS {
		a.named[listener.Name] = ports[3+i]
	}
	for name, link := range a.options.Links {
		var err error
		if a.named[name], err = freeAddr(link.There()); err != nil {
			return err
		}
	}
	settings, err := a.settings(ports[2])
	if err == nil {
		err = os.WriteFile(a.properties(), []byte(settings), 0o600)
	}
	if err != nil {
		return fmt.Errorf("format Kafka: %w", err)
	}
	var scram []string
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		scram = append(scram, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, ApacheUser, ApachePassword))
	}
	return formatKafka(ctx, formatting{
		java: a.options.Java, jars: a.options.Jars, cluster: kafkaID(), node: 1, dir: a.dir,
		args: scram, settings: fmt.Sprint(a.options.Settings),
	})
}

func freeAddr(host string) (string, error) {
	port, err := FreePort()
	return net.JoinHostPort(host, strconv.Itoa(port)), err
}

func (a *Apache) settings(controller string) (string, error) {
	const module = "org.apache.kafka.common.security."
	clients, protocols := "PLAINTEXT://"+a.addr+",SASL://"+a.sasl, "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
	var secured []string
	for _, listener := range a.options.TLS {
		lines, err := listener.settings()
		if err != nil {
			return "", err
		}
		secured = append(secured, lines...)
		clients += "," + listener.Name + "://" + a.named[listener.Name]
		protocols += "," + listener.Name + ":SSL"
	}
	listeners := clients + ",CONTROLLER://" + controller
	for name, link := range a.options.Links {
		_, port, _ := net.SplitHostPort(a.named[name])
		listeners += "," + name + "://" + net.JoinHostPort(link.Here(), port)
		clients += "," + name + "://" + a.named[name]
		protocols += "," + name + ":PLAINTEXT"
	}
	lines := []string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.quorum.voters=1@" + controller,
		"listeners=" + listeners,
		"advertised.listeners=" + clients,
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"listener.security.protocol.map=" + protocols,
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.sasl.plain.sasl.jaas.config=" + module + `plain.PlainLoginModule required user_` + ApacheUser + `="` + ApachePassword + `";`,
		"listener.name.sasl.scram-sha-256.sasl.jaas.config=" + module + "scram.ScramLoginModule required;",
		"listener.name.sasl.scram-sha-512.sasl.jaas.config=" + module + "scram.ScramLoginModule required;",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found=true",
		"log.dirs=" + filepath.Join(a.dir, "log"),
		"auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
	}
	lines = append(lines, secured...)
	for name, value := range a.options.Settings {
		lines = append(lines, name+"="+value)
	}
	return strings.Join(lines, "\n") + "\n", nil
}

func (a *Apache) start(ctx context.Context) error {
	args := slices.Concat(quick, []string{"-Xmx768m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}, a.options.JVM,
		[]string{"-cp", filepath.Join(a.options.Jars, "*"), "kafka.Kafka", a.properties()})
	cmd := exec.Command(a.options.Java, args...)
	cmd.Stdout, cmd.Stderr = a.out, a.out
	process, err := startProcess(cmd, a.dir)
	if err != nil {
		return fmt.Errorf("start Kafka: %w", err)
	}
	a.process = process
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	return process.await(ctx, "Kafka", 100*time.Millisecond, a.out, func(ctx context.Context) error { return pingKafka(ctx, a.addr) })
}

func pingKafka(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}

// StartApacheContainer runs the image instead. It has no SASL listener, and its
// ACLs cannot be changed.
func StartApacheContainer(ctx context.Context) (*Apache, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	a := &Apache{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), out: &tail{}}
	a.container, err = runContainer(ctx, &dockertest.RunOptions{
		Repository:   ApacheImage,
		Tag:          ApacheVersion,
		ExposedPorts: []string{"9092/tcp"},
		PortBindings: bindings("9092/tcp", port),
		Env: []string{
			"KAFKA_NODE_ID=1", "KAFKA_PROCESS_ROLES=broker,controller",
			"KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093", "KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
			// For transactions the broker connects to itself, and this machine's port is not in the container.
			"KAFKA_LISTENERS=PLAINTEXT://:9092,INSIDE://localhost:9094,CONTROLLER://:9093",
			"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://" + a.addr + ",INSIDE://localhost:9094", "KAFKA_INTER_BROKER_LISTENER_NAME=INSIDE",
			"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"KAFKA_AUTO_CREATE_TOPICS_ENABLE=false", "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1",
			"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1", "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1",
			"KAFKA_AUTHORIZER_CLASS_NAME=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND=true",
		},
	}, func(*container) error { return pingKafka(ctx, a.addr) })
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Addr is host:port of the plain listener.
func (a *Apache) Addr() string { return a.addr }

// TLSAddr is host:port of a listener with TLS.
func (a *Apache) TLSAddr(name string) string { return a.named[name] }

// LinkAddr is host:port of a listener behind a link, on the link's far side.
func (a *Apache) LinkAddr(name string) string { return a.named[name] }

// SASLAddr is host:port of the listener with SASL; empty in a container.
func (a *Apache) SASLAddr() string { return a.sasl }

// Pause freezes the broker: connections stay open and nobody answers.
func (a *Apache) Pause() error {
	if a.process == nil {
		return errors.New("pause Kafka: it does not run here as a process")
	}
	return a.process.signal(syscall.SIGSTOP)
}

// Continue ends a Pause.
func (a *Apache) Continue() error {
	if a.process == nil {
		return errors.New("continue Kafka: it does not run here as a process")
	}
	return a.process.signal(syscall.SIGCONT)
}

// Restart stops the broker and starts it on the same port with its records.
func (a *Apache) Restart(ctx context.Context) error {
	if a.process == nil {
		return errors.New("restart Kafka: it does not run here as a process")
	}
	a.process.end(syscall.SIGTERM, 15*time.Second)
	return a.start(ctx)
}

// Close ends the broker and removes its directory.
func (a *Apache) Close() error {
	if a.container != nil {
		return a.container.close()
	}
	if a.process != nil {
		a.process.kill()
		a.process = nil
	}
	return os.RemoveAll(a.dir)
}
