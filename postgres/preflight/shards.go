package preflight

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// checkShards looks at the slots of all shards together.
func (c *checker) checkShards() error {
	if c.cfg.Shard.Slot == "" {
		return nil
	}
	version := c.server.ServerVersion
	if err := catalog.OnlyGeneration(c.q, version, c.cfg); err != nil {
		if postgres.Reason(err) != fault.ReasonShards {
			return err
		}
		c.fail("postgres.shards", err)
		return nil
	}
	if !c.cfg.Shard.Divided() {
		return nil
	}
	if err := catalog.NeedsFilters(version); err != nil {
		c.fail("postgres.shards", err)
		return nil
	}
	slots, err := catalog.ShardSlots(c.q, version, c.cfg.Shard.Slot)
	if err != nil {
		return err
	}
	row, err := c.q.One(`SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_catalog.pg_replication_slots)`)
	if err != nil {
		return err
	}
	free, missing := row.Int("max_replication_slots", 0), c.cfg.Shard.Count-len(slots)
	active := 0
	for _, s := range slots {
		if s.Active {
			active++
		}
	}
	switch {
	case row.Err != nil:
		return row.Err
	case missing > free:
		c.add("postgres.shards", advice.Fail, "raise max_replication_slots and restart the server, or set postgres.shards lower",
			"%d of the %d shards have no slot yet, with %s free", missing, c.cfg.Shard.Count, wording.Count(free, "slot"))
	case len(slots)-active+missing > c.senders:
		c.add("postgres.shards", advice.Fail, "raise max_wal_senders and restart the server: each shard needs one, and one more should be free for a reconnect",
			"%s not streamed from now, with %s free", wording.Count(len(slots)-active+missing, "shard"), wording.Count(max(c.senders, 0), "WAL sender"))
	default:
		c.ok("postgres.shards", "%d of %d slots exist, and %d are streamed from", len(slots), c.cfg.Shard.Count, active)
	}
	return nil
}

// checkShard looks at the slot and the publication of a shard other than the first,
// with which the tables were looked at.
func (c *checker) checkShard(cfg postgres.Config) error {
	c.cfg = cfg
	p, err := catalog.ReadPublication(c.q, c.server.ServerVersion, cfg.Publication)
	switch {
	case err == nil:
		if err := c.shardPublication(p); err != nil {
			return err
		}
	case unansweredError(err):
		return err
	default:
		c.fail("publication", err)
	}
	return c.checkSlot()
}

func (c *checker) shardPublication(p *catalog.PublicationRow) error {
	if err := c.publicationShape(p); err != nil {
		return err
	}
	for i, checked := range c.report.Tables {
		if checked.Relation == nil {
			continue
		}
		t, err := catalog.ReadTable(c.q, checked.Table)
		if err != nil {
			return err
		}
		if t == nil {
			continue // dropped meanwhile
		}
		if err := p.Publishes(c.cfg.Tables[i], t); err != nil {
			c.fail("publication.tables", err)
			continue
		}
		c.checkFilter(p, checked.Relation)
	}
	return nil
}

// checkFilter compares the filter that makes a shard with what it has to be.
func (c *checker) checkFilter(p *catalog.PublicationRow, relation *wal.Relation) {
	table := wal.Table{Schema: relation.Namespace, Name: relation.Name}
	if err := p.Filtered(c.cfg, c.server.ServerVersion, relation); err != nil {
		c.fail("publication.row_filter", withAdvice(err, "correct the entry in outbox"))
		return
	}
	c.ok("publication.row_filter", "%s has the rows of shard %d of %d of %s", postgres.PublicationSubject(p.Name), c.cfg.Shard.Index, c.cfg.Shard.Count, table)
}

// checkFamilies looks for tables whose keys are hashed differently: a key that both
// have may be in two shards then.
func (c *checker) checkFamilies() {
	var families, tables []string
	for i, checked := range c.report.Tables {
		if checked.Relation == nil || i >= len(c.cfg.Tables) {
			continue
		}
		if f, err := catalog.FilterOf(c.cfg, c.server.ServerVersion, checked.Relation); err == nil && !slices.Contains(families, f.Family) {
			families, tables = append(families, f.Family), append(tables, checked.Table.String()+" ("+f.Family+")")
		}
	}
	if len(families) > 1 {
		c.warn("postgres.shards", "unless their records share no topic: give the keys' columns one type, or set postgres.shards: 1",
			"the keys of %s are hashed by their types, so rows with the same key in two of the tables may be in two shards, and their order is not kept between the tables", strings.Join(tables, " and "))
	}
}
