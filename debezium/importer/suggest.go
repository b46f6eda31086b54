package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// columnRole is a column that every row needs, under the EventRouter's option.
type columnRole struct {
	option, def string
	cause       string   // Debezium's error when the table lacks it
	candidates  []string // what the column is called elsewhere, best first
}

var columnRoles = []columnRole{
	{"table.field.event.id", "id", "%s is not a valid field name", []string{"event_id", "eventid", "eventId", "message_id", "uuid"}},
	{"table.field.event.key", "aggregateid", "%s is not a valid field name", []string{"aggregate_id", "aggregateId", "partition_key", "key", "event_key", "id"}},
	{"table.field.event.payload", "payload", "Unable to find payload field %s in event", []string{"data", "body", "value", "message", "content"}},
	{"route.by.field", "aggregatetype", "%s is not a valid field name", []string{"aggregate_type", "aggregateType", "aggregate", "topic", "destination", "event_type", "eventType", "type"}},
}

// suggest offers columns for those that the EventRouter needs and a table lacks. It offers one
// only if the input leaves the option to Debezium's default, and only for the table that lacks
// it. It changes no explicit setting.
func (c *conversion) suggest(prefix string) {
	tables, known := c.routed(prefix)
	if !known {
		return
	}
	looked := slices.ContainsFunc(tables, func(t *captured) bool { return t.columns != nil })
	for _, role := range columnRoles {
		it, given := c.get(prefix + role.option)
		column := role.def
		if given {
			column = it.value
		}
		if !looked {
			if !given {
				c.suspect(prefix, role)
			}
			continue
		}
		without := lacking(tables, column)
		if len(without) == 0 {
			continue
		}
		cause := fmt.Sprintf("Debezium fails at the first row: "+role.cause, column)
		if given {
			c.missing(prefix+role.option, Refused, "%s has no column %s. %s", tableList(without), shown("", column), cause)
			continue
		}
		c.offer(prefix, role, without, cause)
	}
}

// offer gives each table the column that is most like the one it lacks.
func (c *conversion) offer(prefix string, role columnRole, without []*captured, cause string) {
	by := map[string][]*captured{}
	var offers []string
	for _, t := range without {
		offer := t.first(role.candidates)
		if by[offer] == nil {
			offers = append(offers, offer)
		}
		by[offer] = append(by[offer], t)
		if offer != "" {
			t.offered = append(t.offered, option{prefix + role.option, offer, fmt.Sprintf("Offered: the input leaves it at %s, a column that the table has not.", role.def)})
		}
	}
	for _, offer := range offers {
		text := "Name the column"
		if offer != "" {
			text = fmt.Sprintf("Column %s is offered%s", offer, withoutOrder(role, offer))
		}
		c.missing(prefix+role.option, Refused, "is not given, so %s, which %s has not. %s. %s", role.def, tableList(by[offer]), cause, text)
	}
}

func withoutOrder(role columnRole, candidate string) string {
	if role.def == "aggregateid" && candidate == "id" {
		return "; every event then has a key of its own, and events of one aggregate have no order"
	}
	return ""
}

// suspect warns, without a look at the table, of a default that does not fit the
// names beside it.
func (c *conversion) suspect(prefix string, role columnRole) {
	if role.option != "route.by.field" && role.option != "table.field.event.key" {
		return
	}
	for _, other := range columnRoles {
		named, given := c.get(prefix + other.option)
		if !given || other.option == role.option || !strings.Contains(named.value, "_") {
			continue
		}
		if i := slices.Index(role.candidates, strings.Replace(role.def, "aggregate", "aggregate_", 1)); i >= 0 {
			c.missing(prefix+role.option, ToDo, "is not given, so %s, which stands beside the column %s: the table probably has %s. Give --postgres-url, and import looks", role.def, named.value, role.candidates[i])
		}
		return
	}
}

// routed returns the tables whose rows reach the EventRouter: all, or those that pass its
// predicate. known is false for a predicate about anything except topics.
func (c *conversion) routed(prefix string) (tables []*captured, known bool) {
	by, ok := c.get(prefix + "predicate")
	class := c.value("predicates." + by.value + ".type")
	pattern, err := regexp.Compile(`\A(?:` + c.value("predicates."+by.value+".pattern") + `)\z`)
	if ok && (className(class) != "TopicNameMatches" || err != nil) {
		return nil, false
	}
	for i := range c.tables {
		t := &c.tables[i]
		topic := c.result.Source.TopicPrefix + "." + t.table.Schema + "." + t.table.Name
		if !ok || pattern.MatchString(topic) != c.flag(prefix+"negate") {
			tables = append(tables, t)
		}
	}
	return tables, true
}

// lacking are the tables without the column.
func lacking(tables []*captured, column string) (without []*captured) {
	for _, t := range tables {
		if t.columns != nil && !t.has(column) {
			without = append(without, t)
		}
	}
	return without
}

func tableList(tables []*captured) string {
	var names []string
	for _, t := range tables {
		names = append(names, t.table.String())
	}
	return strings.Join(names, ", ")
}

// first is the first of the names that the table has.
func (t *captured) first(names []string) string {
	for _, name := range names {
		if t.has(name) {
			return name
		}
	}
	return ""
}
