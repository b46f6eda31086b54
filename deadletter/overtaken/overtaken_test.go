package overtaken

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

const dead = "cdc-relay.dead-letters"

func settings(onReject relay.OnReject, park bool) relay.Config {
	cfg := relay.Config{OnReject: onReject, ParkKey: park}
	cfg.Replication = postgres.Config{Slot: "now", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}
	return cfg.WithDefaults()
}

// newLetters has a server with two slots, and one table.
func newLetters(cfg relay.Config) *letters {
	return &letters{settings: cfg, groups: make(map[group]*waiting), there: &catalog.Sources{System: "7", Database: "5", Slots: []string{"5/now", "5/other"}, Tables: []uint32{16384}}}
}

func letter(source, table, key, reason string, offset int64) *topics.Message {
	m := &topics.Message{Topic: dead, Offset: offset, Key: []byte(key)}
	for _, h := range [][2]string{
		{deadletter.HeaderReason, reason}, {deadletter.HeaderTopic, "orders"}, {deadletter.HeaderTable, table}, {deadletter.HeaderLSN, fmt.Sprintf("0/%X", 16+offset)},
		{deadletter.HeaderSeq, "1"}, {deadletter.HeaderSource, source}, {deadletter.HeaderGroup, deadletter.KeyGroup("orders", []byte(key)).String()},
	} {
		m.Headers = append(m.Headers, record.Header{Key: h[0], Value: []byte(h[1])})
	}
	return m
}

func marker(source, key string, at int64, offsets ...int64) *topics.Message {
	m := deadletter.Marker{Source: source, Group: deadletter.KeyGroup("orders", []byte(key)), Outcome: deadletter.Sent, Offsets: deadletter.NewOffsets(offsets)}
	rec := m.Record(dead, []byte(key))
	return &topics.Message{Topic: dead, Offset: at, Key: rec.Key, Headers: rec.Headers}
}

func TestLetters_AreThoseThatLaterRowsOvertake(t *testing.T) {
	const own, old, other, far = "7/5/now", "7/5/old", "7/5/other", "8/5/old"
	renamed := func(oid string) *topics.Message {
		m := letter(old, "public.former", "a", "route", 0)
		m.Headers = append(m.Headers, record.Header{Key: deadletter.HeaderTableOID, Value: []byte(oid)})
		return m
	}
	rejectedAndParked := []*topics.Message{letter(own, "public.outbox", "a", "route", 0), letter(own, "public.outbox", "a", deadletter.CauseParked, 1), letter(own, "public.outbox", "b", "route", 2)}
	parks := letter(own, "public.outbox", "a", "route", 0)
	parks.Headers = append(parks.Headers, record.Header{Key: deadletter.HeaderParks, Value: []byte("true")})
	for name, tt := range map[string]struct {
		onReject relay.OnReject
		park     bool
		log      []*topics.Message
		want     string
	}{
		"while keys are parked":                {relay.DeadLetterOnReject, true, rejectedAndParked, ""},
		"after on_reject went back":            {relay.StopOnReject, true, rejectedAndParked, "3 of 2 7/5/now false;"},
		"after park_key was turned off":        {relay.DeadLetterOnReject, false, rejectedAndParked, "2 of 1 7/5/now false;"},
		"of a key that was parked, and no row": {relay.DeadLetterOnReject, false, []*topics.Message{parks, letter(own, "public.outbox", "b", "route", 2)}, "1 of 1 7/5/now false;"},
		"without what is done with":            {relay.StopOnReject, false, append(rejectedAndParked[:3:3], marker(own, "a", 3, 0, 1)), "1 of 1 7/5/now false;"},
		"of a slot that is gone":               {relay.DeadLetterOnReject, true, []*topics.Message{letter(old, "public.outbox", "a", "route", 0)}, "1 of 1 7/5/old true;"},
		"of a slot that somebody else has":     {relay.StopOnReject, true, []*topics.Message{letter(other, "public.outbox", "a", "route", 0)}, ""},
		"of a table that is not read":          {relay.StopOnReject, true, []*topics.Message{letter(old, "public.another", "a", "route", 0)}, ""},
		"of a table with another name now":     {relay.DeadLetterOnReject, true, []*topics.Message{renamed("16384")}, "1 of 1 7/5/old true;"},
		"of another table with that name":      {relay.DeadLetterOnReject, true, []*topics.Message{renamed("16385")}, ""},
		"of a database that may have its own":  {relay.StopOnReject, true, []*topics.Message{letter("7/6/old", "public.outbox", "a", "route", 0)}, ""},
		"of a server that may have its own":    {relay.StopOnReject, true, []*topics.Message{letter(far, "public.outbox", "a", "route", 0)}, ""},
		"of rows without a key, and of nobody": {relay.StopOnReject, true, []*topics.Message{{Topic: dead, Value: []byte("x")}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLetters(settings(tt.onReject, tt.park))
			for _, m := range tt.log {
				l.read(m)
			}
			got := ""
			for _, f := range l.overtaken() {
				got += fmt.Sprintf("%d of %d %s %t;", f.Letters, f.Keys, f.Source, f.gone)
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// What is done with makes room, so that a long log with few letters that wait is counted whole.
func TestLetters_AreCountedUpToABound(t *testing.T) {
	const own = "7/5/now"
	l := newLetters(settings(relay.StopOnReject, true))
	found := func() *Found {
		t.Helper()
		all := l.overtaken()
		if len(all) != 1 {
			t.Fatalf("%d sources", len(all))
		}
		return all[0]
	}
	at := int64(0)
	add := func(key string, n int) (offsets []int64) {
		for range n {
			l.read(letter(own, "public.outbox", key, "route", at))
			offsets = append(offsets, at)
			at++
		}
		return offsets
	}
	add("kept", 1)
	done := add("done", maxLetters-1)
	if f := found(); f.Letters != maxLetters || f.More {
		t.Errorf("%d of %d are counted, more: %t", f.Letters, maxLetters, f.More)
	}
	l.read(marker(own, "done", at, done[1:]...)) // the first one still waits
	at++
	add("kept", maxLetters-2)
	if f := found(); f.Letters != maxLetters || f.More {
		t.Errorf("after others were done with: %d of %d are counted, more: %t", f.Letters, maxLetters, f.More)
	}
	add("kept", 1)
	if f := found(); f.Letters != maxLetters || !f.More || f.Seen()[:10] != "more than " {
		t.Errorf("of one more: %d, more: %t, %s", f.Letters, f.More, f.Seen())
	}
}
