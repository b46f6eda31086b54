package provision

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
)

// planCopies makes all slots but one from one: a copy begins at the very position of
// what it was made from, so no row is before one shard's slot and after another's.
func (s *setup) planCopies() error {
	if !s.cfg.Shard.Divided() {
		return nil
	}
	existing, err := catalog.ShardSlots(s.q, s.server.ServerVersion, s.cfg.Shard.Slot)
	if err != nil {
		return err
	}
	source := s.shards[0].cfg.Slot
	if len(existing) > 0 { // an earlier run was cut short
		source = leastConfirmed(existing).Name
	}
	for i := range s.shards {
		shard := &s.shards[i]
		if !shard.slot.Exists && shard.cfg.Slot != source {
			shard.slot.SQL = copySlot(source, shard.cfg.Slot)
			shard.copyOf = source
		}
	}
	return nil
}

// published reports whether every publication was there before.
func (s *setup) published() bool {
	for _, shard := range s.shards {
		if !shard.publication.Exists {
			return false
		}
	}
	return true
}

func (s *setup) warn(text string) {
	if text != "" {
		s.report.Warnings = append(s.report.Warnings, text)
	}
}

func leastConfirmed(slots []catalog.ShardSlot) catalog.ShardSlot {
	least := slots[0]
	for _, s := range slots[1:] {
		if s.Confirmed < least.Confirmed {
			least = s
		}
	}
	return least
}

func copySlot(source, name string) string {
	return fmt.Sprintf("SELECT pg_catalog.pg_copy_logical_replication_slot(%s, %s)", postgres.QuoteLiteral(source), postgres.QuoteLiteral(name))
}

// copyFailover gives a copy what it does not take over from its source. It returns a
// warning when it cannot: the slot streams without.
func copyFailover(q postgres.Querier, cfg postgres.Config, version int, source, name string) string {
	if version < postgres.FailoverVersion {
		return ""
	}
	row, err := q.One("SELECT failover FROM pg_catalog.pg_replication_slots WHERE slot_name = " + postgres.QuoteLiteral(source))
	if err == nil && !row.Bool(0) {
		return ""
	}
	if err == nil {
		err = alterFailover(q, cfg, name)
	}
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%s is gone after a failover: %v; run on a replication connection: %s", postgres.SlotSubject(name), err, failoverCommand(name))
}

func failoverCommand(name string) string {
	return fmt.Sprintf("ALTER_REPLICATION_SLOT %s (FAILOVER true)", name)
}

func alterFailover(q postgres.Querier, cfg postgres.Config, name string) error {
	conn, err := postgres.Connect(q.Ctx, cfg, true)
	if err != nil {
		return err
	}
	defer postgres.CloseQuietly(conn)
	return (postgres.Querier{Ctx: q.Ctx, Conn: conn}).Exec(failoverCommand(name))
}
