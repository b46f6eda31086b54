package preset

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
)

// refusal is a table that looks like an outbox and must not be relayed.
type refusal struct {
	name      string     // as somebody would write the preset
	framework string     // as it calls itself
	columns   [][]string // the normalised names of one of its tables
	why       string
	instead   string
}

var refusals = []refusal{
	{
		name: "spring-modulith", framework: "Spring Modulith",
		columns: [][]string{{"id", "listenerid", "eventtype", "serializedevent", "publicationdate"}},
		why:     "its event publication table has one row for each listener of an event, without key or destination, so one event would be sent several times",
		instead: "let Modulith's event externalisation write to an outbox table (cdc-relay setup --create-table=debezium makes one), and relay that",
	},
	{
		name: "masstransit", framework: "MassTransit",
		columns: [][]string{
			{"sequencenumber", "enqueuetime", "senttime", "messageid", "contenttype", "body", "destinationaddress"},
			{"outboxid", "lockid", "rowversion", "created", "delivered", "lastsequencenumber"},
		},
		why:     "its delivery service sends these rows and deletes them, their destinations are addresses of its own bus, and scheduled messages would go out at once",
		instead: "keep MassTransit's delivery service, or write events for Kafka into a table of their own (cdc-relay setup --create-table)",
	},
	{
		name: "nservicebus", framework: "NServiceBus",
		columns: [][]string{{"messageid", "dispatched", "dispatchedat", "persistenceversion", "operations"}},
		why:     "a row holds several operations and records an incoming message, so it is not an event",
		instead: "write events for Kafka into a table of their own (cdc-relay setup --create-table) in the handler's transaction",
	},
	{
		name: "cap", framework: "CAP (DotNetCore.CAP)",
		columns: [][]string{{"id", "version", "name", "content", "retries", "added", "expiresat", "statusname"}},
		why:     "CAP sends each message from memory right after the commit, so a relay would send it a second time",
		instead: "keep CAP's own Kafka transport, or write events into a table of their own (cdc-relay setup --create-table)",
	},
	{
		name: "wolverine", framework: "Wolverine",
		columns: [][]string{{"id", "ownerid", "destination", "deliverby", "body", "attempts", "messagetype"}},
		why:     "the body is a private binary envelope, and Wolverine's own agent sends it",
		instead: "keep Wolverine's Kafka transport, or write events into a table of their own (cdc-relay setup --create-table)",
	},
	{
		name: "outboxer", framework: "outboxer",
		columns: [][]string{{"id", "status", "messageabletype", "messageableid"}},
		why:     "a row only refers to a record of another table and holds no payload",
		instead: "write the event itself into an outbox table (cdc-relay setup --create-table)",
	},
	{
		name: "symfony-messenger", framework: "Symfony Messenger",
		columns: [][]string{{"id", "body", "headers", "queuename", "createdat", "availableat", "deliveredat"}},
		why:     "it is a job queue: the body is a job serialised by PHP, for workers that delete the row",
		instead: "dispatch events into an outbox table of their own (cdc-relay setup --create-table)",
	},
	{
		name: "gruelbox", framework: "gruelbox transaction-outbox",
		columns: [][]string{{"id", "invocation", "nextattempttime", "attempts", "blocked", "version", "uniquerequestid"}},
		why:     "a row is a method call to be replayed by the application, not an event",
		instead: "keep its own scheduler, or write events into an outbox table (cdc-relay setup --create-table)",
	},
}

// refused reports whether the table is one of those, and what to do instead.
func refused(rel *wal.Relation) error {
	for i := range refusals {
		r := &refusals[i]
		if slices.ContainsFunc(r.columns, func(names []string) bool { return hasAll(rel, names) }) {
			return advice.Give(fmt.Errorf("table %s is that of %s, and cannot be relayed: %s", column.TableName(rel), r.framework, r.why),
				r.instead+". If it is another table that only looks like it, name its preset or map its columns with preset: generic")
		}
	}
	return nil
}

// RefusedName explains why there is no preset of that name; nil when there is
// nothing to say.
func RefusedName(name string) error {
	for i := range refusals {
		if r := &refusals[i]; normalPreset(r.name) == normalPreset(name) {
			return fmt.Errorf("%s: %s; %s", r.framework, r.why, r.instead)
		}
	}
	return nil
}

func hasAll(rel *wal.Relation, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(rel.Columns, func(c wal.Column) bool { return column.Normal(c.Name) == name })
	})
}

// normalPreset makes MassTransit, mass-transit and masstransit equal.
func normalPreset(name string) string {
	return column.Normal(string(slices.DeleteFunc([]byte(name), func(c byte) bool { return c == '-' || c == ' ' })))
}
