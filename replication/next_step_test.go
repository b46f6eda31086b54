package replication

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// What messages point to has to be there, and none may send to a backfill, which the
// relay has not.
func TestMessagesPointToWhatTheRunbookHas(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := make(map[string]bool)
	for _, heading := range regexp.MustCompile("(?m)^##+ (.+)$").FindAllStringSubmatch(string(text), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(strings.Trim(heading[1], "`")), " ", "-")] = true
	}
	messages := []string{hintRecreate(ReasonSlotLost, 0), hintRecreate(ReasonPublicationMissing, 0)}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		messages = append(messages, string(source))
		if strings.Contains(string(source), "backfill") {
			t.Errorf("%s speaks of a backfill", file)
		}
	}
	found := regexp.MustCompile(`operations\.md#([a-z_-]+)`).FindAllStringSubmatch(strings.Join(messages, "\n"), -1)
	if len(found) < 4 {
		t.Errorf("only %d pointers", len(found))
	}
	for _, link := range found {
		if !anchors[link[1]] {
			t.Errorf("docs/operations.md has no heading for #%s", link[1])
		}
	}
}

// Behind a restart the publication is there again, and the slot is stuck before it.
func TestStream_SaysWhatTakesASlotPastAMissingPublication(t *testing.T) {
	fields := func(kv ...string) (b msg) {
		for _, s := range kv {
			b = b.str(s)
		}
		return b.u8(0)
	}
	for name, last := range map[string][]byte{
		"an error": frame('E', fields("SERROR", "VERROR", "C42704", `Mpublication "pub" does not exist`, "Fpg_publication.c",
			`Wslot "s", output plugin "pgoutput", in the change callback, associated LSN 0/300`)),
		"a notice": frame('N', fields("SWARNING", "VWARNING", "C55000", `Mskipped loading publication "pub"`)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
				go f.wal(txn(0x200, 7, "1")...)
				for b := f.take(); b != nil; b = f.take() {
				}
				f.confirm(0x230)
				pass(5 * time.Second)
				f.send(last)
				err := <-f.ended
				if Reason(err) != ReasonPublicationMissing {
					t.Fatalf("got %v", err)
				}
				select {
				case <-f.stream.Lost():
					if name != "an error" {
						t.Error("lost, and the copy goes on")
					}
				default:
					if name == "an error" {
						t.Error("not lost, and the server let go of the slot")
					}
				}
				for _, want := range []string{
					"did not exist when", "stop the relay, then `cdc-relay teardown --yes`, `cdc-relay setup`, `cdc-relay run`",
					"insert the rows since LSN 0/230 again", "docs/operations.md#publication_missing",
				} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not in %v", want, err)
					}
				}
			})
		})
	}
}

func TestProbe_SaysWhatASlotHadConfirmedThatItSawGo(t *testing.T) {
	db := harness.Postgres(t)
	cfg := outboxDatabase(t, db)
	probe := NewProbe(cfg)
	defer probe.Close()
	if _, err := probe.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := confirmedBy(t, db, cfg.Slot)
	db.Exec(t, `SELECT pg_drop_replication_slot($1)`, cfg.Slot)
	s, err := probe.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Drift, KindRefused, ReasonSlotMissing, cfg.Slot, "not there any more", "confirmed LSN "+at.String(), "since that LSN again", "docs/operations.md#slot_missing")
	if strings.Contains(s.Drift.Error(), "new relay") {
		t.Errorf("it is no new relay: %v", s.Drift)
	}
}

// Half of what it says is done, and the half that is left is not needed.
func TestTeardown_AsTheRelaysRoleSaysHowToGoOn(t *testing.T) {
	db := harness.Postgres(t)
	cfg := outboxDatabase(t, db)
	replicator := asReplicator(t, db, cfg)
	steps, err := Teardown(t.Context(), replicator, true)
	wantError(t, err, KindRefused, ReasonPermission, "42501", "drop publication", "the slot is dropped", "go on with `cdc-relay setup`", "as its owner")
	if describe(steps) != "slot do" {
		t.Errorf("done: %s", describe(steps))
	}
	report, err := Setup(t.Context(), replicator, SetupOptions{})
	if err != nil || describe(report.Steps) != "table there, publication there, slot do" {
		t.Errorf("what was left is not enough: %v, %v", describe(report.Steps), err)
	}

	ordinary := cfg
	ordinary.URL = withUser(t, cfg.URL, newRole(t, db, "LOGIN"))
	steps, err = Teardown(t.Context(), ordinary, true)
	wantError(t, err, KindRefused, ReasonPermission, "drop slot", "a role with REPLICATION")
	if len(steps) != 0 || strings.Contains(err.Error(), "is dropped") {
		t.Errorf("done: %s, %v", describe(steps), err)
	}
}

func confirmedBy(t *testing.T, db *harness.Database, slot string) pglogrepl.LSN {
	t.Helper()
	at, err := pglogrepl.ParseLSN(harness.Query[string](t, db, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, slot))
	if err != nil {
		t.Fatal(err)
	}
	return at
}
