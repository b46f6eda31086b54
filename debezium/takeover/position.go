package takeover

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Position is what Debezium stored after the brokers had acknowledged the record
// of one row: everything that it had sent before, in its order, they had too.
type Position struct {
	Connector string // name under which it is stored
	Server    string // topic.prefix of the connector

	LSN       wal.LSN   // of the row, or of the last event before a heartbeat
	Processed wal.LSN   // lsn_proc
	Commit    wal.LSN   // end of the last transaction that came whole before the row; zero: none had
	XID       uint32    // of the row's transaction
	Event     string    // messageType: INSERT, UPDATE, BEGIN, COMMIT, …; empty: not stored
	Time      time.Time // commit time of the row's transaction; zero: not stored

	Snapshot bool // a snapshot was under way
}

// Entry is one position of a store that may hold those of several connectors.
type Entry struct {
	Connector, Server string
	Value             []byte // JSON; nil: removed
}

const maxValue = 64 << 10

// parseKey reads `["connector",{"server":"prefix"}]`.
func parseKey(key []byte) (connector, server string, err error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(key, &parts); err != nil || len(parts) != 2 {
		return "", "", errors.New(`is not ["connector", {"server": "prefix"}]`)
	}
	var partition struct{ Server *string }
	if json.Unmarshal(parts[0], &connector) != nil || json.Unmarshal(parts[1], &partition) != nil || partition.Server == nil {
		return "", "", errors.New(`is not ["connector", {"server": "prefix"}]`)
	}
	return connector, *partition.Server, nil
}

// ParseRecord reads one record of an offset topic. A key of another kind of
// connector gives ok false.
func ParseRecord(key, value []byte) (e Entry, ok bool) {
	connector, server, err := parseKey(key)
	return Entry{connector, server, value}, err == nil
}

// ParsePosition reads the JSON that Debezium stores for one connector.
func ParsePosition(e Entry) (*Position, error) {
	if len(e.Value) > maxValue {
		return nil, fmt.Errorf("the position of connector %q is larger than %d bytes", e.Connector, maxValue)
	}
	var raw map[string]any
	decoder := json.NewDecoder(bytes.NewReader(e.Value))
	decoder.UseNumber()
	if err := decoder.Decode(&raw); err != nil {
		return nil, fmt.Errorf("the position of connector %q is not a JSON object", e.Connector)
	}
	p := &Position{Connector: e.Connector, Server: e.Server}
	number := func(name string) uint64 {
		switch v := raw[name].(type) {
		case json.Number:
			n, err := strconv.ParseUint(v.String(), 10, 63)
			if err == nil {
				return n
			}
		case nil:
			return 0
		}
		raw[""] = name
		return 0
	}
	p.LSN, p.Processed, p.Commit = wal.LSN(number("lsn")), wal.LSN(number("lsn_proc")), wal.LSN(number("lsn_commit"))
	xid := number("txId")
	if micros := number("ts_usec"); micros > 0 {
		p.Time = time.UnixMicro(int64(micros)).UTC()
	}
	p.XID = uint32(xid) // Debezium stores the 32 bits that the log has, or more on a server that counts on
	p.Event, _ = raw["messageType"].(string)
	if bad, ok := raw[""].(string); ok {
		return nil, fmt.Errorf("the position of connector %q: %s is not a whole number", e.Connector, bad)
	}
	if p.LSN == 0 && p.Processed == 0 {
		return nil, fmt.Errorf("the position of connector %q has no lsn; is it a PostgreSQL connector?", e.Connector)
	}
	p.Snapshot = snapshotting(raw)
	return p, nil
}

// snapshotting reports whether rows that were there before the slot are still being
// read. The stored snapshot mark stays until the first streamed row, so what
// counts is whether the snapshot was completed.
func snapshotting(raw map[string]any) bool {
	truth := func(v any) bool {
		switch v := v.(type) {
		case bool:
			return v
		case string:
			return !strings.EqualFold(v, "false") && v != ""
		}
		return false
	}
	if !truth(raw["snapshot"]) {
		return false
	}
	return !truth(raw["snapshot_completed"]) && !truth(raw["last_snapshot_record"])
}

// OtherConnectorError says that a store has positions, and none of this
// connector's.
type OtherConnectorError struct {
	Connector, Server string
	Others            []string // what it has: connector and prefix
}

func (e *OtherConnectorError) Error() string {
	if len(e.Others) == 0 {
		return fmt.Sprintf("has no position of connector %q", e.Connector)
	}
	return fmt.Sprintf("has no position of connector %q with topic.prefix %q, only of: %s", e.Connector, e.Server, strings.Join(e.Others, ", "))
}

// Choose finds the position of one connector; the last entry of a key counts. An
// empty name takes the only one with the prefix, and an entry without names is
// anybody's. It is nil when the position was removed, which is how Connect resets one.
func Choose(entries []Entry, connector, server string) (*Position, error) {
	latest := map[[2]string]Entry{}
	for _, e := range entries {
		latest[[2]string{e.Connector, e.Server}] = e
	}
	var matching, others []Entry
	for _, e := range latest {
		if (connector == "" || e.Connector == "" || e.Connector == connector) && (server == "" || e.Server == "" || e.Server == server) {
			matching = append(matching, e)
		} else {
			others = append(others, e)
		}
	}
	switch len(matching) {
	case 1:
		if matching[0].Value == nil {
			return nil, nil
		}
		return ParsePosition(matching[0])
	case 0:
		return nil, &OtherConnectorError{connector, server, names(others)}
	}
	return nil, fmt.Errorf("has positions of several connectors: %s; name one", strings.Join(names(matching), ", "))
}

func names(entries []Entry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%q with topic.prefix %q", e.Connector, e.Server))
	}
	slices.Sort(list)
	return list[:min(len(list), 10)]
}

// Last is the furthest position that the record names.
func (p *Position) Last() wal.LSN { return max(p.LSN, p.Processed, p.Commit) }

// ParseOffsets reads what somebody saved: the file of a standalone worker or of
// Debezium Server; the JSON that Connect's REST interface answers about the offsets
// of a connector, whose name is not in it; keys and positions as JSON, one after the
// other, as Redis and SQL print what Debezium Server stores there; or one position
// alone, `{"lsn": …}`, which names nobody.
func ParseOffsets(content []byte, connector string) ([]Entry, error) {
	switch trimmed := bytes.TrimSpace(content); {
	case len(trimmed) > 0 && trimmed[0] == '{':
		return parseObject(content, connector)
	case len(trimmed) > 0 && trimmed[0] == '[':
		return parsePairs(content)
	}
	pairs, err := parseJavaMap(content)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, pair := range pairs {
		if e, ok := ParseRecord(pair.key, pair.value); ok {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 && len(pairs) > 0 {
		return nil, errors.New("none of its entries is the position of a Debezium connector")
	}
	return entries, nil
}

// notJSON says where content stops to be JSON. It quotes nothing of it.
func notJSON(content []byte, err error) error {
	at := len(content)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		at = min(max(int(syntax.Offset)-1, 0), len(content))
	}
	before := content[:at]
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Errorf("line %d, column %d: cannot be read as JSON", bytes.Count(before, []byte("\n"))+1, column)
}

// parseObject reads the answer of Connect, or a position alone.
func parseObject(content []byte, connector string) ([]Entry, error) {
	if err := json.Unmarshal(content, new(any)); err != nil {
		return nil, notJSON(content, err)
	}
	var answer struct {
		Offsets *[]struct {
			Partition struct{ Server *string }
			Offset    json.RawMessage
		}
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(content, &members) // an object: it begins with a brace
	if members["offsets"] == nil && (members["lsn"] != nil || members["lsn_proc"] != nil) {
		return []Entry{{Value: content}}, nil
	}
	if err := json.Unmarshal(content, &answer); err != nil || answer.Offsets == nil {
		return nil, errors.New(`has no list "offsets", and no "lsn" either; wanted is the answer to GET /connectors/NAME/offsets, or a position {"lsn": …}`)
	}
	var entries []Entry
	for _, o := range *answer.Offsets {
		if o.Partition.Server == nil {
			continue
		}
		entries = append(entries, Entry{cmp.Or(connector, "connector"), *o.Partition.Server, present(o.Offset)})
	}
	return entries, nil
}

// present is a position; nil: null, as one that was removed is printed.
func present(value json.RawMessage) []byte {
	if bytes.Equal(bytes.TrimSpace(value), []byte("null")) {
		return nil
	}
	return value
}

// parsePairs reads keys and positions in turn, with any white space between them.
func parsePairs(content []byte) ([]Entry, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	var entries []Entry
	read := 0
	for {
		var key, value json.RawMessage
		err := decoder.Decode(&key)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil {
			return nil, notJSON(content, err)
		}
		if read++; read > maxPairs {
			return nil, fmt.Errorf("has more than %d entries", maxPairs)
		}
		if e, ok := ParseRecord(key, present(value)); ok {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil, errors.New(`has no key ["connector", {"server": "prefix"}] with a position after it`)
	}
	return entries, nil
}
