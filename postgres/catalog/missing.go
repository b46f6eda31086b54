package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/incomplete"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// TableMissing is the error for a configured table that is not there. A name that
// was written without quotes is in lower case by now, so a table whose name differs
// only in that is most likely the one that was meant.
func TableMissing(q postgres.Querier, cfg postgres.Config, table wal.Table) error {
	e := &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonTableMissing, Op: "look at", Subject: "table " + table.String(),
		Err:  errors.New("the table does not exist"),
		Hint: "correct the name" + cfg.PlaceOf(table) + ", or create it with `cdc-relay setup --create-table`",
	}
	similar, err := SimilarTables(q, table)
	if err != nil {
		return err
	}
	if len(similar) > 0 {
		e.Err = fmt.Errorf("the table does not exist, but %s does", names(similar))
		e.Hint = fmt.Sprintf("did you mean %s? Parts without double quotes are read in lower case: write table: '%s'%s; if another table is meant, create it with the output of `cdc-relay sql --create-table`",
			names(similar), similar[0], cfg.PlaceOf(table))
	}
	return e
}

// SimilarTables are those whose names differ from table's in case alone.
func SimilarTables(q postgres.Querier, table wal.Table) ([]wal.Table, error) {
	rows, err := q.All(fmt.Sprintf(`SELECT n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND lower(n.nspname) = lower(%[1]s) AND lower(c.relname) = lower(%[2]s)
			AND (n.nspname, c.relname) <> (%[1]s, %[2]s) ORDER BY n.nspname <> %[1]s, 1, 2`, postgres.QuoteLiteral(table.Schema), postgres.QuoteLiteral(table.Name)))
	if err != nil {
		return nil, postgres.Classify("look for table "+table.String(), err)
	}
	var similar []wal.Table
	for _, row := range rows {
		similar = append(similar, wal.Table{Schema: row[0].Text, Name: row[1].Text})
	}
	return similar, nil
}

func names(tables []wal.Table) string {
	list := make([]string, len(tables))
	for i, t := range tables {
		list[i] = t.String()
	}
	return strings.Join(wording.Shorten(list), ", ")
}

// PublicationMissing completes what ReadPublication says of a publication that is
// not there: with the slot there already, setup would refuse.
func PublicationMissing(q postgres.Querier, version int, cfg postgres.Config, err error) error {
	var e *fault.Error
	if postgres.Reason(err) != fault.ReasonPublicationMissing || !errors.As(err, &e) {
		return err
	}
	with := *e
	slot, missing := ReadSlot(q, version, cfg.Slot)
	if missing == nil {
		with.Err = fmt.Errorf("the publication does not exist, and %s, which exists, cannot stream rows from before a new one", postgres.SlotSubject(cfg.Slot))
		with.Hint = HintNamed(q, cfg, slot.Confirmed)
	} else if others := publicationsOf(q, cfg); others != "" {
		with.Hint = others + ": if the name is wrong, correct postgres.publication; otherwise " + e.Hint
	}
	return &with
}

// HintNamed is for a publication that is missing beside its slot. A wrong name comes
// first: the way to another slot throws away one that may be whole, with rows in it.
func HintNamed(q postgres.Querier, cfg postgres.Config, confirmed wal.LSN) string {
	hint := "if the name is wrong, correct postgres.publication; if the publication was really dropped: " + postgres.HintRecreate(fault.ReasonPublicationMissing, confirmed)
	if others := publicationsOf(q, cfg); others != "" {
		hint = others + ": " + hint
	}
	return hint
}

// publicationsOf says which publications have every configured table, and nothing where
// there is none or the server does not answer: it only adds to what is wrong. Those of
// shards have names that nobody configured.
func publicationsOf(q postgres.Querier, cfg postgres.Config) string {
	if len(cfg.Tables) == 0 || cfg.Shard.Divided() {
		return ""
	}
	var has strings.Builder
	for _, table := range cfg.Tables {
		// A partitioned table is a member, and may be shown as its partitions.
		fmt.Fprintf(&has, ` AND (EXISTS (SELECT FROM pg_catalog.pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = %[1]s AND t.tablename = %[2]s)
			OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_class c ON c.oid = r.prrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
				WHERE r.prpubid = p.oid AND n.nspname = %[1]s AND c.relname = %[2]s))`, postgres.QuoteLiteral(table.Schema), postgres.QuoteLiteral(table.Name))
	}
	rows, err := q.All(`SELECT p.pubname FROM pg_catalog.pg_publication p WHERE true` + has.String() + ` ORDER BY p.puballtables, 1`)
	if err != nil {
		return ""
	}
	return foundText("publication", rows, " with the configured tables")
}

// SlotMissing completes what ReadSlot says of a slot that is not there: rows may wait in
// one of another name, and a slot that setup makes has none of them.
func SlotMissing(q postgres.Querier, cfg postgres.Config, err error) error {
	var e *fault.Error
	if postgres.Reason(err) != fault.ReasonSlotMissing || !errors.As(err, &e) {
		return err
	}
	with := *e
	if slot, err := incomplete.First(q, cfg); err == nil && slot != nil {
		with.Err = fmt.Errorf("the slot does not exist: %s", slot.Text())
		with.Hint = slot.Hint()
		return &with
	}
	if near := similarSlot(q, cfg); near != "" {
		with.Hint = near + "; otherwise, " + e.Hint
		return &with
	}
	others := IdleSlots(q, cfg)
	if others == "" {
		return err
	}
	with.Hint = others + ": correct postgres.slot if that is it; otherwise, " + e.Hint
	return &with
}

// similarSlot names the slot whose name is much like the configured one, in use or not.
func similarSlot(q postgres.Querier, cfg postgres.Config) string {
	if cfg.Shard.Divided() {
		return ""
	}
	rows, err := q.All(`SELECT slot_name, coalesce(active_pid, 0) FROM pg_catalog.pg_replication_slots
		WHERE slot_type = 'logical' AND plugin = 'pgoutput' AND database = current_database() AND NOT temporary ORDER BY 1`)
	if err != nil {
		return ""
	}
	used := map[string]string{}
	var names []string
	for _, row := range rows {
		names = append(names, row[0].Text)
		used[row[0].Text] = row[1].Text
	}
	near, ok := wording.Nearest(cfg.Slot, names)
	switch {
	case !ok:
		return ""
	case used[near] != "0":
		return fmt.Sprintf("did you mean %q, which pid %s reads? Then correct postgres.slot", near, used[near])
	}
	return fmt.Sprintf("did you mean %q, which nobody reads? Then correct postgres.slot", near)
}

// IdleSlots says which slots a relay of this database could stream from and nobody does:
// nothing if there is none, for shards, and without an answer.
func IdleSlots(q postgres.Querier, cfg postgres.Config) string {
	if cfg.Shard.Divided() {
		return ""
	}
	rows, err := q.All(fmt.Sprintf(`SELECT slot_name FROM pg_catalog.pg_replication_slots
		WHERE slot_type = 'logical' AND plugin = 'pgoutput' AND database = current_database() AND NOT active AND NOT temporary AND NOT two_phase
			AND coalesce(wal_status, '') <> 'lost' AND slot_name <> %s ORDER BY 1`, postgres.QuoteLiteral(cfg.Slot)))
	if err != nil {
		return ""
	}
	return foundText("slot", rows, ", which nobody reads")
}

// foundText names what is there, by the first column of rows.
func foundText(object string, rows []postgres.Cells, what string) string {
	if len(rows) == 0 {
		return ""
	}
	var list []string
	for _, row := range rows {
		list = append(list, strconv.Quote(row[0].Text))
	}
	verb := "is " + object
	if len(list) > 1 {
		verb = "are " + object + "s"
	}
	return "there " + verb + " " + strings.Join(wording.Shorten(list), ", ") + what
}
