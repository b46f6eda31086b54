package preset

import (
	"slices"
)

// Role is what a column means to the router.
type Role int

const (
	RoleID Role = iota
	RoleKey
	RoleRoute
	RoleTopic // a column that holds the topic's name; auto only
	RoleType
	RolePayload
	RoleHeaders
	RoleTrace
	RoleTimestamp
	RoleCount
)

var roleNames = [RoleCount]string{"id", "key", "route", "topic", "type", "payload", "headers", "trace", "timestamp"}

func (r Role) String() string { return roleNames[r] }

// RoleNamed is the role of that name; below zero: there is none.
func RoleNamed(name string) Role { return Role(slices.Index(roleNames[:], name)) }

// Key is where the configuration sets the role.
func (r Role) Key() string {
	if r == RoleTopic {
		return "topic"
	}
	return "columns." + r.String()
}

// recognised lists names by which a column's role is recognised, normalised. No
// preset maps the timestamp, so it has none.
var recognised = [RoleCount][]string{
	RoleID:      {"id", "eventid", "messageid", "uuid"},
	RoleKey:     {"partitionkey", "kafkakey", "messagekey", "eventkey", "key", "aggregateid", "streamid", "entityid", "segment"},
	RoleRoute:   {"aggregatetype", "aggregate", "entitytype", "streamtype"},
	RoleTopic:   {"kafkatopic", "topic", "destinationtopic", "destination", "channel"},
	RoleType:    {"eventtype", "messagetype", "eventname", "type", "name"},
	RolePayload: {"payload", "kafkavalue", "eventdata", "data", "body", "content", "value", "serializedevent", "message"},
	RoleHeaders: {"headers", "metadata", "kafkaheaders", "headerbag", "attributes"},
	RoleTrace:   {"traceparent", "tracecontext"},
}

// spareKeys are names that mean the key where nothing else does. Beside a topic a
// routing key is Kafka's key; elsewhere it may be that of another broker.
var spareKeys = []string{"routingkey"}

// keyLike names columns that are not taken for the key but may well be it.
var keyLike = []string{"routingkey", "orderingkey", "shardkey", "groupkey", "messagegroupid"}

// delayed names columns that promise a later delivery, which a relay that
// follows the log does not give.
var delayed = []string{"availableat", "scheduledat", "deliverat", "nextattemptat", "enqueuetime"}
