package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config/document"
	"github.com/cdc-relay/cdc-relay/loopback"
	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/cdc-relay/cdc-relay/tracing/export"
)

type tracingSettings struct {
	Endpoint          string             `yaml:"endpoint" desc:"Address of the collector for OTLP over HTTP, as http(s)://host:4318. Empty: no spans; a row's trace context is passed on as it is."`
	HeadersFile       string             `yaml:"headers_file" desc:"File of name=value lines that are sent as headers, for example authorization=Bearer …; read again for every request."`
	Sample            string             `yaml:"sample" default:"parent" enum:"parent,parent_or_ratio" desc:"Which rows are traced. parent: those whose trace context is sampled; parent_or_ratio: also a part of the rows without a context."`
	Ratio             float64            `yaml:"ratio" default:"0" desc:"With parent_or_ratio: that part, from 0 to 1."`
	MaxSpansPerSecond int                `yaml:"max_spans_per_second" default:"1000" desc:"Spans a second at most, 2 to 100000; a row has two. The header of a row beyond that stays as it is."`
	Mode              string             `yaml:"mode" default:"child" enum:"child,link" desc:"child: spans are part of the row's trace; link: they are a trace of their own, with a link to it."`
	TLS               tracingTLSSettings `yaml:"tls" desc:"TLS to the collector, with https. Files are read again for every connection."`
}

type tracingTLSSettings struct {
	CAFile   string `yaml:"ca_file" desc:"PEM file of the authorities to trust. Empty: the system's."`
	CertFile string `yaml:"cert_file" desc:"PEM file of the client certificate."`
	KeyFile  string `yaml:"key_file" desc:"PEM file of the client certificate's key."`
}

// tracingFromEnvironment is what OpenTelemetry's variables say that no key says.
type tracingFromEnvironment struct {
	headers map[string]string
	timeout time.Duration
	plain   bool
}

const (
	maxSpansPerSecond = 100_000

	tracesPath = "/v1/traces"
	usualGRPC  = "4317"
)

// otel is the value of one of OpenTelemetry's variables: that for traces wins.
func (l *loader) otel(suffix string) (value, name string) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + suffix, "OTEL_EXPORTER_OTLP_" + suffix} {
		if value := strings.TrimSpace(l.env[name]); value != "" {
			return value, name
		}
	}
	return "", ""
}

// fromOTel sets a key that nothing else set.
func (l *loader) fromOTel(path, suffix string) {
	if value, name := l.otel(suffix); value != "" && !l.cfg.Given(path) {
		l.assign(path, value, origin{source: "env " + name})
	}
}

func (l *loader) checkTracing() {
	t := &l.cfg.settings.Tracing
	if t.Endpoint == "" && l.env["OTEL_SDK_DISABLED"] != "true" && l.env["OTEL_TRACES_EXPORTER"] != "none" {
		l.fromOTel("tracing.endpoint", "ENDPOINT")
	}
	if t.Ratio < 0 || t.Ratio > 1 {
		l.refuse("tracing.ratio", "%v is not allowed; allowed: from 0 to 1", t.Ratio)
	}
	if n := t.MaxSpansPerSecond; n < tracing.PerRow || n > maxSpansPerSecond {
		l.refuse("tracing.max_spans_per_second", "%d is not allowed; allowed: from %d to %d", n, tracing.PerRow, maxSpansPerSecond)
	}
	if t.Endpoint == "" {
		l.refuseWithoutEndpoint()
		return
	}
	if t.Ratio > 0 && t.Sample != string(tracing.ParentOrRatio) {
		l.noEffect("tracing.ratio", "tracing.sample", string(tracing.ParentOrRatio))
	}
	u := l.checkEndpoint()
	if u == nil {
		return
	}
	l.checkProtocol()
	l.readOTelRest()
	l.checkTracingHeaders(u)
	l.checkTracingTLS(u)
}

// refuseWithoutEndpoint refuses what nobody would look at.
func (l *loader) refuseWithoutEndpoint() {
	t, usual := l.cfg.settings.Tracing, l.usual().Tracing
	for _, k := range []struct {
		name    string
		changed bool
	}{
		{"headers_file", t.HeadersFile != ""}, {"sample", t.Sample != usual.Sample}, {"ratio", t.Ratio != usual.Ratio},
		{"max_spans_per_second", t.MaxSpansPerSecond != usual.MaxSpansPerSecond}, {"mode", t.Mode != usual.Mode},
		{"tls.ca_file", t.TLS.CAFile != ""}, {"tls.cert_file", t.TLS.CertFile != ""}, {"tls.key_file", t.TLS.KeyFile != ""},
	} {
		if k.changed {
			l.noEffect("tracing."+k.name, "tracing.endpoint", "the collector's address")
		}
	}
}

// checkEndpoint returns the address, or nil where it is none.
func (l *loader) checkEndpoint() *url.URL {
	const path, form = "tracing.endpoint", "http://host:4318 or https://host:4318"
	text := l.cfg.settings.Tracing.Endpoint
	u, err := url.Parse(text)
	switch {
	case hasUserinfo(text):
		if at := l.cfg.origins[path]; at.line > 0 && l.cfg.doc != nil {
			l.cfg.doc.Hide(&document.Node{Kind: document.Text, Line: at.line, Column: at.column, LastLine: at.line})
		}
		l.refuse(path, "holds credentials; put them into tracing.headers_file as authorization=…")
		return nil
	case err != nil || u.Scheme != "http" && u.Scheme != "https":
		l.refuse(path, "%q has no scheme; allowed: %s", text, form)
		return nil
	case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		l.refuse(path, "%q is no address of a collector; allowed: %s", text, form)
		return nil
	case u.Port() == usualGRPC:
		l.warn("%s: port 4317 is usually gRPC, which the relay does not speak; OTLP over HTTP is 4318", path)
	}
	return u
}

func (l *loader) checkProtocol() {
	if protocol, name := l.otel("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		l.fail(origin{source: "env " + name}, "", fmt.Sprintf("%q is not allowed; allowed: http/protobuf. The relay sends no other, and tracing.endpoint is set: remove the variable, or the endpoint", protocol))
	}
}

// readOTelRest reads the variables that are no keys.
func (l *loader) readOTelRest() {
	if text, name := l.otel("COMPRESSION"); text != "" && text != "gzip" {
		l.cfg.tracing.plain = true
		if text != "none" {
			l.fail(origin{source: "env " + name}, "", fmt.Sprintf("%q is not allowed; allowed: gzip, none", text))
		}
	}
	if text, name := l.otel("TIMEOUT"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 600_000 {
			l.fail(origin{source: "env " + name}, "", fmt.Sprintf("%q is not allowed; allowed: milliseconds, from 1 to 600000", text))
		}
		l.cfg.tracing.timeout = time.Duration(n) * time.Millisecond
	}
}

func (l *loader) checkTracingHeaders(u *url.URL) {
	t := &l.cfg.settings.Tracing
	text, name := l.otel("HEADERS")
	switch {
	case t.HeadersFile != "" && !l.unread:
		if _, err := l.cfg.headersOf(t.HeadersFile); err != nil {
			l.refuse("tracing.headers_file", "%v", err)
		}
	case t.HeadersFile == "" && text != "":
		headers, err := headersOfVariable(text)
		if err != nil {
			l.fail(origin{source: "env " + name}, "", err.Error())
		}
		l.cfg.tracing.headers = headers
	}
	if (t.HeadersFile != "" || text != "") && u.Scheme == "http" && !loopback.Is(u.Hostname()) {
		l.warn("tracing.endpoint: the headers of tracing.headers_file go to the collector in clear text; use https")
	}
}

func (l *loader) checkTracingTLS(u *url.URL) {
	t := &l.cfg.settings.Tracing.TLS
	if u.Scheme != "https" {
		for _, k := range []pair{{"ca_file", t.CAFile}, {"cert_file", t.CertFile}, {"key_file", t.KeyFile}} {
			if k.Value != "" {
				l.noEffect("tracing.tls."+k.Name, "tracing.endpoint", "https://…")
			}
		}
		return
	}
	l.fromOTel("tracing.tls.ca_file", "CERTIFICATE")
	l.fromOTel("tracing.tls.cert_file", "CLIENT_CERTIFICATE")
	l.fromOTel("tracing.tls.key_file", "CLIENT_KEY")
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		l.refuse("tracing.tls.key_file", "is missing; tracing.tls.cert_file needs the key that belongs to it")
	case t.CertFile == "" && t.KeyFile != "":
		l.refuse("tracing.tls.cert_file", "is missing; tracing.tls.key_file needs the certificate that belongs to it")
	}
	if l.unread {
		return
	}
	if _, err := l.cfg.trusted(t.CAFile); err != nil {
		l.refuse("tracing.tls.ca_file", "%v", err)
	}
	if t.CertFile != "" && t.KeyFile != "" {
		if _, err := l.cfg.clientCertificate(t.CertFile, t.KeyFile); err != nil {
			l.refuse("tracing.tls.cert_file", "%v", err)
		}
	}
}

// ownHeaders are those that the relay sets itself.
var ownHeaders = []string{"content-type", "content-encoding", "content-length", "transfer-encoding", "host"}

var errHeader = errors.New("holds no name=value; a name has letters, digits and hyphens, a value visible ASCII characters and spaces")

// header takes name=value apart. Its errors hold neither.
func header(text string) (name, value string, err error) {
	name, value, found := strings.Cut(text, "=")
	name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
	other := func(r rune) bool {
		return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	}
	if !found || name == "" || strings.ContainsFunc(name, other) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", "", errHeader
	}
	if slices.Contains(ownHeaders, name) {
		return "", "", fmt.Errorf("sets %s, which the relay sets itself; leave it out", name)
	}
	return name, value, nil
}

// headersOf reads a file of headers: one a line, comments begin with #.
func (c *Config) headersOf(file string) (map[string]string, error) {
	content, err := c.readFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; %s", file, cause(err), readable(err))
	}
	headers := make(map[string]string)
	for i, line := range strings.Split(string(content), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, err := header(line)
		if err != nil {
			return nil, fmt.Errorf("read %s: line %d %w", file, i+1, err)
		}
		headers[name] = value
	}
	return headers, nil
}

// headersOfVariable reads OTEL_EXPORTER_OTLP_HEADERS: pairs with commas between them, values with
// percent signs.
func headersOfVariable(text string) (map[string]string, error) {
	headers := make(map[string]string)
	for i, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, found := strings.Cut(part, "=")
		plain, err := url.PathUnescape(value)
		if err != nil || !found {
			return nil, fmt.Errorf("entry %d %w", i+1, errHeader)
		}
		if name, value, err = header(name + "=" + plain); err != nil {
			return nil, fmt.Errorf("entry %d %w", i+1, err)
		}
		headers[name] = value
	}
	return headers, nil
}

// Tracing says which rows are traced and where their spans go; nil: none are. Version is left to the
// caller.
func (c *Config) Tracing() (*export.Config, tracing.Config) {
	t := &c.settings.Tracing
	of := tracing.Config{Sample: tracing.Sample(t.Sample), Ratio: t.Ratio, Mode: tracing.Mode(t.Mode), MaxPerSecond: t.MaxSpansPerSecond}
	if t.Endpoint == "" {
		return nil, of
	}
	if parts, ok := c.settings.Postgres.URL.parse(); ok {
		of.Database = parts.database
	}
	to := &export.Config{
		Endpoint: c.tracesEndpoint(), Plain: c.tracing.plain, Timeout: c.tracing.timeout,
		Resource: tracing.Resource{Pipeline: c.settings.Pipeline, Slot: c.settings.Postgres.Slot},
		TLS:      func() (*tls.Config, error) { return c.readTLS(t.TLS.CAFile, t.TLS.CertFile, t.TLS.KeyFile, "") },
	}
	switch {
	case t.HeadersFile != "":
		to.Headers = func() (map[string]string, error) { return c.headersOf(t.HeadersFile) }
	case len(c.tracing.headers) > 0:
		to.Headers = func() (map[string]string, error) { return c.tracing.headers, nil }
	}
	return to, of
}

// tracesEndpoint is the endpoint with the path of traces. The variable for traces has it already.
func (c *Config) tracesEndpoint() string {
	text := c.settings.Tracing.Endpoint
	if c.origins["tracing.endpoint"].source == "env OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" {
		return text
	}
	if text = strings.TrimRight(text, "/"); strings.HasSuffix(text, tracesPath) {
		return text
	}
	return text + tracesPath
}
