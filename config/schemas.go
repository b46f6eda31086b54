package config

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/registry"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/schemas"
)

// schemaKinds are the languages of the values that have a schema.
var schemaKinds = map[string]encode.Kind{
	format.Avro: encode.Avro, format.JSONSchema: encode.JSONSchema, format.Protobuf: encode.Protobuf,
}

// schemaValues are their names, as messages have them.
const schemaValues = format.Avro + ", " + format.JSONSchema + " or " + format.Protobuf

const (
	checkNone      = "none"
	checkConfluent = "confluent"
	latestVersion  = "latest"
	dropUnknown    = "drop"
)

// maxID is the largest number that a registry gives a schema.
const maxID = 1<<31 - 1

// schema is how a table uses schemas. What cannot be read was refused.
func (c *Config) schema(o *outboxSettings) schemas.Config {
	s := &o.Schema
	kind, has := schemaKinds[o.Value]
	out := schemas.Config{Check: s.Check == checkConfluent && !has}
	if !has {
		return out
	}
	out.Subject = string(s.Subject)
	out.Version, _ = strconv.Atoi(s.Version)
	out.Options = encode.Options{Kind: kind, Drop: s.UnknownFields == dropUnknown, Bytes: s.Bytes, Message: s.Message, Validate: s.Validate}
	if s.File != "" {
		text, _ := c.readFile(s.File)
		given := &encode.Schema{File: s.File, ID: s.id(), Kind: kind, Text: string(text)}
		if !s.Register {
			out.Given = given
			return out
		}
		given.Subject, _ = o.literalSubject()
		out.Register = given
	}
	return out
}

// literalSubject is the one subject of a table. Its error says what makes it several.
func (o *outboxSettings) literalSubject() (string, error) {
	const next = "set schema.subject to one subject, for example orders-value, or register the schemas with the registry's own tools and leave register out"
	template, err := schemas.ParseSubject(string(o.Schema.Subject))
	if err != nil {
		return "", err
	}
	var subject strings.Builder
	for _, part := range template.Parts {
		switch {
		case part.Name == "":
			subject.WriteString(part.Literal)
		case part.Name != schemas.TopicName:
			return "", advice.Give(fmt.Errorf("needs a literal subject, and the subject %s differs by column %s of each row", template, part.Name), next)
		case len(part.Filters) > 0 || o.Topic == "" || o.TopicRegex != "" || strings.Contains(string(o.Topic), "${"):
			return "", advice.Give(fmt.Errorf("needs a literal subject, and the subject %s differs by the topic of each row", template), next)
		default:
			subject.WriteString(string(o.Topic))
		}
	}
	return subject.String(), nil
}

// id is zero for what is no number of a schema.
func (s *schemaSettings) id() uint32 {
	n, err := strconv.Atoi(s.ID)
	if err != nil || n < 1 || n > maxID {
		return 0
	}
	return uint32(n)
}

// checkSchemas looks at the keys of schemas and of the registry that has them.
func (l *loader) checkSchemas() {
	asks := false
	for i := range l.cfg.settings.Outbox {
		asks = l.checkSchema(fmt.Sprintf("outbox[%d].schema.", i), &l.cfg.settings.Outbox[i]) || asks
	}
	l.checkRegistry(asks)
}

// checkSchema reports whether the table needs a registry.
func (l *loader) checkSchema(path string, o *outboxSettings) bool {
	s := &o.Schema
	_, has := schemaKinds[o.Value]
	l.checkSchemaKeys(path, o.Value, s)
	if !has {
		if s.Check == checkConfluent && (o.Value != "" && o.Value != format.Raw || len(o.Debezium) > 0) {
			l.refuse(path+"check", "looks at payloads that are sent as they are; set value: raw, or leave it out")
			return false
		}
		return s.Check == checkConfluent
	}
	if s.Check != checkNone {
		l.refuse(path+"check", "looks at payloads that are sent as they are, and value: %s encodes them; leave it out", o.Value)
	}
	if n, err := strconv.Atoi(s.Version); s.Version != latestVersion && (err != nil || n < 1 || n > maxID) {
		l.refuse(path+"version", "%q is not allowed; allowed: latest, or a number from 1 on", s.Version)
	}
	if s.Register {
		l.checkRegister(path, o)
		return true
	}
	switch {
	case s.File == "" && s.ID != "":
		l.noEffect(path+"id", path+"file", "the file with the schema")
	case s.File == "":
		return true
	case s.ID == "":
		l.refuse(path+"id", "is missing; a file needs the number that the registry gave the schema, or register: true, with which `cdc-relay setup` registers it")
	case s.id() == 0:
		l.refuse(path+"id", "%q is not allowed with file; allowed: the number that the registry gave the schema, from 1 on", s.ID)
	case s.Subject != "":
		l.refuse(path+"subject", "has no effect beside file; leave one of them out")
	case s.Version != latestVersion:
		l.refuse(path+"version", "has no effect beside file; leave one of them out")
	}
	if _, err := l.cfg.readFile(s.File); err != nil {
		l.refuse(path+"file", "read %s: %v; %s", s.File, cause(err), readable(err))
	}
	return false
}

// checkRegister looks at what setup is to register. It has to be a schema that rows can be encoded by:
// one that cannot be used would be in the registry for good.
func (l *loader) checkRegister(path string, o *outboxSettings) {
	s := &o.Schema
	if s.ID != "" {
		l.refuse(path+"id", "has no effect with register, as the registry gives the number; leave one of them out")
	}
	subject, err := o.literalSubject()
	if err != nil {
		l.refuse(path+"register", "%v", err)
	}
	if schemaKinds[o.Value] == encode.Protobuf { // whose file is compiled, which not every registry reads
		l.refuse(path+"register", "takes no Protobuf; register the .proto file with the registry's own tools and leave this out")
		return
	}
	if s.File == "" {
		l.refuse(path+"file", "is missing; register needs the file with the schema")
		return
	}
	text, err := l.cfg.readFile(s.File)
	if err != nil {
		l.refuse(path+"file", "read %s: %v; %s", s.File, cause(err), readable(err))
		return
	}
	kind := schemaKinds[o.Value]
	schema := encode.Schema{Subject: subject, File: s.File, Kind: kind, Text: string(text)}
	if _, err := encode.Compile(schema, encode.Options{Kind: kind, Bytes: s.Bytes, Validate: s.Validate}); err != nil {
		l.refuse(path+"file", "%s: %v", s.File, err)
	}
}

// checkSchemaKeys refuses keys that have no effect with a value.
func (l *loader) checkSchemaKeys(path, value string, s *schemaSettings) {
	for _, k := range []struct {
		name   string
		set    bool
		values []string // that the key belongs to; nil: all with a schema
	}{
		{"subject", s.Subject != "", nil},
		{"version", s.Version != latestVersion, nil},
		{"file", s.File != "", nil},
		{"id", s.ID != "", nil},
		{"register", s.Register, nil},
		{"message", s.Message != "", []string{format.Protobuf}},
		{"validate", s.Validate, []string{format.JSONSchema}},
		{"unknown_fields", s.UnknownFields == dropUnknown, []string{format.Avro, format.Protobuf}},
		{"bytes", s.Bytes != "", []string{format.Avro}},
	} {
		switch {
		case !k.set || k.values == nil && schemaKinds[value] != "" || slices.Contains(k.values, value):
		case k.values == nil:
			l.noEffect(path+k.name, "outbox[].value", schemaValues)
		default:
			l.noEffect(path+k.name, "outbox[].value", strings.Join(k.values, " or "))
		}
	}
}

// checkRegistry makes the client of the registry.
func (l *loader) checkRegistry(asks bool) {
	r := &l.cfg.settings.Kafka.Registry
	const path = "kafka.registry."
	l.checkSecret(path+"password", r.Password, r.PasswordFile, nil)
	l.checkSecret(path+"token", "", r.TokenFile, nil)
	if !asks {
		for _, o := range []pair{
			{"url", strings.Join(r.URL, " ")}, {"username", r.Username}, {"password", string(r.Password)}, {"password_file", r.PasswordFile},
			{"token_file", r.TokenFile}, {"tls.ca_file", r.TLS.CAFile}, {"tls.cert_file", r.TLS.CertFile}, {"tls.key_file", r.TLS.KeyFile},
		} {
			if o.Value != "" {
				l.noEffect(path+o.Name, "outbox[].value", schemaValues+" (or outbox[].schema.check: "+checkConfluent+")")
			}
		}
		for name, changed := range map[string]bool{"timeout": r.Timeout != l.usual().Kafka.Registry.Timeout, "refresh": r.Refresh != l.usual().Kafka.Registry.Refresh} {
			if changed {
				l.noEffect(path+name, path+"url", "the address of a registry")
			}
		}
		return
	}
	if len(r.URL) == 0 {
		if !l.partial {
			l.refuse(path+"url", "is missing; a table's schema is asked for there: set it, for example [https://registry:8081]")
		}
		return
	}
	for i, address := range r.URL {
		if err := registry.CheckURL(address, r.Username != "" || r.TokenFile != "", l.cfg.settings.Kafka.Insecure); err != nil {
			l.refuse(fmt.Sprintf("%surl[%d]", path, i), "%v", err)
		}
	}
	switch {
	case r.Username != "" && r.TokenFile != "":
		l.refuse(path+"token_file", "has no effect beside username; leave one of them out")
	case r.Username == "" && (r.Password != "" || r.PasswordFile != ""):
		l.refuse(path+"username", "is missing; a password needs it")
	}
	if d := time.Duration(r.Timeout); d < 100*time.Millisecond || d > time.Minute {
		l.refuse(path+"timeout", "%v is not allowed; allowed: from 100ms to 1m", r.Timeout)
	}
	if d := time.Duration(r.Refresh); d < time.Second || d > 24*time.Hour {
		l.refuse(path+"refresh", "%v is not allowed; allowed: from 1s to 24h", r.Refresh)
	}
	l.checkRegistryTLS()
	l.cfg.registry = registry.New(registry.Config{
		URLs: append([]string(nil), r.URL...), Username: r.Username, Timeout: time.Duration(r.Timeout), TLS: l.cfg.registryTLS,
		Password: l.cfg.secretFunc(r.Password, r.PasswordFile, nil), Token: l.cfg.secretFunc("", r.TokenFile, nil),
	})
}

func (l *loader) checkRegistryTLS() {
	t := &l.cfg.settings.Kafka.Registry.TLS
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		l.refuse("kafka.registry.tls.key_file", "is missing; cert_file needs the key that belongs to it")
	case t.CertFile == "" && t.KeyFile != "":
		l.refuse("kafka.registry.tls.cert_file", "is missing; key_file needs the certificate that belongs to it")
	case !l.unread:
		if _, err := l.cfg.registryTLS(); err != nil {
			l.refuse("kafka.registry.tls", "%v", err)
		}
	}
}

// registryTLS reads the files at every call.
func (c *Config) registryTLS() (*tls.Config, error) {
	t := &c.settings.Kafka.Registry.TLS
	pool, err := c.trusted(t.CAFile)
	if err != nil {
		return nil, err
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if t.CertFile != "" {
		certificate, err := c.clientCertificate(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, err
		}
		out.Certificates = []tls.Certificate{certificate}
	}
	return out, nil
}
