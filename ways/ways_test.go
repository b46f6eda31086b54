package ways

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/docs"
)

// Whoever is at a reason of the runbook has a way out of it, or reads that it passes.
func TestOut_EveryReasonOfTheRunbookHasAWay(t *testing.T) {
	known := docs.Reasons()
	for _, reason := range known {
		all := Out(reason, Facts{})
		if heals := HealsByItself(reason); heals != (len(all) == 0) {
			t.Errorf("%s: heals by itself %t, and has %d ways", reason, heals, len(all))
		}
		for _, w := range all {
			if w.Title == "" || w.Loses == "" || w.Shell+w.SQL+w.Config == "" && !w.Restart {
				t.Errorf("%s: %+v says nothing to do", reason, w)
			}
			if w.Stopped && !w.Restart {
				t.Errorf("%s: %+v has the relay stopped and not started again", reason, w)
			}
		}
	}
	for _, list := range [][]string{Heals, keys(byReason), keys(rowReasons)} {
		for _, reason := range list {
			if !slices.Contains(known, reason) {
				t.Errorf("%s is no reason of the runbook", reason)
			}
		}
	}
	if len(Out("nothing", Facts{})) != 0 {
		t.Error("there is a way out of no reason")
	}
}

func keys[V any](m map[string]V) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

func TestOut_SaysItInTheNamesAtHand(t *testing.T) {
	f := Facts{
		Slot: "o'clock", Publication: "Pub", Table: `public.the "box"`, Topic: "orders", Position: "16/B374D849", Bytes: 1_348_211,
		Brokers: "b1:9092,b2:9092", Stops: true,
	}
	for reason, want := range map[string][]string{
		"record_too_large": {
			"kafka-configs.sh --bootstrap-server b1:9092,b2:9092 --alter --entity-type topics --entity-name orders --add-config max.message.bytes=1572864",
			"relay: {on_reject: dead_letter}", "SELECT pg_replication_slot_advance('o''clock', '16/B374D849');",
		},
		"unknown_topic":     {"kafka-topics.sh --bootstrap-server b1:9092,b2:9092 --create --topic orders --partitions 12"},
		"table_unpublished": {`ALTER PUBLICATION "Pub" ADD TABLE public."the ""box""";`},
		"slot_lost":         {"cdc-relay teardown --yes\ncdc-relay setup\ncdc-relay replay --since TIME --complete-keys --yes"},
	} {
		var text strings.Builder
		for _, w := range Out(reason, f) {
			text.WriteString(w.Shell + "\n" + w.SQL + "\n" + w.Config + "\n")
		}
		for _, one := range want {
			if !strings.Contains(text.String(), one) {
				t.Errorf("%s: %q is missing in:\n%s", reason, one, &text)
			}
		}
	}
}

// A topic of dead letters that is made with the brokers' settings would delete letters that wait.
func TestOut_TheTopicOfDeadLettersIsMadeBySetup(t *testing.T) {
	all := Out("unknown_topic", Facts{Topic: "dead", DeadLetterTopic: "dead", Brokers: "b1:9092"})
	if len(all) != 1 || !strings.HasPrefix(all[0].Shell, "cdc-relay setup") {
		t.Errorf("%+v", all)
	}
}

// Whoever copies a command is in any directory, and the brokers ask for a login as they ask the relay.
func TestOut_CommandsFindTheConfigurationAndLogIn(t *testing.T) {
	f := Facts{File: "/etc/relays/it's.yaml", Brokers: "b1:9092", Topic: "orders", Secured: true, KeepsPositions: true}
	for _, reason := range docs.Reasons() {
		for _, w := range Out(reason, f) {
			for line := range strings.SplitSeq(w.Shell, "\n") {
				plain := strings.Count(line, "cdc-relay ") - strings.Count(line, `cdc-relay --config '/etc/relays/it'\''s.yaml' `)
				if plain != 0 || strings.HasPrefix(line, "kafka-") && !strings.Contains(line, ".sh --bootstrap-server b1:9092 --command-config ADMIN.PROPERTIES ") {
					t.Errorf("%s: %s", reason, line)
				}
			}
		}
	}
}

// A relay that streamed has the right names: a slot or a publication that it misses is gone, and the rows
// from the old slot to the new one are sent again.
func TestOut_WhatIsGoneIsMadeAgainWithItsRows(t *testing.T) {
	for reason, before := range map[string]string{"slot_lost": "cdc-relay teardown --yes\n", "publication_missing": "cdc-relay teardown --yes\n", "slot_missing": ""} {
		all := Out(reason, Facts{Streamed: true, Since: "2026-01-31T08:00:00Z"})
		if want := before + "cdc-relay setup\ncdc-relay replay --since 2026-01-31T08:00:00Z --complete-keys --yes"; len(all) != 1 || all[0].Shell != want || !all[0].Stopped || all[0].Loses != Later {
			t.Errorf("%s: %+v", reason, all)
		}
		kept := Out(reason, Facts{KeepsPositions: true})
		if last := kept[len(kept)-1]; !strings.Contains(last.Shell, "setup --accept-gap\ncdc-relay replay --since TIME ") || !strings.Contains(last.Title, "TIME is ") {
			t.Errorf("%s, with a checkpoint, and not known since when: %+v", reason, last)
		}
	}
}

// While the WAL runs short, the other ways have to be quick: the first one wins time, where there is WAL to keep.
func TestOut_WinsTimeWhereTheWALRunsShort(t *testing.T) {
	f := Facts{WALLimit: 128<<20 + 1}
	if first := Out("kafka_unreachable", f)[0]; first.SQL != "ALTER SYSTEM SET max_slot_wal_keep_size = '129MB';\nSELECT pg_reload_conf();" || first.Restart {
		t.Errorf("%+v", first)
	}
	for reason := range withoutSlot {
		if first := Out(reason, f)[0]; strings.Contains(first.SQL, "max_slot_wal_keep_size") {
			t.Errorf("%s: %+v", reason, first)
		}
	}
}

// After a rename preset auto may choose another one, which sends to another topic.
func TestOut_OfARenamedColumnKeepsThePreset(t *testing.T) {
	if first := Out("schema", Facts{Tables: []string{"public.outbox"}})[0]; first.Config != "outbox: [{table: public.outbox, preset: PRESET, columns: {ROLE: COLUMN}}]" || !first.Restart {
		t.Errorf("%+v", first)
	}
}

// A topic that takes more does not help where the relay does not send the record, and a relay that
// would send it not where the topic refuses it.
func TestOut_OfALargeRecordBeginsWithTheLimitThatItIsOver(t *testing.T) {
	topic, relay := "max.message.bytes=1572864", "kafka: {max_message_bytes: 1536KiB}"
	for name, c := range map[string]struct {
		facts        Facts
		topic, relay bool
	}{
		"refused by the topic": {Facts{Bytes: 1_348_211}, true, false},
		"not sent":             {Facts{Bytes: 1_348_211, OwnLimit: true}, true, true},
	} {
		first := Out("record_too_large", c.facts)[0]
		if strings.Contains(first.Shell, topic) != c.topic || (first.Config == relay) != c.relay || first.Restart != c.relay {
			t.Errorf("%s: %+v", name, first)
		}
	}
	if all := Out("record_too_large", Facts{}); len(all) != 3 || all[0].Config != "" || all[1].Config != "kafka: {max_message_bytes: SIZE}" {
		t.Errorf("where the row is not known: %+v", all)
	}
}

// What gives rows up comes last, and says so.
func TestOut_LossComesLast(t *testing.T) {
	for _, reason := range docs.Reasons() {
		all := Out(reason, Facts{Stops: true})
		for i, w := range all {
			if w.Loses == Rows && i != len(all)-1 || strings.Contains(w.SQL, "pg_replication_slot_advance") != (w.Loses == Rows) {
				t.Errorf("%s, way %d of %d: %+v", reason, i+1, len(all), w)
			}
		}
	}
	kept := Out("route", Facts{Stops: false, KeepsPositions: true})
	if len(kept) != 2 || kept[1].Shell != "cdc-relay setup --accept-gap" {
		t.Errorf("with a checkpoint: %+v", kept)
	}
}

func TestWord_IsOneArgumentOfAShell(t *testing.T) {
	for _, text := range hostile() {
		out, err := exec.Command("sh", "-c", `printf %s `+Word(text)).Output()
		want := strings.Map(func(r rune) rune {
			if r < ' ' || r == '\u202e' {
				return '?'
			}
			return r
		}, text)
		if err != nil || string(out) != want {
			t.Errorf("%q came as %q (%v)", text, out, err)
		}
	}
}

func hostile() []string {
	return []string{"plain", "", "-x", "a b", "it's", `"`, `\`, `\'; rm -rf /; '`, "$(id)", "`id`", "${HOME}", "a\nb", "\x1b[2J", "*", "<script>", "ü\u202e", "a'\"'b", "!x", "~", "#x"}
}

func FuzzLiteral(f *testing.F) {
	for _, text := range hostile() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ReplaceAll(text, "\x00", "")
		literal := strings.TrimPrefix(Literal(text), " ")
		escapes := strings.HasPrefix(literal, "E")
		inner := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(literal, "E"), "'"), "'")
		back := strings.ReplaceAll(inner, "''", "'")
		if escapes {
			back = strings.ReplaceAll(back, `\\`, `\`)
		}
		if back != text || strings.Contains(strings.ReplaceAll(inner, "''", ""), "'") {
			t.Errorf("%q became %s", text, literal)
		}
		if name := Identifier(text); name != text && strings.ReplaceAll(name[1:len(name)-1], `""`, `"`) != text {
			t.Errorf("%q became %s", text, name)
		}
	})
}
