package frame

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/ways"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var now = time.Date(2030, 1, 31, 14, 6, 2, 0, time.UTC)

func number[T any](v T) *T { return &v }

func streaming() Model {
	s := status.Status{
		State: status.Streaming, Since: now.Add(-26 * time.Hour), Version: "1.4.0", Pipeline: "orders", Slot: "cdc_relay",
		LagBytes: number(int64(1864)), RetainedWALBytes: 18 << 20, LagSeconds: number(0.18), OldestUnacked: number(0.004),
		SlotState:      &status.Slot{WALStatus: "reserved", SafeWALBytes: number(int64(47 << 30)), SafeSeconds: number(19200.0)},
		InFlightEvents: 12, InFlightBytes: 40 << 10, InFlightLimitBytes: 8 << 20,
		Tables:     []status.Flow{{Name: "public.outbox", Total: 48_201_882, PerSecond: 842.4}},
		TopicRates: []status.Flow{{Name: "invoice-events", Total: 9_120_100, PerSecond: 160.2}, {Name: "order-events", Total: 39_081_770, PerSecond: 682.2}},
	}
	m := Model{Status: s, Now: now}
	for i := range 90 {
		m.Rates = append(m.Rates, 800+float64(i%11)*9)
		m.Lags = append(m.Lags, float64(i%7)/10)
	}
	return m
}

func models() map[string]Model {
	all := map[string]Model{"streaming": streaming()}
	draining := streaming()
	draining.Status.CatchUp = &status.CatchUp{LeftBytes: 3_328_599_654, Seconds: number(387.0)}
	draining.Status.LagBytes, draining.Status.LagSeconds, draining.Largest = number(int64(3_328_599_654)), number(130.0), 9<<30
	draining.Status.TopicRates[0].PerSecond = 30_220
	all["draining"] = draining
	blocked := streaming()
	s := &blocked.Status
	s.State, s.Reason, s.Since, s.ReasonSince = status.Blocked, "record_too_large", now.Add(-252*time.Second), now.Add(-252*time.Second)
	s.Message = "deliver row 1 of the transaction committing at 16/B374D848 (public.outbox, row LSN 16/B374D7F0): produce to order-events: MESSAGE_TOO_LARGE: raise max.message.bytes of the topic; a relay that is blocked by it then goes on by itself"
	s.Obstacle = &status.Obstacle{Reason: s.Reason, Since: s.Since, Slot: s.Slot, Attempts: 9, NextTry: now.Add(21 * time.Second), Row: &status.BlockedRow{
		Table: "public.outbox", Commit: 0x16_B374D848, Number: 1, Topic: "order-events", EventID: "7f0c2d1e-6a55-4b0e-9b7e-0d8f6c1f2a34", Bytes: 1_348_211,
	}}
	s.EventsRejected = 1
	blocked.Ways = ways.Out(s.Reason, ways.Facts{Slot: s.Slot, Topic: "order-events", Position: "16/B374D849", Bytes: 1_348_211, Brokers: "b1:9092,b2:9092", Stops: true})
	all["blocked"] = blocked
	page := blocked
	page.Page = Blocked
	all["blocked-page"] = page
	silent := streaming()
	silent.Silent, silent.Failure = 12*time.Second, "connection refused"
	all["silent"] = silent
	help := streaming()
	help.Page, help.Held = Help, true
	all["help"] = help
	letters := streaming()
	letters.Page, letters.Status.DeadLetters, letters.Status.ParkedKeys = Letters, 3, 1
	letters.Letters = &LetterList{
		Topic: "cdc-relay.dead-letters", ReadAt: now.Add(-4 * time.Second), Total: 213, Waiting: 3,
		Reasons: []Counted{{"record_too_large", 2}, {"encode", 1}},
		Letters: []Letter{
			{Partition: 3, Offset: 17, Time: now.Add(-8 * time.Minute), Reason: "record_too_large", Table: "public.outbox", Topic: "order-events", EventID: "7f0c2d1e-6a55-4b0e-9b7e-0d8f6c1f2a34", Bytes: 1_348_211},
			{Partition: 0, Offset: 204_311, Time: now.Add(-26 * time.Hour), Reason: "encode", Table: "public.outbox\x1b[2J" + strings.Repeat("表", 40), Bytes: 12},
		},
	}
	all["letters"] = letters
	none := streaming()
	none.Page, none.Letters = Letters, &LetterList{Failure: "this relay has no dead-letter topic: relay.on_reject is not dead_letter"}
	all["letters-none"] = none
	sharded := streaming()
	sharded.Status.Shards = []status.Status{{Slot: "cdc_relay_s0_of2", State: status.Streaming, LagBytes: number(int64(1 << 20))}, {Slot: "cdc_relay_s1_of2", State: status.Blocked, Reason: "unknown_topic", LagBytes: number(int64(3 << 30)), InFlightEvents: 4}}
	all["sharded"] = sharded
	all["nothing-known"] = Model{Now: now, Silent: 5 * time.Second, Failure: "ask http://127.0.0.1:8080/api/v1/status: connection refused"}
	hostile := blocked
	hostile.Page = Now
	hostile.Status.Message = "\x1b[2J\x1b]0;owned\a" + strings.Repeat("long", 300)
	hostile.Status.Tables = []status.Flow{{Name: "\x1b[31mred\u202etxet\n" + strings.Repeat("表", 200)}}
	all["hostile"] = hostile
	for name, m := range all {
		if m.Status.State != "" {
			m.Status.Headline = status.Headline(&m.Status, now)
		}
		all[name] = m
	}
	return all
}

func TestLines_OfThreeWidths(t *testing.T) {
	for name, m := range models() {
		for _, width := range []int{40, 80, 200} {
			t.Run(fmt.Sprintf("%s-%d", name, width), func(t *testing.T) {
				got := strings.Join(Lines(&m, Size{Width: width, Height: 40}), "\n") + "\n"
				file := filepath.Join("testdata", fmt.Sprintf("%s-%d.golden", name, width))
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// Whatever the size is, no line is wider and there are no more of them, and with colours the text
// is the same and each line ends plain.
func TestLines_FitIntoEverySize(t *testing.T) {
	for name, m := range models() {
		for width := least; width < 130; width += 3 {
			for _, height := range []int{2, 5, 12, 24, 60} {
				lines := Lines(&m, Size{Width: width, Height: height})
				coloured := Lines(&m, Size{Width: width, Height: height, Colour: true})
				if len(lines) > height || len(lines) != len(coloured) {
					t.Fatalf("%s: %d lines, and %d with colours, at %d × %d", name, len(lines), len(coloured), width, height)
				}
				for i, line := range lines {
					if columns(line) > width || strings.ContainsAny(line, "\x1b\n\a\u202e") {
						t.Errorf("%s at %d: %q has %d columns", name, width, line, columns(line))
					}
					if c := coloured[i]; bare(c) != line || strings.Contains(c, "\x1b") && !strings.HasSuffix(strings.TrimRight(c, " ▁▂▃▄▅▆▇█…"), "m") && !plainAtEnd(c) {
						t.Errorf("%s at %d: %q is %q with colours", name, width, line, c)
					}
				}
			}
		}
	}
}

// plainAtEnd reports whether the last colour that is set is none.
func plainAtEnd(text string) bool {
	at := strings.LastIndex(text, "\x1b[")
	return at < 0 || strings.HasPrefix(text[at:], plain)
}

func TestFold_LeavesNothingOut(t *testing.T) {
	text := "kafka-configs.sh --bootstrap-server b1:9092 --alter --entity-name 表"
	for width := 6; width < 80; width++ {
		lines := fold(text, width, ` \`)
		for _, line := range lines {
			if columns(line) > width {
				t.Errorf("%q is wider than %d", line, width)
			}
		}
		if got := strings.ReplaceAll(strings.Join(lines, "\n"), " \\\n", " "); strings.ReplaceAll(got, "\n", "") != text {
			t.Errorf("%d: %q", width, got)
		}
	}
}
