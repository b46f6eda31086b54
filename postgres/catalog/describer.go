package catalog

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// maxDescribe bounds a look at the catalog, during which the stream is not read and the
// server not answered.
const maxDescribe = 5 * time.Second

// describeTimeout leaves the server a half of its patience: it was last answered up to a
// quarter of it before the look began.
func describeTimeout(c postgres.Config) time.Duration { return min(maxDescribe, c.SenderTimeout()/2) }

// Describer reads the catalog for a stream, which is not able to while it copies.
// Its connection is made when it is first needed. The stream's goroutine owns it.
type Describer struct {
	cfg    postgres.Config
	conn   *pgconn.PgConn
	labels map[uint32]string // of enums, as first seen: later ones are not in the schema of a running stream
}

// NewDescriber connects to nobody yet.
func NewDescriber(cfg postgres.Config) *Describer { return &Describer{cfg: cfg} }

// Describe reads the metadata of a relation's columns.
func (s *Describer) Describe(rel *wal.Relation) ([]wal.ColumnMeta, error) {
	ctx, cancel := context.WithTimeout(context.Background(), describeTimeout(s.cfg))
	defer cancel()
	if s.conn != nil && s.conn.IsClosed() {
		s.conn = nil
	}
	if s.conn == nil {
		conn, err := postgres.Connect(ctx, s.cfg, false)
		if err != nil {
			return nil, err
		}
		s.conn = conn
	}
	meta, err := ReadColumnMeta(postgres.Querier{Ctx: ctx, Conn: s.conn}, rel)
	if err != nil {
		s.Close()
		return nil, err
	}
	if s.labels == nil {
		s.labels = make(map[uint32]string)
	}
	for i := range meta {
		m := &meta[i]
		if m.Labels == "" {
			continue
		}
		if first, ok := s.labels[m.Base]; ok {
			m.Labels = first
		} else {
			s.labels[m.Base] = m.Labels
		}
	}
	return meta, nil
}

func (s *Describer) Close() {
	if s != nil && s.conn != nil {
		postgres.CloseQuietly(s.conn)
		s.conn = nil
	}
}
