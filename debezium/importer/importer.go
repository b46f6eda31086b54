// Package importer translates the configuration of a Debezium PostgreSQL connector with an outbox
// EventRouter into the relay's. It is pure: bytes in, YAML and remarks out. Neither contains a
// value that may be a secret.
package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Options are what is known beside the connector's own file. The zero value will
// do.
type Options struct {
	Name       string // of the input, for messages
	Worker     []byte // settings of the Connect worker; nil: none were given
	WorkerName string

	// Catalog has the tables of the database, when somebody looked; nil: nobody did.
	Catalog []Table

	// Check loads the YAML and says what the relay refuses of it; nil: nobody checks.
	Check func(yaml []byte) []Complaint
}

// Table is one table of the database as the catalog has it.
type Table struct {
	Schema, Name string
	Columns      []string // in their order
	Partitioned  bool     // its rows lie in partitions
	Root         string   // of a partition: schema.name of the topmost table
}

// Fate is what happened to one key.
type Fate string

// The fates, from harmless to loud.
const (
	Carried    Fate = "carried"     // the YAML says the same
	Implied    Fate = "implied"     // the relay does so without being told
	NotNeeded  Fate = "not needed"  // it changes nothing here; the text says why
	Offered    Fate = "offered"     // the input lacks it; the YAML has what the table or the usual case suggests
	ToDo       Fate = "to do"       // a person has to fill it in
	NotCarried Fate = "not carried" // the text says what changes
	Refused    Fate = "refused"     // Debezium itself does not start, or fails at the first row
)

// Remark is what happened to one key, or what is missing.
type Remark struct {
	Key  string
	Fate Fate
	Text string
	File string // Options.Name or WorkerName
	Line int    // zero for what is missing
}

func (r Remark) String() string {
	at := ""
	if r.Line > 0 {
		at = fmt.Sprintf("%s:%d: ", r.File, r.Line)
	}
	return fmt.Sprintf("%s%s: %s: %s", at, r.Key, r.Fate, r.Text)
}

// Form is what kind of file the input is.
type Form string

// The forms.
const (
	ConnectJSON       Form = "Kafka Connect JSON"
	ConnectProperties Form = "connector properties"
	ServerProperties  Form = "Debezium Server properties"
	ServerEnvironment Form = "Debezium Server environment"
	Strimzi           Form = "Strimzi KafkaConnector"
)

// Result is an imported configuration.
type Result struct {
	YAML    []byte
	Remarks []Remark // one for each key of the input, in its order, then what is missing
	Form    Form
	Source  Source
}

// Source is what the takeover needs of the connector.
type Source struct {
	Connector    string // name under which Connect stores offsets; empty: the input has none
	TopicPrefix  string
	Tables       []string // that it captures
	Slot         string
	Publication  string
	Plugin       string
	DropOnStop   bool
	Heartbeats   string            // topic of heartbeats; empty: none are sent
	Context      bool              // records have headers __debezium.context.*
	DriverMoves  bool              // lsn.flush.mode=connector_and_driver
	OffsetTopic  string            // of Connect or Debezium Server; empty: not known
	OffsetFile   string            // likewise
	OffsetStore  string            // class of Debezium Server's store; empty: Connect's
	Brokers      string            // where the offset topic is; empty: not known
	Publishing   string            // publication.autocreate.mode
	Placeholders map[string]string // environment variable of ours: what it stands for
}

// Lost are the remarks that --strict fails on.
func (r *Result) Lost() []Remark {
	var lost []Remark
	for _, remark := range r.Remarks {
		if remark.Fate == NotCarried || remark.Fate == Refused {
			lost = append(lost, remark)
		}
	}
	return lost
}

// Error is an input that cannot be imported.
type Error struct {
	File         string
	Line, Column int // zero: the whole file
	Key          string
	Message      string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(cmp.Or(e.File, "input"))
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ":%d", e.Column)
		}
	}
	b.WriteString(": ")
	if e.Key != "" {
		b.WriteString(shownKey(e.Key) + ": ")
	}
	b.WriteString(saltWord.ReplaceAllString(e.Message, "$1***"))
	return b.String()
}

// Convert imports one connector. The error is an *Error.
func Convert(input []byte, o Options) (*Result, error) {
	o.Name = cmp.Or(o.Name, "input")
	in, err := read(o.Name, input)
	if err != nil {
		return nil, err
	}
	var worker *source
	if o.Worker != nil {
		if worker, err = readWorker(cmp.Or(o.WorkerName, "worker"), o.Worker); err != nil {
			return nil, err
		}
		if err := checkWorker(worker); err != nil {
			return nil, err
		}
	}
	if worker == nil && in.form == Strimzi {
		if worker, err = besides(o.Name, input); err != nil {
			return nil, err
		}
	}
	c := newConversion(in, worker, o)
	if err := c.run(); err != nil {
		return nil, err
	}
	c.check()
	slices.SortStableFunc(c.remarks, func(a, b Remark) int {
		return cmp.Or(cmp.Compare(c.rank(a), c.rank(b)), cmp.Compare(a.Line, b.Line), cmp.Compare(c.indexOf(a), c.indexOf(b)))
	})
	c.result.Remarks = c.remarks
	c.result.YAML = c.render()
	return &c.result, nil
}
