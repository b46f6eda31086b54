package golden

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is one Kafka record.
type Record struct {
	Topic         string   `json:"topic"`
	Partitions    int      `json:"partitions"` // of the topic
	Partition     int32    `json:"partition"`
	Key           Bytes    `json:"key"`
	Value         Bytes    `json:"value"`
	Headers       []Header `json:"headers"`
	Timestamp     int64    `json:"timestamp"` // milliseconds
	TimestampType string   `json:"timestamp_type"`
	Volatile      []string `json:"volatile"` // what differs from run to run
}

// Header is one header; a name may come twice.
type Header struct {
	Name  string
	Value Bytes
}

// Bytes is a key, a value or a header's value. A long one may be known by length
// and hash only.
type Bytes struct {
	Null   bool
	Raw    []byte
	Length int    // with Hash
	Hash   string // SHA-256 in hex; empty when Raw is everything
}

// longest is how much is stored as it is.
const longest = 32 << 10

// FromKafka is a record as it was read; partitions is its topic's number of them.
func FromKafka(r *kgo.Record, partitions int) Record {
	out := Record{
		Topic: r.Topic, Partitions: partitions, Partition: r.Partition,
		Key: bytesOf(r.Key), Value: bytesOf(r.Value), Headers: []Header{},
		Timestamp: millis(r.Timestamp), TimestampType: "CreateTime", Volatile: []string{},
	}
	if r.Attrs.TimestampType() == 1 {
		out.TimestampType = "LogAppendTime"
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, Header{Name: h.Key, Value: bytesOf(h.Value)})
	}
	return out
}

func bytesOf(raw []byte) Bytes { return Bytes{Null: raw == nil, Raw: raw} }

// hashed is b by length and hash, when it is long or asked for.
func (b Bytes) hashed() Bytes {
	if b.Hash != "" || b.Null {
		return b
	}
	sum := sha256.Sum256(b.Raw)
	return Bytes{Length: len(b.Raw), Hash: hex.EncodeToString(sum[:])}
}

// Equal compares two values, one of which may be known by its hash only.
func (b Bytes) Equal(other Bytes) bool {
	if b.Null || other.Null {
		return b.Null == other.Null
	}
	if b.Hash != "" || other.Hash != "" {
		x, y := b.hashed(), other.hashed()
		return x.Length == y.Length && x.Hash == y.Hash
	}
	return bytes.Equal(b.Raw, other.Raw)
}

// String is for people.
func (b Bytes) String() string {
	switch {
	case b.Null:
		return "null"
	case b.Hash != "":
		return fmt.Sprintf("%d bytes with SHA-256 %s", b.Length, b.Hash)
	case len(b.Raw) > longest:
		return b.hashed().String()
	case utf8.Valid(b.Raw):
		return strconv.Quote(string(b.Raw))
	}
	return fmt.Sprintf("% x", b.Raw)
}

// UnmarshalJSON reads the four forms.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	var form struct {
		UTF8   *string `json:"utf8"`
		Base64 *string `json:"base64"`
		Null   bool    `json:"null"`
		Length int     `json:"length"`
		SHA256 string  `json:"sha256"`
	}
	if err := json.Unmarshal(text, &form); err != nil {
		return err
	}
	switch {
	case form.Null:
		*b = Bytes{Null: true}
	case form.UTF8 != nil:
		*b = Bytes{Raw: []byte(*form.UTF8)}
	case form.Base64 != nil:
		raw, err := base64.StdEncoding.DecodeString(*form.Base64)
		*b = Bytes{Raw: raw}
		return err
	case form.SHA256 != "":
		*b = Bytes{Length: form.Length, Hash: form.SHA256}
	default:
		return errors.New("neither utf8, base64, null nor sha256")
	}
	return nil
}

// UnmarshalJSON reads [name, value].
func (h *Header) UnmarshalJSON(text []byte) error {
	parts := []any{&h.Name, &h.Value}
	return json.Unmarshal(text, &parts)
}

// Sort puts records into the order of a golden file. Those of one partition must
// come in the order of their offsets.
func Sort(records []Record) {
	slices.SortStableFunc(records, func(a, b Record) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// Line is the record's line of a golden file.
func (r Record) Line() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"topic": %s, "partitions": %d, "partition": %d, "key": %s, "value": %s, "headers": [`,
		quote(r.Topic), r.Partitions, r.Partition, r.Key.form(), r.Value.form())
	for i, h := range r.Headers {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "[%s, %s]", quote(h.Name), h.Value.form())
	}
	fmt.Fprintf(&b, `], "timestamp": %d, "timestamp_type": %s, "volatile": [`, r.Timestamp, quote(r.TimestampType))
	for i, name := range r.Volatile {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(name))
	}
	b.WriteString("]}\n")
	return b.String()
}

func (b Bytes) form() string {
	switch {
	case b.Null:
		return `{"null": true}`
	case b.Hash != "":
		return fmt.Sprintf(`{"length": %d, "sha256": %s}`, b.Length, quote(b.Hash))
	case len(b.Raw) > longest:
		return b.hashed().form()
	case utf8.Valid(b.Raw):
		return `{"utf8": ` + quote(string(b.Raw)) + `}`
	}
	return `{"base64": "` + base64.StdEncoding.EncodeToString(b.Raw) + `"}`
}

// quote is a JSON string that leaves everything readable that may be.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// millis is a record's timestamp as it was sent. The client keeps nanoseconds in 64
// bits, which overflow behind the year 2262, where Debezium's infinity lies: then whole
// milliseconds are looked for that leave the rest which is there.
func millis(at time.Time) int64 {
	n := at.UnixNano()
	if n%1_000_000 == 0 {
		return at.UnixMilli()
	}
	for high := range uint64(15_625) { // then rests repeat
		if quotient, rest := bits.Div64(high, uint64(n), 1_000_000); rest == 0 {
			return int64(quotient)
		}
	}
	return at.UnixMilli()
}
