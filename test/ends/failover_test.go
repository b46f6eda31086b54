package ends

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The database fails over to a standby that lacks the newest commits, with the keys and effects in
// them, while the group's offsets are ahead of it. The consumer goes back and has every effect once
// and in order on the new primary: while it runs, and where it starts behind the failover.
func TestConsumer_GoesBackWithADatabaseThatLostCommits(t *testing.T) {
	t.Parallel()
	for i, way := range []string{"one at a time", "parallel", "offsets"} {
		for j, running := range []bool{true, false} {
			if harness.Left(i, j) {
				continue
			}
			t.Run(fmt.Sprint(way, " running ", running), func(t *testing.T) {
				t.Parallel()
				old := harness.OwnPostgres(t, sandbox.PostgresOptions{})
				old.Exec(t, "SELECT pg_create_physical_replication_slot('standby', true)")
				server, err := old.Server.Standby(t.Context(), "standby", nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := server.Close(); err != nil {
						t.Error(err)
					}
				})
				next := &harness.Database{Server: server, Name: old.Name, URL: server.URL(old.Name), Version: old.Version}
				s := newShop(t, old, harness.Kfake(t, sandbox.KafkaOptions{}), 3)
				s.unique = way == "offsets"
				cfg := s.config()
				ways[way](&cfg)
				cfg.Events.Trouble = func(error) {}
				both := fmt.Sprintf("postgres://postgres@%s,%s/%s?target_session_attrs=read-write&sslmode=disable", old.Server.Addr(), server.Addr(), old.Name)
				cfg.DB = newPool(t, both, 8)
				m := s.start(t, cfg)
				s.produce(t, 300, 10)
				s.awaitAll(t)
				s.awaitCommitted(t)
				relaytest.Eventually(t, "the standby has it", func() (bool, string) { return s.on(t, next) == 300, "" })
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				s.produce(t, 200, 10)
				s.awaitAll(t)
				s.awaitCommitted(t)
				if !running {
					m.stop(t)
				}
				if err := old.Server.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				// It answers before it has replayed all that it has, and has nothing else.
				relaytest.Eventually(t, "the standby has what it had", func() (bool, string) {
					n := s.on(t, next)
					if n > 300 {
						t.Fatalf("%d effects on the standby: nothing is tried", n)
					}
					return n == 300, fmt.Sprint(n)
				})
				next.Exec(t, "SELECT pg_promote()")
				s.db = next
				s.produce(t, 200, 10)
				if !running {
					m = s.start(t, cfg)
				}
				s.finish(t, m)
			})
		}
	}
}

// on is how many effects a server has; 0 while it does not answer.
func (s *shop) on(t *testing.T, db *harness.Database) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		return 0
	}
	defer conn.Close(ctx)
	_ = conn.QueryRow(ctx, "SELECT count(*) FROM journal").Scan(&n)
	return n
}

// A copy that was made before the consumer began has no progress of it: what it had handled is
// handled again, from where it began, though the group is ahead.
func TestConsumer_GoesBackWithADatabaseThatLostItsBeginning(t *testing.T) {
	t.Parallel()
	for _, offsets := range []bool{false, true} {
		t.Run(fmt.Sprint("offsets ", offsets), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 2)
			s.produce(t, 200, 20)
			cfg := s.config()
			cfg.Offsets = offsets
			m := s.start(t, cfg)
			s.awaitEffects(t, 200)
			s.awaitCommitted(t)
			s.db.Exec(t, "TRUNCATE inbox_progress, inbox, journal") // in the consumer's own order

			s.produce(t, 100, 20)
			s.awaitEffects(t, 300)
			s.awaitCommitted(t)
			m.stop(t)
			s.verify(t)
		})
	}
}
