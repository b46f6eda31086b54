package schemas

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/template"
)

// Registry has schemas. Its errors are *fault.Error: KindRetry where another try may help.
type Registry interface {
	// Schema is a version of a subject; version zero is the latest one.
	Schema(ctx context.Context, subject string, version int) (*encode.Schema, error)

	// Known reports whether there is a schema with a number, and its language.
	Known(ctx context.Context, id uint32) (kind encode.Kind, known bool, err error)
}

// Config is how a mapping uses schemas.
type Config struct {
	Check   bool           // payloads are framed by the application, and looked at
	Subject string         // a template, in which ${topic} is the record's
	Version int            // zero: the latest
	Given   *encode.Schema // what there is no need to ask for; nil: a registry has it
	Options encode.Options

	// Register is what setup registers under its subject; nil: nothing. Rows are encoded by what the
	// registry has, all the same.
	Register *encode.Schema
}

// Varies reports whether a row may give other bytes later: the latest version encodes it.
func (c *Config) Varies() bool { return c.Options.Kind != "" && c.Given == nil && c.Version == 0 }

// defaultSubject is Confluent's TopicNameStrategy.
const defaultSubject = "${topic}-value"

// maxSubject is the longest subject in bytes that a row may give: it stands in the URL of a question.
const maxSubject = 1024

// TopicName stands for the record's topic in the template of a subject.
const TopicName = "topic"

// ParseSubject reads the template of a subject.
func ParseSubject(subject string) (*template.Template, error) {
	if subject == "" {
		subject = defaultSubject
	}
	return template.Parse(subject)
}

// Table makes values, or checks them, for the rows of one mapping. It has one owner.
type Table struct {
	Config
	subject *template.Template

	encoders map[string]*encode.Encoder // by subject
	ids      map[uint32]encode.Kind     // that the registry has
	refused  map[uint32]bool            // that it does not have; asked for again when a row was refused for it
	lastID   uint32
	lastKind encode.Kind
}

// New makes a table's. The configuration was checked.
func New(cfg Config) (*Table, error) {
	t := &Table{Config: cfg, encoders: make(map[string]*encode.Encoder), ids: make(map[uint32]encode.Kind), refused: make(map[uint32]bool)}
	var err error
	if t.subject, err = ParseSubject(cfg.Subject); err != nil {
		return nil, fmt.Errorf("subject template %w", err)
	}
	if cfg.Given != nil {
		made, err := encode.Compile(*cfg.Given, cfg.Options)
		if err != nil {
			return nil, err
		}
		t.encoders[""] = made
	}
	return t, nil
}

// Bound is a Table for the columns of one relation.
type Bound struct {
	*Table
	subject *template.Template
	topic   [1][]byte
}

// Bind finds the columns of the subject.
func (t *Table) Bind(source func(name string) (*column.Source, error)) (*Bound, error) {
	bound, err := t.subject.Bind(func(name string) (*column.Source, int, error) {
		if name == TopicName {
			return nil, 0, nil
		}
		s, err := source(name)
		return s, 0, err
	})
	return &Bound{Table: t, subject: bound}, err
}

// Template is the subject with the names of columns.
func (t *Table) Template() string { return t.subject.String() }

// Value makes the value of a payload, or checks it. payload is not null. Its errors are rejections,
// or *Need.
func (t *Bound) Value(b *record.Buffer, row *wal.Row, source *column.Source, payload []byte, topic string, scratch *[]byte) ([]byte, error) {
	if t.Check {
		return payload, t.check(source, payload, topic)
	}
	subject, err := t.of(b, row, topic, scratch)
	if err != nil {
		return nil, err
	}
	e := t.encoders[string(subject)]
	if e == nil {
		return nil, &Need{Subject: string(subject), Version: t.Version, Topic: topic, table: t.Table}
	}
	out, err := e.Append((*scratch)[:0], payload)
	*scratch = out
	if err != nil {
		if t.Given == nil && t.Version == 0 {
			err = &Misfit{cause: err, Need: &Need{Subject: e.Schema.Subject, Topic: topic, table: t.Table}}
		}
		return nil, record.RejectFor(fault.ReasonEncode, source.Column, err)
	}
	return b.Copy(out), nil
}

// of is the subject of a row, in scratch.
func (t *Bound) of(b *record.Buffer, row *wal.Row, topic string, scratch *[]byte) ([]byte, error) {
	dst := (*scratch)[:0]
	if t.Given != nil {
		return dst, nil
	}
	t.topic[0] = append(t.topic[0][:0], topic...)
	var made *column.Source // the last column that the subject is made of; nil: none
	for i := range t.subject.Parts {
		p := &t.subject.Parts[i]
		start := len(dst)
		var null bool
		var err error
		if dst, null, err = p.AppendTo(dst, b, row, t.topic[:]); err != nil {
			return nil, err
		}
		if p.Source == nil {
			continue
		}
		if made = p.Source; len(dst) == start {
			return nil, record.Reject(fault.ReasonEncode, p.Source.Column, "%s, which the subject of the schema is made of, is %s; have every writer set it, or give it a default in schema.subject", p.Source.Called(), p.Source.Nothing(null))
		}
	}
	*scratch = dst
	if made != nil && (len(dst) > maxSubject || string(dst) == "." || string(dst) == "..") {
		return nil, record.Reject(fault.ReasonEncode, made.Column, "%s gives the schema a subject of %d bytes that no registry takes; allowed: at most %d bytes, and neither . nor ..", made.Called(), len(dst), maxSubject)
	}
	return dst, nil
}

// check looks at a payload that the application framed.
func (t *Table) check(source *column.Source, payload []byte, topic string) error {
	id, err := encode.Framing(payload)
	if err != nil {
		return record.RejectFor(fault.ReasonEncode, source.Column, advice.Give(err, "have the application write what its serializer gives, unchanged, to a bytea column"))
	}
	kind := t.lastKind
	if kind == "" || id != t.lastID {
		var known bool
		if kind, known = t.ids[id]; !known {
			if t.refused[id] {
				delete(t.refused, id)
				return record.RejectFor(fault.ReasonEncode, source.Column, advice.Give(fmt.Errorf("the payload names schema %d, which the registry does not have (byte 1)", id), "register the schema in the registry of kafka.registry.url"))
			}
			return &Need{ID: id, Topic: topic, table: t}
		}
		t.lastID, t.lastKind = id, kind
	}
	if kind == encode.Protobuf {
		if err := encode.Indexes(payload); err != nil {
			return record.RejectFor(fault.ReasonEncode, source.Column, err)
		}
	}
	return nil
}

// Decode gives the schema of a value and the JSON that it stands for; nothing for one that the table
// has not made.
func (t *Table) Decode(value []byte) (schema string, json []byte, err error) {
	for _, e := range t.encoders {
		if json, err := e.Decode(value); err == nil {
			return e.Schema.String(), json, nil
		}
	}
	if t.Check && len(value) > 0 {
		id, err := encode.Framing(value)
		return "id " + strconv.FormatUint(uint64(id), 10) + ", framed by the application", nil, err
	}
	return "", nil, errors.New("no schema at hand reads the value back")
}

// Need is what has to be asked for before a row can be routed. The row is not at fault.
type Need struct {
	Subject string // empty: ID is asked for
	Version int    // zero: the latest
	ID      uint32
	Topic   string // of the row's record

	table *Table
}

func (n *Need) Error() string {
	if n.Subject == "" {
		return fmt.Sprintf("schema %d is not known yet", n.ID)
	}
	return fmt.Sprintf("the schema of subject %s is not known yet", n.Subject)
}

// Key is the same for all that the answer to n is an answer to.
func (n *Need) Key() any {
	return struct {
		table   *Table
		subject string
		id      uint32
	}{n.table, n.Subject, n.ID}
}

// Latest reports whether the answer may be another one later.
func (n *Need) Latest() bool { return n.Subject != "" && n.Version == 0 }

// Answer is what a registry has.
type Answer struct {
	need    *Need
	encoder *encode.Encoder
	kind    encode.Kind
	known   bool
}

// Ask asks the registry, and makes the schema ready. It may run on any goroutine.
func (n *Need) Ask(ctx context.Context, r Registry) (*Answer, error) {
	if r == nil {
		return nil, n
	}
	if n.Subject == "" {
		kind, known, err := r.Known(ctx, n.ID)
		return &Answer{need: n, kind: kind, known: known}, err
	}
	s, err := r.Schema(ctx, n.Subject, n.Version)
	if err != nil {
		return nil, err
	}
	e, err := encode.Compile(*s, n.table.Options)
	if err != nil {
		return nil, &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonSchemaUnusable, Op: "make ready", Subject: s.String(), Err: err,
			Hint: "correct the schema in the registry, or the keys of outbox[].schema",
		}
	}
	return &Answer{need: n, encoder: e}, nil
}

// Learn hands the answer to whoever routes, who calls it. It reports whether that is a version of a
// subject which was not known before.
func (a *Answer) Learn() (changed bool) {
	t := a.need.table
	switch {
	case a.encoder != nil:
		have := t.encoders[a.need.Subject]
		if changed = have == nil || have.Schema.ID != a.encoder.Schema.ID || have.Schema.Version != a.encoder.Schema.Version; changed {
			t.encoders[a.need.Subject] = a.encoder
		}
	case a.known:
		t.ids[a.need.ID] = a.kind
	default:
		t.refused[a.need.ID] = true
	}
	return changed
}

// Schema names what was learned.
func (a *Answer) Schema() string {
	if a.encoder != nil {
		return a.encoder.Schema.String()
	}
	return fmt.Sprintf("id %d", a.need.ID)
}

// Misfit is a payload that the latest version at hand does not take. A newer version may.
type Misfit struct {
	*Need
	cause error
}

func (m *Misfit) Error() string { return m.cause.Error() }
func (m *Misfit) Unwrap() error { return m.cause }

// Unmet is what a registry answered in the place of a schema. The row is not at fault.
type Unmet struct {
	Topic string // of the row's record
	Err   error
}

func (u *Unmet) Error() string { return u.Err.Error() }
func (u *Unmet) Unwrap() error { return u.Err }
