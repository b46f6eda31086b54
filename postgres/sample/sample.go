package sample

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// sampleTimeout bounds the search for the newest row of a large table.
	sampleTimeout = 10 * time.Second

	// samplePages is how much of a table's end is searched before all of it.
	samplePages = 64

	// timeNames are the columns that have the time of a row.
	timeNames = "creat|occur|insert|^time"
)

// NewestRow reads the row of cfg.Tables[table] that was written last, over an
// ordinary connection: in text form under the settings of the stream, with the
// columns that the publication shows, or those of the catalog when there is no
// publication that has the table. It is nil for a table without rows.
//
// The best index that orders rows decides what is newest, else the table's
// end, so after deletes it may be a row that is merely new. It needs SELECT:
// without, the error has ReasonPermission and the statement that grants it.
//
// The row stands for none in the WAL: its positions are zero, and its
// transaction's time is the server's present. The caller owns it.
func NewestRow(ctx context.Context, cfg postgres.Config, table int) (*wal.Row, error) {
	rows, err := NewestRows(ctx, cfg, table, 1)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

type sampler struct {
	q       postgres.Querier
	version int
}

func newSampler(ctx context.Context, cfg postgres.Config) (*sampler, error) {
	q, server, err := postgres.OpenSession(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	return &sampler{q: q, version: server.ServerVersion}, nil
}

// searches are the ends of the query, to be tried in turn: the last one takes any
// row.
func (s *sampler) searches(table wal.Table, rel *wal.Relation) ([]string, error) {
	within, err := s.withinTransaction(table, rel)
	if err != nil {
		return nil, err
	}
	byAge := "ORDER BY pg_catalog.age(xmin), " + within + "ctid DESC"
	// The leading column of a complete b-tree index, if its order is that of time.
	row, err := s.q.All(fmt.Sprintf(`SELECT a.attname FROM pg_catalog.pg_index i
			JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam AND m.amname = 'btree'
			JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = %d AND i.indisvalid AND i.indpred IS NULL AND (
			a.atttypid = ANY ('{int4,int8}'::regtype[]) AND i.indisunique AND i.indnkeyatts = 1 OR
			a.atttypid = ANY ('{timestamp,timestamptz}'::regtype[]) AND a.attname ~* '%s')
		ORDER BY i.indisprimary DESC, i.indisunique DESC, a.attnum LIMIT 1`, rel.OID, timeNames))
	if err != nil {
		return nil, postgres.Classify("look at the indexes of table "+table.String(), err)
	}
	if len(row) == 1 {
		column := wal.QuoteIdentifier(row[0][0].Text)
		return []string{fmt.Sprintf("WHERE %s IS NOT NULL ORDER BY %s DESC", column, column), byAge, ""}, nil
	}
	size, err := s.q.One(fmt.Sprintf(`SELECT pg_catalog.pg_relation_size(%d) / current_setting('block_size')::int`, rel.OID))
	if err != nil {
		return nil, postgres.Classify("read the size of table "+table.String(), err)
	}
	if pages := size.Bigint("pg_relation_size", 0); pages != nil && *pages > samplePages {
		return []string{fmt.Sprintf("WHERE ctid >= '(%d,0)' %s", *pages-samplePages, byAge), byAge, ""}, nil
	}
	return []string{byAge, ""}, nil
}

// withinTransaction orders the rows of a partitioned table that one transaction wrote, whose places are of
// several tables: by the column of its ranges, else by one with the time. It is empty where there is neither.
func (s *sampler) withinTransaction(table wal.Table, rel *wal.Relation) (string, error) {
	row, err := s.q.All(fmt.Sprintf(`SELECT a.attname FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum > 0
			AND (p.partstrat = 'r' AND a.attnum = p.partattrs[0] OR a.atttypid = ANY ('{timestamp,timestamptz}'::regtype[]) AND a.attname ~* '%s')
		WHERE p.partrelid = %d ORDER BY p.partstrat = 'r' AND a.attnum = p.partattrs[0] DESC, a.attnum LIMIT 1`, timeNames, rel.OID))
	if err != nil {
		return "", postgres.Classify("look at the partitions of table "+table.String(), err)
	}
	if len(row) == 0 {
		return "", nil
	}
	return wal.QuoteIdentifier(row[0][0].Text) + " DESC NULLS LAST, ", nil
}

func sampled(rel *wal.Relation, row postgres.Cells) *wal.Row {
	r := &wal.Row{Txn: &wal.Txn{}, Ordinal: 1, Relation: rel, Values: make([]wal.Value, len(rel.Columns))}
	for i := range rel.Columns {
		if row[i].Null {
			r.Values[i] = wal.Value{Kind: wal.Null}
			continue
		}
		r.Values[i] = wal.Value{Kind: wal.Text, Data: []byte(row[i].Text)}
	}
	now, err := time.Parse("2006-01-02 15:04:05.999999-07", row[len(rel.Columns)].Text)
	if err != nil {
		now = time.Now()
	}
	r.Txn.Time = now
	return r
}

// grant is the statement that lets the connected role read table.
func (s *sampler) grant(table wal.Table) string {
	role := "the role that connects"
	if row, err := s.q.One("SELECT current_user"); err == nil {
		role = wal.QuoteIdentifier(row.Text(0))
	}
	if row, err := s.q.One("SELECT pg_catalog.has_schema_privilege(" + postgres.QuoteLiteral(table.Schema) + ", 'USAGE')"); err == nil && row.Bool(0) {
		return fmt.Sprintf("run: GRANT SELECT ON %s TO %s", table.SQL(), role)
	}
	return fmt.Sprintf("run: GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %s", wal.QuoteIdentifier(table.Schema), role, table.SQL(), role)
}

func limitStatements() string {
	return fmt.Sprintf("SET default_transaction_read_only = on; SET statement_timeout = %d", sampleTimeout.Milliseconds())
}

func timedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "57014"
}
