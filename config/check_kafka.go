package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/sink/auth"
)

// maxLinger is the client's.
const maxLinger = duration(time.Minute)

func (l *loader) checkKafka() {
	k := &l.cfg.settings.Kafka
	loopback := l.checkBrokers()
	l.checkTLS()
	l.checkSASL(loopback)
	if k.MaxMessageBytes < 1<<10 || k.MaxMessageBytes > 1023<<20 {
		l.refuse("kafka.max_message_bytes", "%v is not allowed; allowed: from 1KiB to 1023MiB", k.MaxMessageBytes)
	}
	if k.Linger > maxLinger {
		l.refuse("kafka.linger", "%v is too long; allowed: from 0s to %v", k.Linger, maxLinger)
	}
	if p := k.CreateTopics.Partitions; p != -1 && p < 1 {
		l.refuse("kafka.create_topics.partitions", "%d is not allowed; allowed: 1 or more, or -1 for the broker's default", p)
	}
	if r := k.CreateTopics.ReplicationFactor; r != -1 && (r < 1 || r > 1<<15-1) {
		l.refuse("kafka.create_topics.replication_factor", "%d is not allowed; allowed: 1 or more, or -1 for the broker's default", r)
	}
	l.checkCreateTopics()
	if k.Region != "" && k.SASL.Mechanism != auth.AWSMSKIAM && !l.cfg.IAM() {
		l.noEffect("kafka.region", "kafka.sasl.mechanism", auth.AWSMSKIAM+" (or postgres.auth: "+authRDSIAM+")")
	}
	l.checkKafkaPreset()
}

// checkCreateTopics refuses what nobody would look at. Without enabled it is setup
// that does, for the topic of dead letters.
func (l *loader) checkCreateTopics() {
	c, relay := &l.cfg.settings.Kafka.CreateTopics, &l.cfg.settings.Relay
	if c.Enabled || relay.OnReject == onRejectDeadLetter {
		return
	}
	usual := l.usual()
	for _, k := range []struct {
		name    string
		changed bool
	}{
		{"partitions", c.Partitions != usual.Kafka.CreateTopics.Partitions},
		{"replication_factor", c.ReplicationFactor != usual.Kafka.CreateTopics.ReplicationFactor},
		{"config", len(c.Config) > 0},
	} {
		path := "kafka.create_topics." + k.name
		if k.changed && l.cfg.origins[path].preset == "" {
			l.noEffect(path, "kafka.create_topics.enabled", "true (or relay.on_reject: "+onRejectDeadLetter+")")
		}
	}
}

// checkBrokers reports whether all of them are on this machine.
func (l *loader) checkBrokers() bool {
	brokers := l.cfg.settings.Kafka.Brokers
	if len(brokers) == 0 && !l.partial {
		l.refuse("kafka.brokers", "is missing; set it in the file, as CDC_RELAY_KAFKA_BROKERS or with --set, for example [b1:9092, b2:9092]")
	}
	loopback := true
	for i, broker := range brokers {
		if strings.Contains(broker, "@") {
			l.refuse(fmt.Sprintf("kafka.brokers[%d]", i), "holds a user or a password, which is not shown; allowed: host:port, for example b1:9092; credentials go to kafka.sasl.username and kafka.sasl.password_file, with kafka.sasl.mechanism")
			loopback = false
			continue
		}
		host, err := splitHostPort(broker)
		if err == nil && host == "" {
			err = fmt.Errorf("%q has no host", broker)
		}
		if _, port, _ := net.SplitHostPort(broker); err == nil && strings.Trim(port, "0") == "" {
			err = fmt.Errorf("%q has port 0, at which nobody listens", broker)
		}
		if err != nil {
			l.refuse(fmt.Sprintf("kafka.brokers[%d]", i), "%v; allowed: host:port, for example b1:9092", err)
		}
		loopback = loopback && auth.Loopback(host)
	}
	return loopback
}

func (l *loader) checkTLS() {
	t := &l.cfg.settings.Kafka.TLS
	if !t.Enabled {
		for _, o := range []pair{{"ca_file", t.CAFile}, {"cert_file", t.CertFile}, {"key_file", t.KeyFile}, {"server_name", t.ServerName}} {
			if o.Value != "" {
				l.noEffect("kafka.tls."+o.Name, "kafka.tls.enabled", "true")
			}
		}
		return
	}
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		l.refuse("kafka.tls.key_file", "is missing; kafka.tls.cert_file needs the key that belongs to it")
	case t.CertFile == "" && t.KeyFile != "":
		l.refuse("kafka.tls.cert_file", "is missing; kafka.tls.key_file needs the certificate that belongs to it")
	}
	if l.unread {
		return
	}
	if _, err := l.cfg.trusted(t.CAFile); err != nil {
		l.refuse("kafka.tls.ca_file", "%v", err)
	}
	if t.CertFile != "" && t.KeyFile != "" {
		if _, err := l.cfg.clientCertificate(t.CertFile, t.KeyFile); err != nil {
			l.refuse("kafka.tls.cert_file", "%v", err)
		}
	}
}

func (l *loader) checkSASL(loopback bool) {
	k := &l.cfg.settings.Kafka
	s := &k.SASL
	l.checkSecret("kafka.sasl.password", s.Password, s.PasswordFile, nil)
	l.checkOAuth()
	hasPassword := s.Password != "" || s.PasswordFile != ""
	failed := l.failed["kafka.sasl.password"] || l.failed["kafka.sasl.password_file"] // which says enough
	switch s.Mechanism {
	case auth.Plain, auth.ScramSHA256, auth.ScramSHA512:
		if s.Username == "" {
			l.refuse("kafka.sasl.username", "is missing; %s needs it", s.Mechanism)
		}
		if !hasPassword && !failed {
			l.refuse("kafka.sasl.password_file", "is missing; %s needs it, or kafka.sasl.password", s.Mechanism)
		}
	default:
		if s.Username != "" {
			l.noEffect("kafka.sasl.username", "kafka.sasl.mechanism", "plain, scram-sha-256, scram-sha-512")
		}
		if hasPassword {
			path := "kafka.sasl.password"
			if s.PasswordFile != "" {
				path += "_file"
			}
			l.noEffect(path, "kafka.sasl.mechanism", "plain, scram-sha-256, scram-sha-512")
		}
	}
	inClear := (s.Mechanism == auth.Plain || s.Mechanism == auth.OAuthBearer) && !k.TLS.Enabled && !loopback
	switch {
	case inClear && k.Insecure:
		l.warn("kafka.insecure: the credentials of %s go to the brokers in clear text", s.Mechanism)
	case inClear:
		l.refuse("kafka.sasl.mechanism", "%s without TLS shows the credentials to the network; allowed: kafka.tls.enabled: true, or kafka.insecure: true when the network is trusted", s.Mechanism)
	}
}

func (l *loader) checkOAuth() {
	o := &l.cfg.settings.Kafka.OAuth
	l.checkSecret("kafka.oauth.client_secret", o.ClientSecret, o.ClientSecretFile, nil)
	if l.cfg.settings.Kafka.SASL.Mechanism != auth.OAuthBearer {
		for _, k := range []struct {
			name  string
			given bool
		}{
			{"token_endpoint", o.TokenEndpoint != ""}, {"client_id", o.ClientID != ""}, {"client_secret", o.ClientSecret != ""},
			{"client_secret_file", o.ClientSecretFile != ""}, {"scope", o.Scope != ""}, {"extensions", len(o.Extensions) > 0},
		} {
			if k.given {
				l.noEffect("kafka.oauth."+k.name, "kafka.sasl.mechanism", auth.OAuthBearer)
			}
		}
		return
	}
	if o.ClientID == "" {
		l.refuse("kafka.oauth.client_id", "is missing; oauthbearer needs it")
	}
	if o.ClientSecret == "" && o.ClientSecretFile == "" && !l.failed["kafka.oauth.client_secret"] {
		l.refuse("kafka.oauth.client_secret_file", "is missing; oauthbearer needs it, or kafka.oauth.client_secret")
	}
	if o.TokenEndpoint == "" {
		l.refuse("kafka.oauth.token_endpoint", "is missing; oauthbearer needs it, for example https://login.example.com/oauth2/token")
		return
	}
	insecure := l.cfg.settings.Kafka.Insecure
	if err := auth.CheckTokenEndpoint(o.TokenEndpoint, insecure); err != nil {
		l.refuse("kafka.oauth.token_endpoint", "%v", err)
	} else if insecure && auth.CheckTokenEndpoint(o.TokenEndpoint, false) != nil {
		l.warn("kafka.insecure: the client's secret goes to the token endpoint in clear text")
	}
}

// usual are the defaults. A file may have all of them, as the example does, and what
// is as usual is never refused for having no effect.
func (l *loader) usual() *settings {
	var usual settings
	l.applyDefaults(reflect.ValueOf(&usual).Elem())
	return &usual
}

func (l *loader) noEffect(path, needs, values string) {
	l.refuse(path, "has no effect without %s: %s", needs, values)
}

// trusted reads the authorities; nil are those of the system.
func (c *Config) trusted(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	content, err := c.readFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; %s", file, cause(err), readable(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("read %s: it holds no certificate in PEM form", file)
	}
	return pool, nil
}

// clientCertificate never quotes the key in its errors.
func (c *Config) clientCertificate(certFile, keyFile string) (tls.Certificate, error) {
	var parts [2][]byte
	for i, file := range []string{certFile, keyFile} {
		content, err := c.readFile(file)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("read %s: %w; %s", file, cause(err), readable(err))
		}
		parts[i] = content
	}
	certificate, err := tls.X509KeyPair(parts[0], parts[1])
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read %s and %s: %w", certFile, keyFile, err)
	}
	return certificate, nil
}
