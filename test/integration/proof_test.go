package integration

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// believing has nothing against any slot.
type believing struct {
	at  wal.Lineage
	oid uint32
}

func (b believing) Kept(_ context.Context, slots []proof.Slot) (*proof.Kept, error) {
	kept := &proof.Kept{Here: wal.Origin{SystemID: b.at.SystemID, Timeline: b.at.Timeline}, Delivered: map[string]wal.LSN{}, Before: map[string]stored.BeforeSlot{}}
	for _, s := range slots {
		kept.Delivered[s.Name] = s.Confirmed
		kept.Before[s.Name] = stored.BeforeSlot{
			System: b.at.SystemID, Timeline: b.at.Timeline, Slot: s.Name, OID: b.oid, Before: stored.BeforeNone, Point: 1, Positions: stored.Promises,
		}
	}
	return kept, nil
}

func (believing) Waiting(context.Context) (proof.Waiting, error) { return proof.Waiting{}, nil }

// quiet is a server that writes nothing of itself, with a relay that is caught up.
func quiet(t *testing.T, version string) (*relaytest.Pipeline, *relaytest.Workload) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"checkpoint_timeout": "1d", "autovacuum": "off", "wal_writer_delay": "10s"}})
	p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
	p.Start(t).AwaitStreaming(t)
	return p, w
}

func prover(t *testing.T, p *relaytest.Pipeline, cfg proof.Config) (*proof.Prover, *maintenance.Session) {
	t.Helper()
	table := p.Config.Relay().Replication.Tables[0]
	s, err := maintenance.Open(t.Context(), p.Config.Relay().Replication, maintenance.Work{Table: table, ID: "id", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	cfg.Table, cfg.Slots, cfg.Positions = s.OID(), []string{p.Slot}, stored.Promises
	return proof.New(cfg, believing{s.Lineage(), s.OID()}), s
}

// Right after a segment switch the end of the WAL points behind the header of a page that is
// not written. A relay on a quiet server confirms the position before that header, and nobody
// has to write anything for that.
func TestProof_SegmentSwitchOnAQuietServerDoesNotHang(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			p, w := quiet(t, version)
			passes, s := prover(t, p, proof.Config{Wait: relaytest.Patience, NudgeAfter: time.Hour})
			for range 3 {
				w.Insert(t, 5)
				p.DB.Exec(t, "SELECT pg_switch_wal()")
				out, err := passes.Pass(t.Context(), s)
				if err != nil || out != (proof.Outcome{Named: 5, Acted: 5}) {
					t.Fatalf("%+v, %v", out, err)
				}
				if out, err := passes.Pass(t.Context(), s); err != nil || out.Named != 0 { // the end of the table
					t.Fatalf("%+v, %v", out, err)
				}
			}
			w.Verify(t)
		})
	}
}

// What a transaction that was rolled back has written nobody flushes, so that no slot of a
// quiet server gets there before something commits.
func TestProof_NudgesAServerThatFlushesNothing(t *testing.T) {
	t.Parallel()
	p, w := quiet(t, "")
	w.Insert(t, 5)
	p.DB.Exec(t, "CREATE TABLE other (n int)")
	p.AwaitCaughtUp(t)
	writer := p.DB.Connect(t)
	if _, err := writer.Exec(t.Context(), "BEGIN; INSERT INTO other VALUES (1); ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	passes, s := prover(t, p, proof.Config{Wait: relaytest.Patience, NudgeAfter: 100 * time.Millisecond})
	out, err := passes.Pass(t.Context(), s)
	if err != nil || out != (proof.Outcome{Named: 5, Acted: 5}) {
		t.Fatalf("%+v, %v", out, err)
	}
	w.Verify(t)
}
