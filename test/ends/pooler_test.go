package ends

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Poolers that give each transaction another connection may keep no prepared statements.
func TestConsumer_WithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			t.Run(mode.String()+" "+way, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 2)
				pool, err := pgxpool.ParseConfig(s.db.URL)
				if err != nil {
					t.Fatal(err)
				}
				pool.MaxConns, pool.ConnConfig.DefaultQueryExecMode = 6, mode
				cfg := s.config()
				ways[way](&cfg)
				s.unique = cfg.Offsets
				if cfg.DB, err = pgxpool.NewWithConfig(t.Context(), pool); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(cfg.DB.Close)
				s.produce(t, 200, 3)
				m := s.start(t, cfg)
				s.awaitAll(t)
				s.repeat(t, 50)
				s.produce(t, 50, 3)
				s.finish(t, m)
			})
		}
	}
}

// A pool with fewer connections than the consumer needs makes it slow, and it says so; nothing waits for ever.
func TestConsumer_GoesOnWithAPoolThatIsTooSmall(t *testing.T) {
	t.Parallel()
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 3)
			cfg := s.config()
			ways[way](&cfg)
			s.unique = cfg.Offsets
			cfg.DB = newPool(t, s.db.URL, 1)
			var log bytes.Buffer
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			s.produce(t, 200, 3)
			m := s.start(t, cfg)
			s.awaitAll(t)
			s.repeat(t, 50)
			s.produce(t, 50, 3)
			s.finish(t, m)
			if !strings.Contains(log.String(), "the pool is too small") {
				t.Error(log.String())
			}
		})
	}
}
