package router

import (
	"slices"
)

// role is what a column means to the router.
type role int

const (
	roleID role = iota
	roleKey
	roleRoute
	roleTopic // a column that holds the topic's name; auto only
	roleType
	rolePayload
	roleHeaders
	roleTrace
	roleTimestamp
	roleCount
)

var roleNames = [roleCount]string{"id", "key", "route", "topic", "type", "payload", "headers", "trace", "timestamp"}

func (r role) String() string { return roleNames[r] }

// roleNamed is the role of that name; below zero: there is none.
func roleNamed(name string) role { return role(slices.Index(roleNames[:], name)) }

// key is where the configuration sets the role.
func (r role) key() string {
	if r == roleTopic {
		return "topic"
	}
	return "columns." + r.String()
}

// recognised lists names by which a column tells its role, normalised. No
// preset maps the timestamp, so it has none.
var recognised = [roleCount][]string{
	roleID:      {"id", "eventid", "messageid", "uuid"},
	roleKey:     {"partitionkey", "kafkakey", "messagekey", "eventkey", "key", "aggregateid", "streamid", "entityid", "segment"},
	roleRoute:   {"aggregatetype", "aggregate", "entitytype", "streamtype"},
	roleTopic:   {"kafkatopic", "topic", "destinationtopic", "destination", "channel"},
	roleType:    {"eventtype", "messagetype", "eventname", "type", "name"},
	rolePayload: {"payload", "kafkavalue", "eventdata", "data", "body", "content", "value", "serializedevent", "message"},
	roleHeaders: {"headers", "metadata", "kafkaheaders", "headerbag", "attributes"},
	roleTrace:   {"traceparent", "tracecontext"},
}

// spareKeys are names that mean the key where nothing else does. Beside a topic a
// routing key is Kafka's key; elsewhere it may be that of another broker.
var spareKeys = []string{"routingkey"}

// keyLike names columns that are not taken for the key but may well be it.
var keyLike = []string{"routingkey", "orderingkey", "shardkey", "groupkey", "messagegroupid"}

// delayed names columns that promise a later delivery, which a relay that
// follows the log does not give.
var delayed = []string{"availableat", "scheduledat", "deliverat", "nextattemptat", "enqueuetime"}
