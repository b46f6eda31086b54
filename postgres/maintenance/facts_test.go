package maintenance

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
)

// consumer takes the stream of a slot up to a position, and no further.
type consumer struct {
	db   *harness.Database
	conn *pgx.Conn
	slot string
	has  map[string]bool // the rows that came
}

func consume(t *testing.T, db *harness.Database) *consumer {
	t.Helper()
	c := &consumer{db: db, conn: db.Connect(t), slot: harness.Unique(t, "slot"), has: map[string]bool{}}
	db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, c.slot)
	return c
}

// upTo takes everything that commits before a position, once the server can give it.
func (c *consumer) upTo(t *testing.T, s *Session, at wal.LSN) {
	t.Helper()
	for n := 0; ; n++ {
		var flushed bool
		if err := c.conn.QueryRow(t.Context(), `SELECT pg_current_wal_flush_lsn() >= $1::text::pg_lsn`, at.String()).Scan(&flushed); err != nil {
			t.Fatal(err)
		}
		if flushed {
			break
		}
		if n%200 == 199 {
			if err := s.Nudge(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	rows, err := c.conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_get_binary_changes($1, $2::text::pg_lsn, NULL, 'proto_version', '1', 'publication_names', 'cdc_relay')`, c.slot, at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			t.Fatal(err)
		}
		if data[0] == 'I' { // relation 4, 'N', columns 2, 't', length 4, the id
			size := binary.BigEndian.Uint32(data[9:])
			c.has[string(data[13:13+size])] = true
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// writers insert, commit and roll back in every way that there is, until ctx ends.
func writers(ctx context.Context, t *testing.T, db *harness.Database, n int) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for w := range n {
		conn := db.Connect(t)
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", w, i)
				sql := fmt.Sprintf("BEGIN; SET LOCAL synchronous_commit = %s; ", []string{"on", "off"}[random.IntN(2)])
				insert := func(part string) string { return fmt.Sprintf("INSERT INTO events VALUES ('%s%s', %d); ", id, part, w) }
				if random.IntN(2) == 0 {
					sql += insert("a")
				}
				sql += "SAVEPOINT one; " + insert("b")
				switch random.IntN(3) {
				case 0:
					sql += "ROLLBACK TO one; "
				case 1:
					sql += "SAVEPOINT two; " + insert("c") + "RELEASE one; "
				}
				if random.IntN(8) == 0 {
					sql += fmt.Sprintf("SELECT pg_sleep(%f); ", random.Float64()/10)
				}
				end := "COMMIT"
				switch random.IntN(6) {
				case 0:
					end = "ROLLBACK"
				case 1:
					sql += fmt.Sprintf("PREPARE TRANSACTION '%s'; ", id)
					end = fmt.Sprintf("COMMIT PREPARED '%s'", id)
					if _, err := conn.PgConn().Exec(context.WithoutCancel(ctx), sql).ReadAll(); err != nil {
						t.Error(err)
						return
					}
					sql = ""
				}
				if _, err := conn.PgConn().Exec(context.WithoutCancel(ctx), sql+end).ReadAll(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return all.Wait
}

// A commit record is in the WAL before others see the commit, however it commits: what a
// slot gives up to the end of the WAL has every row that was seen before.
func TestProof_HoldsUnderEveryKindOfCommit(t *testing.T) {
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"max_prepared_transactions": "20"}})
			db.Exec(t, eventsSQL)
			c, s := consume(t, db), opened(t, db, work())
			ctx, cancel := context.WithCancel(t.Context())
			wait := writers(ctx, t, db, 5)
			defer wait()
			defer cancel()
			named, rounds := 0, 0
			for began := time.Now(); named < 100 || rounds < 10 || time.Since(began) < 4*time.Second; {
				if time.Since(began) > time.Minute {
					t.Fatalf("%d rows in %d rounds: the test shows too little", named, rounds)
				}
				rows := name(t, s)
				fence, err := s.Fence(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				c.upTo(t, s, fence)
				for _, r := range rows {
					if !c.has[r.ID] {
						t.Errorf("row %s was seen before the WAL ended at %s, and is not in the stream up to there", r.ID, fence)
					}
				}
				named, rounds = named+act(t, s, rows), rounds+1
			}
			t.Logf("%d rows in %d rounds", named, rounds)
		})
	}
}

// The same with the end of the WAL read before the rows: a row that commits in between is not
// in the stream up to there.
func TestProof_LReadTooEarlyIsFound(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		db.Exec(t, eventsSQL)
		c, s := consume(t, db), opened(t, db, work())
		db.Exec(t, `INSERT INTO events VALUES ('before', 1)`)
		fence, err := s.Fence(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `INSERT INTO events VALUES ('behind', 1)`)
		rows := name(t, s)
		c.upTo(t, s, fence)
		if ids(rows) != "before behind" || !c.has["before"] || c.has["behind"] {
			t.Errorf("named %q, delivered %v", ids(rows), c.has)
		}
	})
}

// What was seen of an asynchronous commit is in the WAL before the insert position, and not
// before the write and flush positions.
func TestProof_WriteAndFlushPositionsAreNoBounds(t *testing.T) {
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"wal_writer_delay": "10s", "autovacuum": "off"}})
			db.Exec(t, eventsSQL)
			s := opened(t, db, work())
			writer := db.Connect(t)
			for range 20 { // the WAL writer may come in between
				if _, err := writer.PgConn().Exec(t.Context(), `SET synchronous_commit = off; INSERT INTO events VALUES ('a', 1)`).ReadAll(); err != nil {
					t.Fatal(err)
				}
				rows := name(t, s)
				row, err := s.q.One(`SELECT pg_current_wal_insert_lsn(), pg_current_wal_lsn(), pg_current_wal_flush_lsn()`)
				if err != nil {
					t.Fatal(err)
				}
				inserted, written, flushed := row.LSN("", 0), row.LSN("", 1), row.LSN("", 2)
				if len(rows) > 0 && written < inserted && flushed < inserted {
					return
				}
			}
			t.Error("write and flush position were never behind a row that was seen")
		})
	}
}

// After a crash a row that was seen is gone, its transaction's number is given out again, and
// its place is taken. The session that saw the row is gone as well.
func TestProof_CrashGivesXidsAgain(t *testing.T) {
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"wal_writer_delay": "10s", "autovacuum": "off"}})
			db.Exec(t, eventsSQL)
			for try := range 5 { // the WAL writer may save the row
				if crashOnce(t, db, fmt.Sprintf("lost-%d", try)) {
					return
				}
			}
			t.Error("the server lost no row in 5 crashes")
		})
	}
}

func crashOnce(t *testing.T, db *harness.Database, lost string) bool {
	t.Helper()
	s, err := Open(t.Context(), postgres.Config{URL: db.URL}, work())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	writer, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = writer.PgConn().Exec(t.Context(), `SET synchronous_commit = off; INSERT INTO events VALUES ('`+lost+`', 1)`).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := name(t, s)
	seen := slices.IndexFunc(rows, func(r proof.Row) bool { return r.ID == lost })
	if seen < 0 {
		t.Fatalf("named %q", ids(rows))
	}
	if err := db.Server.Restart(t.Context(), sandbox.Immediate); err != nil {
		t.Fatal(err)
	}
	writer.Close(t.Context())
	if _, err := s.Act(t.Context(), rows); err == nil {
		t.Fatal("the session outlived the crash")
	}
	if _, err := s.Slots(t.Context(), []string{"any"}); err == nil {
		t.Fatal("the session came back")
	}
	db.Exec(t, `INSERT INTO events VALUES ('new', 2)`)
	again := opened(t, db, work())
	defer again.Close()
	now := name(t, again)
	if slices.ContainsFunc(now, func(r proof.Row) bool { return r.ID == lost }) {
		db.Exec(t, `DELETE FROM events`)
		return false
	}
	for _, r := range now {
		if r.ID == "new" && r.XMin == rows[seen].XMin && r.TID == rows[seen].TID {
			return true // ctid and xmin name a row that nobody has delivered
		}
	}
	t.Logf("the lost row was %+v, now there are %+v", rows[seen], now)
	db.Exec(t, `DELETE FROM events`)
	return false
}

// A prepared transaction is seen, and decoded, when it commits.
func TestProof_PreparedTransactionsComeWhenTheyCommit(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"max_prepared_transactions": "2"}})
	db.Exec(t, eventsSQL)
	c, s := consume(t, db), opened(t, db, work())
	db.Exec(t, `BEGIN; INSERT INTO events VALUES ('a', 1); PREPARE TRANSACTION 'p'`)
	look := func() (string, bool) {
		rows := name(t, s)
		fence, err := s.Fence(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.upTo(t, s, fence)
		return ids(rows), c.has["a"]
	}
	if rows, came := look(); rows != "" || came {
		t.Errorf("named %q, in the stream %t", rows, came)
	}
	db.Exec(t, `COMMIT PREPARED 'p'`)
	if rows, came := look(); rows != "a" || !came {
		t.Errorf("named %q, in the stream %t", rows, came)
	}
}
