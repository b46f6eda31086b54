package explain

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/wording"
)

// blob is a key, a value or a header's value: text where it is text. A nil blob
// is a null.
type blob []byte

// MarshalJSON gives a string, or an object of one member when that would lose
// bytes.
func (b *blob) MarshalJSON() ([]byte, error) {
	if utf8.Valid(*b) {
		return json.Marshal(string(*b))
	}
	return json.Marshal(map[string][]byte{"base64": *b})
}

// String is fit for a terminal: one line without control characters.
func (b *blob) String() string {
	if b == nil {
		return "null"
	}
	if !utf8.Valid(*b) {
		return fmt.Sprintf("\\x%s (%d bytes)", hex.EncodeToString(*b), len(*b))
	}
	return wording.Visible(string(*b))
}

func newBlob(data []byte) *blob {
	if data == nil {
		return nil
	}
	return (*blob)(&data)
}

// Header is a header of a record.
type Header struct {
	Name  string `json:"name"`
	Value *blob  `json:"value"`
}

// Record is a record as Kafka would get it.
type Record struct {
	From      string     `json:"from"`
	Topic     string     `json:"topic"`
	Partition *int32     `json:"partition"` // null: murmur2 of the key
	Key       *blob      `json:"key"`
	Headers   []Header   `json:"headers"`
	Timestamp *time.Time `json:"timestamp"`                  // null: the time of producing
	EventTime string     `json:"event_time,omitempty"`       // what stands for the CloudEvents time, which a row alone does not have
	Positions []string   `json:"position_headers,omitempty"` // headers that only the stream can fill in
	Value     Value      `json:"value,omitzero"`
	Schema    string     `json:"schema,omitempty"`  // that the value is made by
	Decoded   *blob      `json:"decoded,omitempty"` // the value, as a consumer reads it by the schema
}

// Value is the value of a record. One that is not to be shown is left out of
// JSON: null would mean a tombstone.
type Value struct {
	data   *blob
	Hidden bool
}

func (v Value) IsZero() bool                 { return v.Hidden }
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.data) }
func (v Value) String() string               { return v.data.String() }

func NewRecord(from string, r *record.Record) *Record {
	out := &Record{From: from, Topic: r.Topic, Key: newBlob(r.Key), Value: Value{data: newBlob(r.Value)}, Headers: []Header{}}
	if r.Partition != record.AutoPartition {
		out.Partition = &r.Partition
	}
	if !r.Timestamp.IsZero() {
		at := r.Timestamp.UTC()
		out.Timestamp = &at
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, Header{h.Key, newBlob(h.Value)})
		event := h.Key == "ce_time" || h.Key == "content-type" && strings.HasPrefix(string(h.Value), "application/cloudevents")
		if event && r.Timestamp.IsZero() {
			out.EventTime = "the time of the commit; shown is the present"
		}
	}
	return out
}

// WithSchema adds what a consumer reads; nothing where the value has no schema.
func (r *Record) WithSchema(schema string, decoded []byte, err error) *Record {
	if r.Schema = schema; err != nil {
		r.Schema = "the value does not read back: " + err.Error()
	}
	r.Decoded = newBlob(decoded)
	return r
}

// WithPositions names the headers of relay.position_headers. A row of the table knows
// neither its transaction nor its commit.
func (r *Record) WithPositions(wanted bool) *Record {
	if wanted {
		r.Positions = []string{record.HeaderLSN, record.HeaderSeq, record.HeaderCommitTime}
	}
	return r
}

func (r *Record) Print(w io.Writer) error {
	fmt.Fprintf(w, "\n  %s would become\n", r.From)
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	partition, at := "by the key", "the time of producing"
	if r.Key == nil {
		partition = "any: the record has no key"
	}
	if r.Partition != nil {
		partition = fmt.Sprint(*r.Partition)
	}
	if r.Timestamp != nil {
		at = r.Timestamp.Format(time.RFC3339Nano)
	}
	fmt.Fprintf(lines, "    topic\t%s\n    partition\t%s\n    key\t%v\n", r.Topic, partition, r.Key)
	for i, h := range r.Headers {
		lead := "headers"
		if i > 0 {
			lead = ""
		}
		fmt.Fprintf(lines, "    %s\t%s: %v\n", lead, wording.Printable(h.Name), h.Value)
	}
	if len(r.Positions) > 0 {
		fmt.Fprintf(lines, "    positions\t%s, after the other headers; only the stream has their values\n", strings.Join(r.Positions, ", "))
	}
	if r.EventTime != "" {
		fmt.Fprintf(lines, "    event time\t%s\n", r.EventTime)
	}
	fmt.Fprintf(lines, "    timestamp\t%s\n    value\t%v\n", at, r.Value)
	if r.Schema != "" {
		fmt.Fprintf(lines, "    schema\t%s\n", wording.Printable(r.Schema))
	}
	if r.Decoded != nil {
		fmt.Fprintf(lines, "    decoded\t%v\n", r.Decoded)
	}
	return lines.Flush()
}
