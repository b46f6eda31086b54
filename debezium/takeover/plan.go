package takeover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/jackc/pgx/v5/pgconn"
)

// Plan says what is there and what would happen, before anything does. A line without a
// subject belongs to the one before it.
func (c *Takeover) Plan(show func(subject, text string)) {
	line := func(subject, format string, args ...any) { show(subject, fmt.Sprintf(format, args...)) }
	source := c.imported.Source
	line("connector", "%s (%s), topic.prefix %s", cmp.Or(source.Connector, "without a name"), c.imported.Form, source.TopicPrefix)
	line("configuration", "%s", c.cfg.Path)
	c.planServer(line)
	c.planSlot(line)
	c.planPublication(line)
	c.planPosition(line)
	c.planBrokers(line)
	c.planRecords(line)
	if c.held != "" {
		subject := "first"
		if c.options.Perform {
			subject = "refused"
		}
		line(subject, "%s", c.held)
	}
	for _, refusal := range c.refusals {
		line("refused", "%s", refusal)
	}
}

type planLine func(subject, format string, args ...any)

// planServer says where the slot is looked for, when that is not where the connector has
// it. Addresses may be two names of one server, so this is no refusal.
func (c *Takeover) planServer(line planLine) {
	settings, err := c.connectorSettings()
	if err != nil {
		return // planRecords says so
	}
	theirs, err := pgconn.ParseConfig(settings.Replication.URL)
	if err != nil {
		return
	}
	ours, err := pgconn.ParseConfig(c.settings.Replication.URL)
	if err != nil {
		return
	}
	place := func(p *pgconn.Config) string { return fmt.Sprintf("%s:%d/%s", p.Host, p.Port, p.Database) }
	if place(theirs) != place(ours) {
		line("server", "the connector reads %s, the configuration %s: unless that is the same database, this is another slot of that name", place(theirs), place(ours))
	}
}

func (c *Takeover) planSlot(line planLine) {
	s := c.survey.Slot
	owner := "nobody streams from it"
	if c.survey.SlotOwner != "" {
		owner = c.survey.SlotOwner
	}
	line("slot", "%s: plugin %s, confirmed %s, %s behind the log's end %s; %s", c.settings.Replication.Slot, c.survey.SlotPlugin,
		s.Confirmed, wording.Bytes(max(0, int64(c.survey.WALEnd)-int64(s.Confirmed))), c.survey.WALEnd, owner)
}

func (c *Takeover) planPublication(line planLine) {
	p := c.survey.Publication
	tables := wording.Count(p.Tables, "table")
	if p.Tables == 1 {
		tables = "1 table"
	}
	if p.AllTables {
		tables = "all tables"
	}
	line("publication", "%s: %s of %s; it stays as it is", p.Name, strings.Join(p.Operations, ", "), tables)
	for i, member := range p.Members {
		if member.Missing {
			continue
		}
		line("table", "%s: columns %s", c.settings.Replication.Tables[i], strings.Join(member.Columns, ", "))
		if len(member.Hidden) > 0 {
			line("", "not published, so missing for Debezium and the relay alike: %s", strings.Join(member.Hidden, ", "))
		}
		if member.Filter != "" {
			line("", "row filter %s: rows that fail it are sent by neither", member.Filter)
		}
	}
	if n := len(p.Foreign); n > 0 {
		line("", "further tables are published (%d); the relay skips and counts their rows", n)
	}
}

func (c *Takeover) planPosition(line planLine) {
	p := c.found.position
	if p == nil {
		line("position", "%s", cmp.Or(c.found.where, "none")+": none")
		line("filter", "nothing: every row from the slot's position on is sent")
		line("may come twice", "what Debezium had sent past the slot's position. Consumers tell it by the header id")
		return
	}
	at := ""
	if !p.Time.IsZero() {
		at = " of " + p.Time.Format(time.RFC3339)
	}
	event := cmp.Or(strings.ToLower(p.Event), "event")
	before := "no whole transaction came before it"
	if p.Commit != 0 {
		before = fmt.Sprintf("the last whole transaction before it ended at %s", p.Commit)
	}
	line("position", "%s at %s in transaction %d%s; %s (%s)", event, p.LSN, p.XID, at, before, c.found.where)
	if !c.judged {
		return // it proves nothing here; the refusal explains why
	}
	switch {
	case c.verdict.Whole:
		line("filter", "transactions that end at %s or before are not sent again", p.Commit)
	case !c.verdict.Part:
		line("filter", "nothing: the slot is confirmed up to the position")
	}
	if c.verdict.Part {
		line("filter", "of transaction %d, rows up to %s are not sent again", p.XID, p.LSN)
	}
	if others := c.uncaptured(); c.verdict.Any() && len(others) > 0 {
		line("", "but all rows of %s, which the connector does not capture", strings.Join(others, ", "))
	}
	if c.verdict.Any() {
		line("", "once the slot has shown that position at its place; if it does not, every row is sent")
	}
	c.planRepeats(line)
}

// planRepeats is honest about what a position cannot prove.
func (c *Takeover) planRepeats(line planLine) {
	line("may come twice", "what Debezium sent after it stored its last position: nothing after a clean stop, else at most offset.flush.interval.ms of traffic; and rows of one COPY that share the position's LSN. Consumers tell them by the header id")
}

// planBrokers says where records go, when that is not where the connector's worker
// sends them. Addresses may be two names of one cluster, so this is no refusal.
func (c *Takeover) planBrokers(line planLine) {
	theirs, ours := strings.Split(c.imported.Source.Brokers, ","), c.settings.Kafka.Brokers
	if c.imported.Source.Brokers == "" || slices.ContainsFunc(ours, func(b string) bool { return slices.Contains(theirs, b) }) {
		return
	}
	line("brokers", "the connector writes to %s, the configuration to %s: in another cluster consumers do not see the records", strings.Join(theirs, ","), strings.Join(ours, ","))
}

func (c *Takeover) planRecords(line planLine) {
	source := c.imported.Source
	native := slices.ContainsFunc(c.settings.Router.Mappings, func(m router.Mapping) bool { return m.Connector == nil })
	differences, err := c.differences()
	switch {
	case err != nil:
		line("records", "not compared with the connector's, because its import is no whole configuration: compare keys, values and headers with `cdc-relay explain` first")
	case len(differences) > 0:
		line("records", "keys, values, headers or topics change: the configuration differs from the connector in")
		for _, d := range differences {
			line("", "%s", d)
		}
	case native && source.Context:
		line("headers", "__debezium.context.* disappear: the configuration has tables without debezium:")
	case source.Context:
		line("headers", "as before; __debezium.context.runId is new, as after every start of the connector")
	default:
		line("headers", "as before")
	}
	if native {
		line("records", "the configuration has tables without debezium: compare keys and values with `cdc-relay explain` first; the key's bytes decide the partition")
	}
	c.planHeartbeats(line)
	for _, remark := range c.imported.Lost() {
		line("changes", "%s: %s", remark.Key, remark.Text)
	}
}

// planHeartbeats compares the topics of heartbeats, for somebody may watch the connector's.
func (c *Takeover) planHeartbeats(line planLine) {
	theirs := c.imported.Source.Heartbeats
	routes, err := router.New(c.settings.Router)
	if err != nil {
		return // whoever streams refuses the configuration
	}
	ours := routes.HeartbeatTopics()
	switch {
	case theirs == "" && len(ours) > 0:
		line("heartbeats", "%s is new: the connector writes none", strings.Join(ours, ", "))
	case theirs == "":
	case len(ours) == 0:
		line("heartbeats", "%s is not written any more; the slot advances without", theirs)
	case slices.Contains(ours, theirs):
		line("heartbeats", "%s goes on", theirs)
	default:
		line("heartbeats", "%s is not written any more; %s takes its place", theirs, strings.Join(ours, ", "))
	}
}
