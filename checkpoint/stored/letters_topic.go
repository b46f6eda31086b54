package stored

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// LettersTopic says which topic had the dead letters of a pipeline, and where its partitions began.
// A letter that is in another topic, or was deleted, still waits, and nobody can see it. Whoever
// takes a row without a letter for delivered compares this with the topic that is there now.
type LettersTopic struct {
	Topic  string
	ID     string          // empty: the brokers give topics none
	Begins map[int32]int64 // the first offset, by partition
	At     time.Time
	Relay  string // version that wrote it
}

type wireLettersTopic struct {
	Version int             `json:"v"`
	Topic   string          `json:"topic"`
	ID      string          `json:"topic_id,omitempty"`
	Begins  map[int32]int64 `json:"first_offsets"`
	At      string          `json:"at"`
	Relay   string          `json:"relay_version,omitempty"`
}

// Encode gives the record's value in the topic.
func (l *LettersTopic) Encode() []byte {
	value, err := json.Marshal(wireLettersTopic{Version: recordVersion, Topic: l.Topic, ID: l.ID, Begins: l.Begins, At: l.At.UTC().Format(time.RFC3339), Relay: l.Relay})
	if err != nil {
		//nolint:forbidigo // strings and numbers always encode
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
	return value
}

// ParseLettersTopic reads what Encode gave, of this version.
func ParseLettersTopic(value []byte) (LettersTopic, error) {
	var w wireLettersTopic
	if err := json.Unmarshal(value, &w); err != nil {
		return LettersTopic{}, fmt.Errorf("read which topic has the dead letters: %w", err)
	}
	if w.Version != recordVersion {
		return LettersTopic{}, fmt.Errorf("read which topic has the dead letters: the record has version %d, and this relay knows version %d: run the version that wrote it, or a later one", w.Version, recordVersion)
	}
	at, err := time.Parse(time.RFC3339, w.At)
	switch {
	case err != nil:
		return LettersTopic{}, fmt.Errorf("read which topic has the dead letters: at: %w", err)
	case w.Topic == "" || len(w.Begins) == 0:
		return LettersTopic{}, errors.New("read which topic has the dead letters: topic or first_offsets is missing")
	}
	return LettersTopic{Topic: w.Topic, ID: w.ID, Begins: w.Begins, At: at, Relay: w.Relay}, nil
}

// Changed says why letters that were in the topic may not be in the one that is there now; empty:
// each of them is. Without a record (nil) a topic counts that never lost a record.
func (l *LettersTopic) Changed(now *LettersTopic) string {
	if l != nil && l.Topic != now.Topic {
		return fmt.Sprintf("until %s the dead letters were in topic %q", l.At.UTC().Format(time.RFC3339), l.Topic)
	}
	if l != nil && l.ID == "" && now.ID != "" {
		return fmt.Sprintf("on %s it had no id, so it may have been deleted and created again since then", l.At.UTC().Format(time.RFC3339))
	}
	if l != nil && l.ID != now.ID {
		return fmt.Sprintf("it is not the topic that it was on %s: that one was deleted, or is on other brokers", l.At.UTC().Format(time.RFC3339))
	}
	lost := int32(-1) // the first partition that lost records
	begun := func(partition int32) int64 {
		if l == nil {
			return 0
		}
		return l.Begins[partition]
	}
	for partition, begins := range now.Begins {
		if begins > begun(partition) && (lost < 0 || partition < lost) {
			lost = partition
		}
	}
	if lost >= 0 {
		return fmt.Sprintf("the records of partition %d from offset %d to %d were deleted", lost, begun(lost), now.Begins[lost]-1)
	}
	if l != nil && len(now.Begins) < len(l.Begins) {
		return fmt.Sprintf("it has %d partitions, and had %d", len(now.Begins), len(l.Begins))
	}
	return ""
}

// DeclareLetters is the next step where Changed says something.
const DeclareLetters = "redrive or discard the letters of a former topic (`--set relay.dead_letter_topic=…`), or write the events of lost letters again; then declare it: `cdc-relay setup --before-slot delivered`"
