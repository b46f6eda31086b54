package ends

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var plantMutants = flag.Bool("mutants", false, "plant bugs into the inbox, each of which its test must find")

// mutant is a bug that is planted into the modules by an overlay of the compiler. The source itself
// stays as it is.
type mutant struct {
	name    string
	patches [][3]string // file, old, new
	dir     string      // of the test that finds it
	test    string
}

var mutants = []mutant{
	{"keys are looked up first, and claimed behind the handler", [][3]string{
		{"inbox/kafkainbox/round.go", "fresh, err := p.c.box.Claim(p.ctx, pgxinbox.Tx(tx), keysOf(items))\n", "fresh, err := p.c.box.Known(p.ctx, pgxinbox.Tx(tx), keysOf(items))\n\tfor i := range fresh {\n\t\tfresh[i] = !fresh[i]\n\t}\n"},
		{"inbox/kafkainbox/round.go", "	w.next(\"commit\")\n", "	_, _ = p.c.box.Claim(p.ctx, pgxinbox.Tx(tx), keysOf(items))\n	w.next(\"commit\")\n"},
	}, ".", "TestConsumer_HandlesEachEventOnce/postgres15/kfake/one_at_a_time"},
	{"the offset is that of what was taken", [][3]string{
		{"inbox/kafkainbox/tracker.go", "	t.open = append(t.open, taken{offset: offset, epoch: epoch})\n", "	t.open = append(t.open, taken{offset: offset, epoch: epoch})\n	t.next, t.epoch = offset+1, epoch\n"},
	}, ".", "TestCrash_AtEachStep/(claimed|handled|before_commit)"},
	{"keys are claimed in the order of their records", [][3]string{
		{"inbox/inbox.go", ` ORDER BY e.key COLLATE \"C\" ON CONFLICT DO NOTHING`, ` ON CONFLICT DO NOTHING`},
	}, ".", "TestClaim_KeysInOppositeOrdersDoNotDeadlock"},
	{"hints are trusted", [][3]string{
		{"inbox/hints.go", "		claimed[place] = known[i]\n", "		claimed[place] = known[i] || true\n"},
	}, "../../inbox", "TestHints_DecideNothing"},
	{"keys are pruned by the wall clock", [][3]string{
		{"inbox/kafkainbox/progress.go", "oldest.Add(-c.cfg.Keep)", "time.Now().Add(-c.cfg.Keep)"},
	}, ".", "TestPrune_GoesByTheSlowestPartition"},
	{"consumers share their keys", [][3]string{
		{"inbox/inbox.go", "(consumer, key, at) SELECT $1::text, e.key, coalesce(e.at, now())\" +\n\t\t\" FROM unnest($2::text[], $3::timestamptz[]) AS e(key, at) ORDER", "(consumer, key, at) SELECT left($1::text, 0) || 'all', e.key, coalesce(e.at, now())\" +\n\t\t\" FROM unnest($2::text[], $3::timestamptz[]) AS e(key, at) ORDER"},
	}, ".", "TestOnce_ConsumersDoNotShareKeys"},
	{"the group's offset is trusted though the database is behind it", [][3]string{
		{"inbox/kafkainbox/progress.go", "at >= 0 && at <= next && !c.cfg.Offsets", "at >= 0 && !c.cfg.Offsets"},
	}, ".", "TestConsumer_GoesBackWithADatabaseThatLostCommits/one_at_a_time_running_false"},
	{"a round does not look for the last key", [][3]string{
		{"inbox/kafkainbox/round.go", "	if key.text == \"\" {\n", "	if key.text != \"no key\" {\n"},
	}, ".", "TestConsumer_GoesBackWithADatabaseThatLostCommits/one_at_a_time_running_true"},
	{"a newest key that was pruned looks like a database that was set back", [][3]string{
		{"inbox/kafkainbox/progress.go", `"::interval))"`, `"::interval AND false))"`},
	}, ".", "TestPrune_OfTheNewestKeyIsNoDatabaseThatWasSetBack"},
	{"records of one place in two logs are one", [][3]string{
		{"inbox/key.go", `fmt.Sprintf("%d-%d-%d", partition, offset, timestamp.UnixMilli())`, `fmt.Sprintf("%d-%d-%d", partition, offset, timestamp.UnixMilli()*0)`},
	}, "../../inbox", "TestKey_OfAPlaceTellsLogsApart"},
	{"a group that goes back handles records without a key again", [][3]string{
		{"inbox/key.go", `fmt.Sprintf("%d-%d-%d", partition, offset, timestamp.UnixMilli())`, `fmt.Sprintf("%d-%d-%d", partition, offset, time.Now().UnixNano())`},
	}, ".", "TestConsumer_RecordsWithoutAKeyAreHandledByTheirPlace"},
	{"records of aborted transactions are handled", [][3]string{
		{"inbox/kafkainbox/consumer.go", "kgo.FetchIsolationLevel(kgo.ReadCommitted())", "kgo.FetchIsolationLevel(kgo.ReadUncommitted())"},
	}, ".", "TestEndToEnd_EachWriteHasOneEffectInOrder/18_kfake_exactly_once"},
	{"with Offsets a round moves the offset that another member has moved", [][3]string{
		{"inbox/kafkainbox/progress.go", `one + " AND next = $4 AND (`, `one + " AND $4::bigint IS NOT NULL AND (`},
	}, ".", "TestOffsets_AreThoseOfTheDatabaseWhereTwoMembersOwnAPartition"},
	{"records of another topic of the name are handled", [][3]string{
		{"inbox/kafkainbox/source.go", "row.Valid && s.id.Valid && row != s.id {", "row.Valid && s.id.Valid && row != s.id && s == nil {"},
	}, ".", "TestTopic_CreatedAgainIsNotReadOnInSilence/kfake/one_at_a_time_running_false"},
	{"a client stays with the id of a topic that is gone", [][3]string{
		{"inbox/kafkainbox/consumer.go", "errors.Is(f.Err, kerr.UnknownTopicID)", "errors.Is(f.Err, kerr.UnknownTopicID) && c == nil"},
	}, ".", "TestTopic_CreatedAgainIsNotReadOnInSilence/kfake/one_at_a_time_running_true"},
	{"the progress of another topic is moved", [][3]string{
		{"inbox/kafkainbox/progress.go", " WHERE p.topic_id = excluded.topic_id OR excluded.topic_id IS NULL", ""},
	}, ".", "TestTopic_MemberOfTheFormerOneMovesNothing/one_at_a_time"},
	{"with Offsets the progress of another topic is moved", [][3]string{
		{"inbox/kafkainbox/progress.go", "(topic_id = $7::uuid OR $7::uuid IS NULL)", "(topic_id = $7::uuid) IS DISTINCT FROM NULL"},
	}, ".", "TestTopic_MemberOfTheFormerOneMovesNothing/offsets"},
	{"records that were deleted unread are left out", [][3]string{
		{"inbox/kafkainbox/source.go", "s.unread >= 0 && start > s.unread", "s.unread >= 0 && start > s.unread && s == nil"},
	}, ".", "TestRetention_OfUnreadRecordsStops/kfake/one_at_a_time"},
	{"a partition that is new begins behind what was deleted unread", [][3]string{
		{"inbox/kafkainbox/partition.go", "p.tracker.next < 0 && errors.As(p.source.wrong, &lost)", "p.tracker.next == -2 && errors.As(p.source.wrong, &lost)"},
	}, ".", "TestRetention_GoesByWhatWasHandled"},
	{"with Offsets the database does not get the end of a transaction", [][3]string{
		{"inbox/kafkainbox/partition.go", "r.Attrs.IsControl() && !p.c.cfg.Offsets && p.source.wrong == nil", "r.Attrs.IsControl() && p.source.wrong == nil"},
	}, ".", "TestRetention_OfTheEndOfATransactionIsNoLoss/kfake/offsets"},
	{"what another member has handled counts as lost", [][3]string{
		{"inbox/kafkainbox/round.go", "now.next >= lost.Start", "now.next < lost.Next"},
	}, ".", "TestRetention_OfWhatIsHandledIsNoLoss"},
	{"with Offsets a log that was cut is read on", [][3]string{
		{"inbox/kafkainbox/source.go", "p.c.cfg.Offsets && offset < s.unread && s.wrong == nil", "p.c.cfg.Offsets && offset < s.unread && s == nil"},
	}, "../../inbox/kafkainbox", "TestAdd_RefusesALogThatWasCutWithOffsets"},
	{"with Offsets nobody asks whether the log was cut", [][3]string{
		{"inbox/kafkainbox/progress.go", "!assigned || at == next || at >= 0", "!assigned || at >= 0"},
	}, ".", "TestOffsets_OfALogThatWasCutAreRefused"},
	{"sessions begin again at once, however often", [][3]string{
		{"inbox/kafkainbox/consumer.go", "			failures = 1\n		}\n", "		}\n		failures = 0\n"},
	}, "../../inbox/kafkainbox", "TestConsumer_SessionsThatEndSoonBeginAtLongerIntervals"},
	{"an attempt that came back is an end of the process", [][3]string{
		{"inbox/kafkainbox/suspect.go", "tries-q.returned.times > crashTries", "tries > crashTries"},
	}, ".", "TestPoison_IsNotARecordWhoseAttemptsCameBack"},
	{"a connection that is lost counts whatever became of another one", [][3]string{
		{"inbox/kafkainbox/lost.go", "	if !answers && !w.crashed.Load() {\n", "	if !answers && !w.crashed.Load() && p == nil {\n"},
	}, ".", "TestPoison_IsNotARecordDuringWhichTheDatabaseGoesDown/network"},
	{"a connection that is lost is nobody's fault whatever became of another one", [][3]string{
		{"inbox/kafkainbox/lost.go", "	if it.lostAfter == 0 {\n", "	if it.lostAfter >= 0 {\n"},
	}, ".", "TestPoison_ThatEndsItsConnectionBlocksAndHeals"},
	{"a crash of the server counts whoever's process it was", [][3]string{
		{"inbox/kafkainbox/lost.go", "w == nil || w.bystander.Load() || ", "w == nil || "},
	}, "../../inbox/kafkainbox", "TestLost_IsTheRecordsFaultByWhatOtherConnectionsSee"},
	{"a crash of the attempt's own parallel worker is that of another client", [][3]string{
		{"inbox/kafkainbox/round.go", "begin; SET LOCAL max_parallel_workers_per_gather = 0", "begin"},
	}, ".", "TestPoison_ThatEndsItsConnectionIsFound/worker"},
	{"a record that is watched makes its partition less than not suspect", [][3]string{
		{"inbox/kafkainbox/suspect.go", "failed == nil && p.opened.suspects.Load() > 0 {", "failed == nil {"},
	}, "../../inbox/kafkainbox", "TestLost_IsTheRecordsFaultByWhatOtherConnectionsSee"},
	{"a lock that a frozen member holds is waited for in silence", [][3]string{
		{"inbox/kafkainbox/waiting.go", "time.AfterFunc(waitAfter, w.report)", "time.AfterFunc(waitAfter*1000, w.report)"},
		{"inbox/kafkainbox/waiting.go", "	w.timer.Reset(waitAfter)\n", "	w.timer.Reset(waitAfter * 1000)\n"},
	}, ".", "TestFrozen_MemberHoldsLocksAndIsReported/one_at_a_time_terminated"},
	{"a partition whose offset was refused is left out", [][3]string{
		{"inbox/kafkainbox/standstill.go", "left = !is && p.source.still.offset == unplaced\n", "left = !is && p.source.still.offset == unplaced && p == nil\n"},
	}, ".", "TestConsumer_ReadsAPartitionWhoseOffsetWasRefused/one_at_a_time_TOPIC_AUTHORIZATION_FAILED"},
	{"fetches that fail are silent", [][3]string{
		{"inbox/kafkainbox/standstill.go", "p.stands(end, now); since > 0 {", "p.stands(end, now); since > 1<<62 {"},
	}, ".", "TestConsumer_ReportsAPartitionThatStandsStill/fetches_that_fail"},
	{"attempts that came back are left in the database", [][3]string{
		{"inbox/kafkainbox/suspect.go", "	if q.returned.times > 0 {\n", "	if q.returned.times > 0 && p == nil {\n"},
	}, "../../inbox/kafkainbox", "TestGuarded_DeletesTheRowOfAnAttemptThatCameBackLater"},
	{"a consumer that stops waits as long as its group does", [][3]string{
		{"inbox/kafkainbox/consumer.go", "time.AfterFunc(leaveLimit, release)", "time.AfterFunc(leaveLimit*100, release)"},
	}, ".", "TestConsumer_StopsBesideAKilledMember/kfake"},
	{"a handler may end the transaction by a statement", [][3]string{
		{"inbox/kafkainbox/round.go", "		if over(tx) {\n", "		if over(tx) && p == nil {\n"},
	}, ".", "TestHandler_ThatEndsTheTransactionLosesNothing/one_at_a_time_COMMIT"},
	{"a transaction that a handler began is committed", [][3]string{
		{"inbox/kafkainbox/round.go", "commitRound = \"release savepoint cdc_relay; commit\"", "commitRound = \"commit\""},
	}, ".", "TestHandler_ThatBeginsAnotherTransactionLosesNothing/one_at_a_time_COMMIT_AND_CHAIN_returns_nil"},
	{"a round that failed in a transaction that a handler began is tried again", [][3]string{
		{"inbox/kafkainbox/round.go", "			if p.isAnother(tx) {\n", "			if p.isAnother(tx) && p == nil {\n"},
	}, ".", "TestHandler_ThatBeginsAnotherTransactionLosesNothing/one_at_a_time_COMMIT_AND_CHAIN_fails"},
	{"offsets wait for the clock", [][3]string{
		{"inbox/kafkainbox/partition.go", "p.loaded && now.next >= 0 && now != p.stored", "p.loaded && now.next >= 0 && !now.at.IsZero() && now != p.stored"},
	}, "../../inbox/kafkainbox", "TestReached_IsTheDatabasesUntilSomethingIsDone"},
	{"the offset goes on before the dead letter is acknowledged", [][3]string{
		{"inbox/kafkainbox/deadletter.go", "	sent := false\n", "	sent := false\n	p.finish([]item{it})\n"},
		{"inbox/kafkainbox/deadletter.go", "			p.finish([]item{it})\n			return true\n", "			return true\n"},
	}, ".", "TestPoison_LetterComesBeforeTheOffset"},
}

// The bugs that a consumer of this kind may have are found by the tests that are named for them.
func TestMutants_AreFound(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			dir, replace, texts := t.TempDir(), map[string]string{}, map[string]string{}
			for _, p := range m.patches {
				path := filepath.Join(root, p[0])
				if texts[path] == "" {
					source, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					texts[path] = string(source)
				}
				if n := strings.Count(texts[path], p[1]); n != 1 {
					t.Fatalf("%s has %q %d times, not once: the patch has to follow the source", p[0], p[1], n)
				}
				texts[path] = strings.Replace(texts[path], p[1], p[2], 1)
			}
			if !*plantMutants {
				return
			}
			for path, text := range texts {
				replace[path] = filepath.Join(dir, filepath.Base(path))
				if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replace})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(file, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=5m", "-overlay", file, "-run", "^"+strings.ReplaceAll(m.test, "/", "$/^")+"$", ".") //nolint:gosec // of the table above
			cmd.Dir = m.dir
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Errorf("%s does not find it:\n%s", m.test, out)
			case strings.Contains(string(out), "[build failed]") || !strings.Contains(string(out), "--- FAIL"):
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
