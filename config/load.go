package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config/document"
	"github.com/cdc-relay/cdc-relay/registry"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Options say where a configuration comes from. The zero value is the process's
// own environment and the usual places of the file.
type Options struct {
	Path    string   // --config; empty: $CDC_RELAY_CONFIG, ./cdc-relay.yaml, /etc/cdc-relay/config.yaml, else no file
	Set     []string // --set key=value, the later wins
	Environ []string // NAME=value; nil takes os.Environ

	// Partial lets postgres.url, kafka.brokers and outbox be missing, for what needs
	// names only.
	Partial bool

	// WithoutSecrets opens no file that holds a secret or a certificate, and lets
	// secrets be missing that a value refers to, except those of http: for what asks
	// neither PostgreSQL nor Kafka.
	WithoutSecrets bool

	// ReadFile reads the file, secrets and certificates, also later on, at each
	// use of a secret. Nil reads them from disk, up to 1 MiB.
	ReadFile func(name string) ([]byte, error)
}

// Config is a valid configuration. It never changes, so any goroutine may use it.
type Config struct {
	Path     string // the file it came from; empty: none
	Log      Log
	Warnings []string // what is legal and probably not meant; never holds secrets

	settings settings
	tracing  tracingFromEnvironment
	tables   []wal.Table
	messages []string // prefixes
	origins  map[string]origin
	blank    map[string]origin            // keys of the file without a value, which are as if not there
	doc      *document.Document           // for excerpts; nil without a file
	readFile func(string) ([]byte, error) // also looks at $CREDENTIALS_DIRECTORY
	registry *registry.Client             // nil without one
}

// Found is the file that Load takes when none is named; empty: there is none.
func Found() string {
	for _, path := range usualPaths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// usualPaths are tried in order when no file is named.
var usualPaths = []string{"cdc-relay.yaml", "/etc/cdc-relay/config.yaml"}

// origin is where a value was set. The zero value is the default.
type origin struct {
	source       string // file, environment variable or flag
	line, column int    // in a file
	preset       string // the value comes with this preset, which was set there
	assigned     string // for errors: the flag with what it sets, as --set postgres.slot=x
}

// text is the origin in errors.
func (o origin) text() string { return cmp.Or(o.assigned, o.source) }

func (o origin) String() string {
	switch {
	case o.preset != "":
		return "preset " + o.preset
	case o.source == "":
		return "default"
	case o.line > 0:
		return fmt.Sprintf("from %s:%d", o.source, o.line)
	}
	return "from " + o.source
}

// Load reads and checks everything that can be checked without a server. The
// error is an *Errors with every mistake.
func Load(o Options) (*Config, error) {
	l := newLoader(o)
	l.applyDefaults(reflect.ValueOf(&l.cfg.settings).Elem())
	if !l.loadFile(o.Path) {
		return nil, l.failure()
	}
	l.loadEnvironment()
	for _, assignment := range o.Set {
		l.loadFlag(assignment)
	}
	l.applyKafkaPreset()
	l.check()
	if err := l.failure(); err != nil {
		return nil, err
	}
	l.cfg.Log = l.cfg.settings.Log
	return l.cfg, nil
}

// loader gathers one Config and every mistake on the way.
type loader struct {
	cfg     *Config
	env     map[string]string
	names   []string // of env, in order
	expand  expander
	read    func(string) ([]byte, error) // as given: the configuration itself is no credential
	partial bool
	nowhere bool            // there is no file
	unread  bool            // WithoutSecrets
	failed  map[string]bool // keys with a mistake: later checks of them would only confuse
	within  map[string]bool // what such keys are a part of
	errs    Errors
}

func newLoader(o Options) *loader {
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	own := readFile
	if o.ReadFile == nil {
		o.ReadFile = readWhole
	} else {
		own = o.ReadFile
	}
	l := &loader{
		cfg:    &Config{origins: map[string]origin{}, blank: map[string]origin{}},
		env:    make(map[string]string, len(o.Environ)),
		failed: map[string]bool{},
		within: map[string]bool{},
	}
	for _, assignment := range o.Environ {
		name, value, _ := strings.Cut(assignment, "=")
		if _, twice := l.env[name]; !twice {
			l.names = append(l.names, name)
		}
		l.env[name] = value
	}
	l.read, l.partial, l.unread = own, o.Partial, o.WithoutSecrets
	l.cfg.readFile = credentials(o.ReadFile, l.env["CREDENTIALS_DIRECTORY"])
	l.expand = expander{env: l.env, readFile: l.cfg.readFile}
	return l
}

func (l *loader) failure() error {
	if len(l.errs.List) == 0 {
		return nil
	}
	l.errs.sort()
	l.errs.Warnings = l.cfg.Warnings
	l.errs.Log, l.errs.Pipeline = l.cfg.settings.Log, l.cfg.settings.Pipeline
	if l.nowhere && slices.ContainsFunc(l.errs.List, func(e *Error) bool { return e.Source == "" }) { // something is missing
		l.errs.Warnings = append(slices.Clone(l.errs.Warnings), "no configuration file was found: there is no "+strings.Join(usualPaths, " in this directory and no ")+
			"; name one with --config FILE or CDC_RELAY_CONFIG")
	}
	return &l.errs
}

// loadFile reports false when there is nothing to continue with.
func (l *loader) loadFile(path string) bool {
	content, path, err := l.findFile(path)
	if err != nil {
		l.errs.List = append(l.errs.List, &Error{Source: wording.WithoutLogin(path), Message: fmt.Sprintf("cannot read the configuration: %v; %s", cause(err), readable(err))})
		return false
	}
	if path == "" {
		l.nowhere = true
		return true
	}
	l.cfg.Path = path
	doc, err := document.Parse(path, content, documentKeys())
	l.cfg.doc = doc
	if err != nil {
		syntax, _ := errors.AsType[*document.SyntaxError](err)
		l.fail(origin{source: path, line: syntax.Line, column: syntax.Column}, "", syntax.Message)
		return false
	}
	l.bindStruct(doc.Root, reflect.ValueOf(&l.cfg.settings).Elem(), "")
	return doc.Root.Kind == document.Map || doc.Root.Kind == document.Null
}

func (l *loader) findFile(path string) ([]byte, string, error) {
	if path == "" {
		path = l.env["CDC_RELAY_CONFIG"]
	}
	if path != "" {
		content, err := l.read(path)
		return content, path, err
	}
	for _, path := range usualPaths {
		content, err := l.read(path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return content, filepath.Clean(path), err
		}
	}
	return nil, "", nil
}

// fail records a mistake at a known place.
func (l *loader) fail(at origin, key, message string) {
	l.markFailed(key)
	l.errs.List = append(l.errs.List, l.cfg.mistake(at, key, message))
}

// markFailed notes that a key has a mistake, and what it is a part of.
func (l *loader) markFailed(key string) {
	l.failed[key] = true
	for whole := parent(key); whole != "" && !l.within[whole]; whole = parent(whole) {
		l.within[whole] = true
	}
}

// refuse records a mistake in the value of a key, at the place that set it or,
// when nothing did, at its section. A key that failed already, or a part of
// which did, is left alone.
func (l *loader) refuse(path, format string, args ...any) {
	if l.within[path] {
		return
	}
	for key := path; key != ""; key = parent(key) {
		if l.failed[key] {
			return
		}
	}
	l.markFailed(path)
	l.errs.List = append(l.errs.List, l.cfg.located(path, shortened(fmt.Sprintf(format, args...))))
}

// shortened leaves out the middle of a long text: a value may be of any length, and what is allowed
// stands behind it.
func shortened(text string) string {
	const most = 2000
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	begin, end := runes[:most*3/4], runes[len(runes)-most/4:]
	return fmt.Sprintf("%s… (%d characters left out) …%s", string(begin), len(runes)-most, string(end))
}

func (l *loader) warn(format string, args ...any) {
	l.cfg.Warnings = append(l.cfg.Warnings, fmt.Sprintf(format, args...))
}

// parent of outbox[0].topic is outbox[0], of that outbox.
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}
