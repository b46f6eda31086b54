package replication

import (
	"context"
	"fmt"
)

// Describe reads the shape of cfg.Tables[table] from the catalog, which any role
// may do: the columns that the stream will have, or without a publication that
// has the table, would have. The numbers behind the tables are cfg.Messages, for
// which it asks nobody. The warnings are one sentence each.
func Describe(ctx context.Context, cfg Config, table int) (*Relation, []string, error) {
	if i := table - len(cfg.Tables); i >= 0 {
		return messageRelation(cfg.Messages[i], table), nil, nil
	}
	q, server, err := openSession(ctx, cfg, false)
	if err != nil {
		return nil, nil, err
	}
	defer closeQuietly(q.conn)
	return describeTable(q, server.ServerVersion, cfg, table)
}

// describeTable is Describe over a connection that is there.
func describeTable(q querier, version int, cfg Config, index int) (*Relation, []string, error) {
	table := cfg.Tables[index]
	t, err := readTable(q, table)
	if err != nil {
		return nil, nil, err
	}
	if t == nil {
		return nil, nil, tableMissing(q, cfg, table)
	}
	if err := t.decodable(table); err != nil {
		return nil, nil, err
	}
	var warnings []string
	shown := membership{publication: cfg.Publication}
	publication, err := readPublication(q, version, cfg.Publication)
	switch {
	case Reason(err) == ReasonPublicationMissing:
		warnings = append(warnings, publicationSubject(cfg.Publication)+" does not exist yet; "+hintSetup)
	case err != nil:
		return nil, nil, err
	default:
		if err := publication.publishes(table, t); err != nil {
			warnings = append(warnings, oneLine(err.Error()))
		}
		shown = publication.membership(table)
	}
	columns, err := readColumns(q, version, t.oid, table, shown)
	if err != nil {
		return nil, nil, err
	}
	if len(columns.published) < columns.ordinary {
		warnings = append(warnings, fmt.Sprintf("%s publishes %d of the %d columns of %s", publicationSubject(cfg.Publication), len(columns.published), columns.ordinary, table))
	}
	relation := columns.relation(t.oid, table)
	relation.Table = index
	if cfg.wantsOf(index).Meta {
		if relation.Meta, err = readMeta(q, relation); err != nil {
			return nil, nil, err
		}
	}
	return relation, warnings, nil
}
