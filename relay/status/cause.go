package status

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/wording"
)

// cause is a reason in the words of a headline. TOPIC, SIZE and LIMIT stand for those of the row, which
// may not be known.
type cause struct {
	text  string
	waits bool // every row waits in PostgreSQL: none is lost as long as the slot has its WAL
}

// causes are those that somebody has to act upon most often. Of another reason the word itself is shown.
var causes = map[string]cause{
	fault.ReasonUnknownTopic:                       {"topic TOPIC does not exist", true},
	fault.ReasonTopicAuthorizationFailed:           {"the relay may not write to topic TOPIC", true},
	fault.ReasonClusterAuthorizationFailed:         {"the relay may not produce idempotently", true},
	fault.ReasonTransactionalIDAuthorizationFailed: {"the relay may not use its transactional id", true},
	fault.ReasonPolicyViolation:                    {"a policy of the brokers refuses topic TOPIC", true},
	fault.ReasonRecordTooLarge:                     {"its record of SIZE is too large for LIMIT", true},
	fault.ReasonRowTooLarge:                        {"the row is larger than relay.max_row_bytes", true},
	fault.ReasonInvalidRecord:                      {"topic TOPIC refuses its record", true},
	fault.ReasonInvalidTimestamp:                   {"topic TOPIC refuses its timestamp", true},
	fault.ReasonInvalidPartition:                   {"topic TOPIC does not have its partition", true},
	fault.ReasonInvalidTopic:                       {"Kafka allows no topic with its name", true},
	fault.ReasonMapping:                            {"the mapping needs a value that it does not have", true},
	fault.ReasonRoute:                              {"no name of a topic comes out", true},
	fault.ReasonEncode:                             {"its payload does not fit the format", true},
	fault.ReasonSchema:                             {"the table lacks what the mapping needs", true},
	fault.ReasonCheckpointTopic:                    {"the checkpoint topic is missing, or not as it must be", true},
	fault.ReasonCheckpointRefused:                  {"the checkpoint topic refuses the position", true},
	fault.ReasonKafkaUnreachable:                   {"no broker answers", true},
	fault.ReasonKafkaNotAcknowledging:              {"the brokers answer and do not acknowledge", true},
	fault.ReasonSASLAuthenticationFailed:           {"the brokers refuse user or password", true},
	fault.ReasonAuth:                               {"PostgreSQL refuses user or password", true},
	fault.ReasonNetwork:                            {"no connection", true},
	fault.ReasonTimeout:                            {"no answer in time", true},
	fault.ReasonServerShutdown:                     {"PostgreSQL shuts down", true},
	fault.ReasonSlotMissing:                        {"the slot does not exist", false},
	fault.ReasonSlotLost:                           {"rows are in no stream any more", false},
	fault.ReasonSlotMoved:                          {"somebody else moved the slot", false},
	fault.ReasonPublicationMissing:                 {"the publication does not exist", false},
	fault.ReasonPublicationChanged:                 {"the publication was changed", false},
	fault.ReasonTableUnpublished:                   {"the table is not published", false},
	fault.ReasonTableMissing:                       {"the table does not exist", false},
	fault.ReasonConfirmedNotMoving:                 {"the confirmed position does not move", true},
	fault.ReasonForeignServer:                      {"this is another PostgreSQL server", false},
}

// causeText is why the relay does not go on, for people, with the reason as the word to look up.
func causeText(s *Status) string {
	text := causes[s.Reason].text
	if text == "" {
		return s.Reason
	}
	topic, size, limit := "", "", "the topic"
	if o := s.Obstacle; o != nil && o.Row != nil {
		topic = shortName(o.Row.Topic)
		if o.Row.Bytes > 0 {
			size = wording.Bytes(int64(o.Row.Bytes))
		}
		switch {
		case o.Row.Limit > 0:
			limit = o.Row.LimitOf + " (" + wording.Bytes(int64(o.Row.Limit)) + ")"
		case topic != "":
			limit = "topic " + topic
		}
	}
	if topic == "" {
		text = strings.Replace(text, "topic TOPIC", "the topic", 1)
	}
	if size == "" {
		text = strings.Replace(text, " of SIZE", "", 1)
	}
	return strings.NewReplacer("TOPIC", topic, "SIZE", size, "LIMIT", limit).Replace(text) + " (" + s.Reason + ")"
}

// shortName is a name that others chose, for a sentence.
func shortName(name string) string {
	const most = 60
	if runes := []rune(name); len(runes) > most {
		name = string(runes[:most]) + "…"
	}
	return wording.Printable(name)
}
