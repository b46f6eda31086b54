package takeover

import (
	"slices"

	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
)

// captured tells the tables and messages of the configuration that the connector sends
// as well. Its position proves nothing about rows of others: it never sent one.
func (c *Takeover) captured() func(*wal.Relation) bool {
	tables := make([]bool, len(c.settings.Replication.Tables))
	for i, t := range c.settings.Replication.Tables {
		tables[i] = slices.Contains(c.imported.Source.Tables, t.String())
	}
	messages := c.capturesMessages()
	return func(r *wal.Relation) bool {
		if r.Table >= len(tables) {
			return messages
		}
		return r.Table >= 0 && tables[r.Table]
	}
}

// capturesMessages reports whether the connector sends every logical message that the
// configuration takes. Where it names prefixes, the configuration has to name the same.
func (c *Takeover) capturesMessages() bool {
	theirs, err := c.connectorMappings()
	if err != nil {
		return false
	}
	i := slices.IndexFunc(theirs, ofMessages)
	if i < 0 {
		return false
	}
	lists := prefixLists(theirs[i])
	return lists == [2]string{} || !slices.ContainsFunc(c.settings.Router.Mappings, func(m router.Mapping) bool {
		return ofMessages(m) && prefixLists(m) != lists
	})
}

func ofMessages(m router.Mapping) bool { return m.Table == "" }

func prefixLists(m router.Mapping) (lists [2]string) {
	options, _ := m.Connector.(debezium.Config)
	for i, name := range []string{"message.prefix.include.list", "message.prefix.exclude.list"} {
		setting, _ := settingOf(options, name)
		lists[i] = setting.Value
	}
	return lists
}

// uncaptured names what the configuration takes and the connector does not send.
func (c *Takeover) uncaptured() []string {
	var list []string
	for _, t := range c.settings.Replication.Tables {
		if !slices.Contains(c.imported.Source.Tables, t.String()) {
			list = append(list, t.String())
		}
	}
	if slices.ContainsFunc(c.settings.Router.Mappings, ofMessages) && !c.capturesMessages() {
		list = append(list, "logical messages")
	}
	return list
}
