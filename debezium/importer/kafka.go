package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kafka makes the brokers, security, topics and the few settings of the producer
// that matter.
func (c *conversion) kafka() {
	c.brokers()
	c.security()
	for _, rule := range []struct {
		name, key string
		convert   func(string) (string, bool)
	}{
		{"compression.type", "compression", compression},
		{"linger.ms", "linger", milliseconds},
		{"max.request.size", "max_message_bytes", bytesOf},
	} {
		it, ok := c.producer(rule.name)
		if !ok {
			continue
		}
		if text, ok := rule.convert(strings.TrimSpace(it.value)); ok {
			c.root.at("kafka", rule.key).set(text)
			c.remark(it, Carried, "kafka.%s", rule.key)
		} else {
			c.remark(it, NotCarried, "%s is not understood; see kafka.%s", shown(it.key, it.value), rule.key)
		}
	}
	if it, ok := c.producer("acks"); ok {
		if it.value == "all" || it.value == "-1" {
			c.remark(it, Implied, "every in-sync replica has a record before its row counts as delivered")
		} else {
			c.remark(it, NotNeeded, "the relay always waits for every in-sync replica: with less, an acknowledged row could be lost")
		}
	}
	c.topics()
	for _, it := range c.with("producer.override.") {
		if !c.done[it.key] {
			c.producerRest(it, strings.TrimPrefix(it.key, "producer.override."))
		}
	}
}

func compression(value string) (string, bool) {
	return value, slices.Contains([]string{"none", "gzip", "snappy", "lz4", "zstd"}, value)
}

func milliseconds(value string) (string, bool) {
	n, err := strconv.ParseUint(value, 10, 31)
	return fmt.Sprintf("%dms", n), err == nil
}

func bytesOf(value string) (string, bool) {
	n, err := strconv.ParseUint(value, 10, 30)
	switch {
	case err != nil || n == 0:
		return "", false
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20), true
	case n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10), true
	}
	return fmt.Sprintf("%dB", n), true
}

// producer finds a setting of the producer: the connector's override, then the
// worker's.
func (c *conversion) producer(name string) (item, bool) {
	if it, ok := c.take("producer.override." + name); ok {
		return it, true
	}
	return c.workerItem("producer." + name)
}

// workerItem takes a setting of the worker.
func (c *conversion) workerItem(key string) (item, bool) {
	p, ok := c.worker.get(key)
	if !ok {
		return item{}, false
	}
	c.done[workerMark+key] = true
	return item{property: property{workerMark + key, p.value, p.line, p.column}, original: c.worker.shownAs(key), file: c.worker.file}, true
}

// shownAs is what the file calls a key.
func (s *source) shownAs(key string) string { return cmp.Or(s.shown[key], shownKey(key)) }

// workerMark distinguishes the worker's keys from the connector's where both are counted.
const workerMark = "worker\x00"

func (c *conversion) brokers() {
	it, ok := c.producer("bootstrap.servers")
	if !ok {
		it, ok = c.workerItem("bootstrap.servers")
	}
	if !ok {
		c.root.at("kafka", "brokers").set(scalar("${KAFKA_BROKERS:-localhost:9092}"),
			"To do: the worker's bootstrap.servers; host:port, with commas between several.")
		c.missing("bootstrap.servers", ToDo, "is a setting of the Connect worker: give its file with --worker, or write kafka.brokers")
		return
	}
	value, todo := c.resolve(it.value, "KAFKA_BROKERS")
	var list []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, listener.ReplaceAllString(part, ""))
		}
	}
	c.root.at("kafka", "brokers").set(scalar(strings.Join(list, ",")))
	if len(references(it.value)) == 0 {
		c.result.Source.Brokers = strings.Join(list, ",")
	}
	c.carry(it, "kafka.brokers", todo)
}

// listener stands before the host of an address, also in a default.
var listener = regexp.MustCompile(`[A-Za-z0-9_]+://`)

func (c *conversion) security() {
	protocol, given := c.producer("security.protocol")
	name := strings.ToUpper(strings.TrimSpace(protocol.value))
	tls := strings.HasSuffix(name, "SSL")
	if tls {
		c.root.at("kafka", "tls", "enabled").set("true")
	}
	if given {
		switch name {
		case "PLAINTEXT", "SSL", "SASL_SSL":
			c.remark(protocol, Carried, "kafka.tls and kafka.sasl")
		case "SASL_PLAINTEXT":
			c.root.at("kafka", "insecure").set("true", "security.protocol SASL_PLAINTEXT: credentials go to the brokers without TLS.")
			c.remark(protocol, Carried, "kafka.insecure: credentials without TLS")
		default:
			c.remark(protocol, NotCarried, "%s is no protocol of Kafka", shown(protocol.key, protocol.value))
		}
	}
	c.stores(tls)
	c.sasl(strings.HasPrefix(name, "SASL"))
}

var jaasOption = regexp.MustCompile(`([A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))`)

// jaas takes the options out of `…LoginModule required name="value" …;`.
func jaas(value string) map[string]string {
	options := map[string]string{}
	for _, m := range jaasOption.FindAllStringSubmatch(value, -1) {
		options[m[1]] = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[2]) + m[3] + m[4]
	}
	return options
}

var mechanisms = map[string]string{
	"PLAIN": "plain", "SCRAM-SHA-256": "scram-sha-256", "SCRAM-SHA-512": "scram-sha-512", "OAUTHBEARER": "oauthbearer", "AWS_MSK_IAM": "aws-msk-iam",
}

func (c *conversion) sasl(wanted bool) {
	it, given := c.producer("sasl.mechanism")
	login, hasLogin := c.producer("sasl.jaas.config")
	if !wanted {
		for _, unused := range []struct {
			item
			ok bool
		}{{it, given}, {login, hasLogin}} {
			if unused.ok {
				c.remark(unused.item, NotNeeded, "has no effect without security.protocol SASL_SSL or SASL_PLAINTEXT")
			}
		}
		return
	}
	mechanism := mechanisms[strings.ToUpper(strings.TrimSpace(it.value))]
	if mechanism == "" {
		if given {
			c.remark(it, NotCarried, "%s is not spoken by the relay; it has plain, scram-sha-256, scram-sha-512, oauthbearer and aws-msk-iam", shown(it.key, it.value))
		} else {
			c.missing("sasl.mechanism", NotCarried, "is not given, so GSSAPI (Kerberos), which the relay does not speak; it has plain, scram-sha-256, scram-sha-512, oauthbearer and aws-msk-iam")
		}
		return
	}
	if given {
		c.remark(it, Carried, "kafka.sasl.mechanism")
	}
	sasl := c.root.at("kafka", "sasl")
	sasl.at("mechanism").set(mechanism)
	options := jaas(login.value)
	switch mechanism {
	case "oauthbearer":
		c.oauth(login, options)
	case "aws-msk-iam":
		if hasLogin {
			c.remark(login, Implied, "credentials are found as the AWS SDK does")
		}
	default:
		c.login(sasl, login, hasLogin, options)
	}
}

func (c *conversion) login(sasl *node, login item, given bool, options map[string]string) {
	user := options["username"]
	ours, todo := c.resolve(user, "KAFKA_USERNAME")
	if len(references(user)) == 0 {
		ours = literal(user)
	}
	if ours == "" {
		ours, todo = "${KAFKA_USERNAME}", []string{"set KAFKA_USERNAME"}
		c.result.Source.Placeholders["KAFKA_USERNAME"] = "sasl.jaas.config"
	}
	sasl.at("username").set(scalar(ours))
	if !given {
		c.missing("sasl.jaas.config", ToDo, "is missing: set KAFKA_USERNAME and KAFKA_PASSWORD in the relay's environment")
		sasl.at("password").set(reference2("KAFKA_PASSWORD", false))
		c.result.Source.Placeholders["KAFKA_PASSWORD"] = "sasl.jaas.config"
		return
	}
	secret := login
	secret.value = options["password"]
	c.secretKey(secret, sasl, "password", "KAFKA_PASSWORD", false)
	c.partOf(login, "password")
	if len(todo) > 0 {
		c.missing("sasl.jaas.config", ToDo, "kafka.sasl.username: %s", strings.Join(todo, "; "))
	}
}

func (c *conversion) oauth(login item, options map[string]string) {
	oauth := c.root.at("kafka", "oauth")
	endpoint, ok := c.producer("sasl.oauthbearer.token.endpoint.url")
	if ok {
		value, todo := c.resolve(endpoint.value, "KAFKA_TOKEN_ENDPOINT")
		oauth.at("token_endpoint").set(scalar(value))
		c.carry(endpoint, "kafka.oauth.token_endpoint", todo)
	} else {
		oauth.at("token_endpoint").set(reference2("KAFKA_TOKEN_ENDPOINT", false))
		c.result.Source.Placeholders["KAFKA_TOKEN_ENDPOINT"] = "sasl.oauthbearer.token.endpoint.url"
		c.missing("sasl.oauthbearer.token.endpoint.url", ToDo, "is missing: set KAFKA_TOKEN_ENDPOINT in the relay's environment")
	}
	id, _ := c.resolve(options["clientId"], "KAFKA_CLIENT_ID")
	if id == "" {
		id = "${KAFKA_CLIENT_ID}"
		c.result.Source.Placeholders["KAFKA_CLIENT_ID"] = "sasl.jaas.config"
	}
	oauth.at("client_id").set(scalar(id))
	if scope := options["scope"]; scope != "" {
		scope, _ = c.resolve(scope, "KAFKA_SCOPE")
		oauth.at("scope").set(scalar(scope))
	}
	secret := login
	secret.value = options["clientSecret"]
	if login.key == "" {
		oauth.at("client_secret").set(reference2("KAFKA_CLIENT_SECRET", false))
		c.result.Source.Placeholders["KAFKA_CLIENT_SECRET"] = "sasl.jaas.config"
		c.missing("sasl.jaas.config", ToDo, "is missing: set KAFKA_CLIENT_ID and KAFKA_CLIENT_SECRET in the relay's environment")
		return
	}
	c.secretKey(secret, oauth, "client_secret", "KAFKA_CLIENT_SECRET", false)
	c.partOf(login, "clientSecret")
}

// partOf says that the last remark, about a secret to be set, is about one option of a
// login.
func (c *conversion) partOf(login item, name string) {
	if r := &c.remarks[len(c.remarks)-1]; r.Key == login.original && r.Fate == ToDo {
		r.Text = strings.Replace(r.Text, "environment to it", "environment to its option "+name, 1)
	}
}

// stores turns key stores of PEM into our files and asks for the others to be
// converted.
func (c *conversion) stores(tls bool) {
	kind := func(name string) string {
		it, ok := c.producer(name)
		if !ok {
			return "JKS"
		}
		kind := strings.ToUpper(strings.TrimSpace(it.value))
		if kind == "PEM" {
			c.remark(it, Carried, "kafka.tls takes PEM files")
		} else {
			c.remark(it, NotNeeded, "kafka.tls takes PEM files")
		}
		return kind
	}
	trust, keys := kind("ssl.truststore.type"), kind("ssl.keystore.type")
	if it, ok := c.producer("ssl.truststore.location"); ok {
		c.store(it, tls && trust == "PEM", []string{"ca_file"}, "turn the trust store into a PEM file and name it as kafka.tls.ca_file: keytool -exportcert -rfc -keystore STORE -alias CA")
	}
	if it, ok := c.producer("ssl.keystore.location"); ok {
		c.store(it, tls && keys == "PEM", []string{"cert_file", "key_file"}, "turn the key store into PEM files and name them as kafka.tls.cert_file and key_file: openssl pkcs12 -in STORE.p12 -nodes")
	}
	for _, pem := range []struct{ name, text string }{
		{"ssl.truststore.certificates", "write the certificates into a file and name it as kafka.tls.ca_file"},
		{"ssl.keystore.certificate.chain", "write the certificate into a file and name it as kafka.tls.cert_file"},
		{"ssl.keystore.key", "is not copied: write the key into a file and name it as kafka.tls.key_file"},
	} {
		it, ok := c.producer(pem.name)
		if !ok {
			continue
		}
		var from []string
		for _, ref := range references(it.value) {
			from = append(from, describeReference(c.providerKind(ref.provider), ref))
		}
		if len(from) > 0 {
			pem.text += ": " + strings.Join(from, ", ")
		}
		c.remark(it, ToDo, "%s", pem.text)
	}
	for _, name := range []string{"ssl.truststore.password", "ssl.keystore.password", "ssl.key.password"} {
		if it, ok := c.producer(name); ok {
			c.remark(it, NotNeeded, "PEM files have no password")
		}
	}
	if it, ok := c.producer("ssl.endpoint.identification.algorithm"); ok {
		if strings.EqualFold(strings.TrimSpace(it.value), "https") {
			c.remark(it, Implied, "the name of a broker is verified")
		} else {
			c.remark(it, NotCarried, "the relay always verifies the name of a broker; kafka.tls.server_name gives the one in the certificate")
		}
	}
}

func (c *conversion) store(it item, pem bool, keys []string, convert string) {
	value, todo := c.resolve(it.value, "KAFKA_"+strings.ToUpper(keys[0]))
	if !pem {
		c.remark(it, ToDo, "%s", convert)
		return
	}
	for _, key := range keys {
		c.root.at("kafka", "tls", key).set(scalar(value))
	}
	c.carry(it, "kafka.tls."+strings.Join(keys, " and kafka.tls."), todo)
}

// topics makes create_topics. Connect leaves a missing topic to the broker, or
// makes it where topic.creation.* is set.
func (c *conversion) topics() {
	const prefix = "topic.creation.default."
	create := c.root.at("kafka", "create_topics")
	create.at("enabled").set("true")
	partitions, replicas := "-1", "-1"
	enabled := true
	if it, ok := c.workerItem("topic.creation.enable"); ok {
		enabled = !strings.EqualFold(strings.TrimSpace(it.value), "false")
		c.remark(it, Carried, "kafka.create_topics")
	}
	found := false
	var settings []item
	for _, it := range c.with(prefix) {
		switch name := strings.TrimPrefix(it.key, prefix); {
		case !enabled:
			c.remark(it, NotNeeded, "has no effect: the worker has topic.creation.enable=false")
			continue
		case name == "partitions":
			partitions = strings.TrimSpace(it.value)
		case name == "replication.factor":
			replicas = strings.TrimSpace(it.value)
		case name == "include" || name == "exclude":
			c.remark(it, NotNeeded, "the default rule has none")
			continue
		default:
			settings = append(settings, it)
		}
		found = true
		c.remark(it, Carried, "kafka.create_topics")
	}
	create.at("partitions").set(scalar(partitions))
	create.at("replication_factor").set(scalar(replicas))
	for _, it := range settings {
		create.at("config", strings.TrimPrefix(it.key, prefix)).set(scalar(literal(it.value)))
	}
	if !found {
		create.comments = append(create.comments, "Connect leaves a missing topic to the brokers' auto.create.topics.enable; the relay makes it with their defaults. Without it, a missing topic blocks.")
		c.missing("topic.creation.default.*", Offered, "is not given, so the brokers make missing topics; kafka.create_topics makes them with the brokers' defaults. Set it to false where topics are made by hand")
	}
}

// producerRest is the fate of a setting of the producer that nothing above takes.
func (c *conversion) producerRest(it item, name string) {
	fate, text := c.optionFate("producer", "", name, it)
	switch name {
	case "sasl.client.callback.handler.class", "sasl.login.callback.handler.class":
		fate, text = Implied, "kafka.sasl.mechanism says how to get credentials"
	case "ssl.protocol", "ssl.enabled.protocols":
		fate, text = NotNeeded, "TLS 1.2 or newer is agreed on with the broker"
	case "partitioner.class":
		if strings.HasSuffix(it.value, ".DefaultPartitioner") {
			fate, text = Implied, "murmur2 of the key"
		}
	case "interceptor.classes":
		fate, text = NotCarried, "interceptors are Java code"
	}
	c.remark(it, fate, "%s", text)
}
