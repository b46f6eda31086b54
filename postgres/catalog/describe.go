package catalog

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Describe reads the shape of cfg.Tables[table] from the catalog, which any role
// may do: the columns that the stream will have, or without a publication that
// has the table, would have. An index beyond the tables is that of cfg.Messages,
// for which no server is asked. The warnings are one sentence each.
func Describe(ctx context.Context, cfg postgres.Config, table int) (*wal.Relation, []string, error) {
	if i := table - len(cfg.Tables); i >= 0 {
		return wal.MessageRelation(cfg.Messages[i], table), nil, nil
	}
	q, server, err := postgres.OpenSession(ctx, cfg, false)
	if err != nil {
		return nil, nil, err
	}
	defer postgres.CloseQuietly(q.Conn)
	return DescribeTable(q, server.ServerVersion, cfg, table)
}

// DescribeTable is Describe over a connection that is there.
func DescribeTable(q postgres.Querier, version int, cfg postgres.Config, index int) (*wal.Relation, []string, error) {
	table := cfg.Tables[index]
	t, err := readDecodable(q, cfg, table)
	if err != nil {
		return nil, nil, err
	}
	var warnings []string
	shown := Membership{Publication: cfg.Publication}
	publication, err := ReadPublication(q, version, cfg.Publication)
	switch {
	case postgres.Reason(err) == fault.ReasonPublicationMissing:
		warnings = append(warnings, postgres.PublicationSubject(cfg.Publication)+" does not exist yet; "+postgres.HintSetup)
	case err != nil:
		return nil, nil, err
	default:
		if err := publication.Publishes(table, t); err != nil {
			warnings = append(warnings, fault.OneLine(err.Error()))
		}
		shown = publication.Membership(table)
	}
	columns, err := ReadColumns(q, version, t.OID, table, shown)
	if err != nil {
		return nil, nil, err
	}
	if len(columns.published) < columns.ordinary {
		warnings = append(warnings, fmt.Sprintf("%s publishes %d of the %d columns of %s", postgres.PublicationSubject(cfg.Publication), len(columns.published), columns.ordinary, table))
	}
	relation := columns.Relation(t.OID, table)
	relation.Table = index
	if cfg.WantsOf(index).Meta {
		if relation.Meta, err = ReadColumnMeta(q, relation); err != nil {
			return nil, nil, err
		}
	}
	return relation, warnings, nil
}
