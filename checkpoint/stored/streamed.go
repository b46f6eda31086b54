package stored

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Streamed is which tables whoever streamed last from a slot had in its configuration, by their OIDs, in
// ascending order. The slot has moved past the rows of all others, and nobody has sent them.
type Streamed struct {
	Tables []uint32
	Relay  string // version that wrote it
}

type wireStreamed struct {
	Version int      `json:"v"`
	Tables  []uint32 `json:"table_oids"`
	Relay   string   `json:"relay_version,omitempty"`
}

// Encode gives the record's value in the topic.
func (s *Streamed) Encode() []byte {
	value, err := json.Marshal(wireStreamed{recordVersion, slices.Sorted(slices.Values(s.Tables)), s.Relay})
	if err != nil {
		//nolint:forbidigo // strings and numbers always encode
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
	return value
}

// ParseStreamed reads what Encode gave, of this version.
func ParseStreamed(value []byte) (Streamed, error) {
	var w wireStreamed
	if err := json.Unmarshal(value, &w); err != nil {
		return Streamed{}, fmt.Errorf("read which tables were streamed: %w", err)
	}
	if w.Version != recordVersion {
		return Streamed{}, fmt.Errorf("read which tables were streamed: the record has version %d, and this relay knows version %d: run the version that wrote it, or a later one", w.Version, recordVersion)
	}
	return Streamed{w.Tables, w.Relay}, nil
}
