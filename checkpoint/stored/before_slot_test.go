package stored

import (
	"strings"
	"testing"
	"time"
)

var beforeSample = BeforeSlot{
	System: "7439812", Timeline: 3, Slot: "cdc_relay", Table: "public.outbox", OID: 16384,
	Before: BeforeNone, Point: 0x16B3748, Positions: Promises, At: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC), Relay: "1.2.3",
}

func TestBeforeSlot_IsReadAsTheFirstVersionWroteIt(t *testing.T) {
	const value = `{"v":1,"system_id":"7439812","timeline":3,"slot":"cdc_relay","table":"public.outbox","table_oid":16384,"before":"none","consistent_point":"0/16B3748","positions":"intents","at":"2026-11-23T10:00:00Z","relay_version":"1.2.3"}`
	if got := string(beforeSample.Encode()); got != value {
		t.Errorf("wrote %s\nwant  %s", got, value)
	}
	if got, err := ParseBeforeSlot([]byte(value)); err != nil || got != beforeSample {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestBeforeSlot_KeepsWhatWasSeenOfTheServer(t *testing.T) {
	want := beforeSample
	want.Published, want.Ended, want.Began = "16390 731", 1<<33+5, 0x5000
	if got, err := ParseBeforeSlot(want.Encode()); err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestBeforeSlot_RefusesWhatItCannotRead(t *testing.T) {
	good := string(beforeSample.Encode())
	for mention, value := range map[string]string{
		"lies before":      `[]`,
		"version 2":        strings.Replace(good, `"v":1`, `"v":2`, 1),
		"system_id":        strings.Replace(good, `"system_id":"7439812"`, `"system_id":""`, 1),
		"table_oid":        strings.Replace(good, `16384`, `0`, 1),
		"timeline":         strings.Replace(good, `"timeline":3`, `"timeline":0`, 1),
		`before is "some"`: strings.Replace(good, `"none"`, `"some"`, 1),
		`before is ""`:     strings.Replace(good, `"none"`, `""`, 1),
		"consistent_point": strings.Replace(good, `0/16B3748`, `16B3748`, 1),
		"timeline_lsn":     strings.Replace(good, `"timeline":3`, `"timeline":3,"timeline_lsn":"5000"`, 1),
		"zero":             strings.Replace(good, `0/16B3748`, `0/0`, 1),
		"positions":        strings.Replace(good, `"intents"`, `"both"`, 1),
		"at:":              strings.Replace(good, `2026-11-23T10:00:00Z`, `yesterday`, 1),
	} {
		if b, err := ParseBeforeSlot([]byte(value)); err == nil || !strings.Contains(err.Error(), mention) {
			t.Errorf("%s: read %+v, error %v does not mention %q", value, b, err, mention)
		}
	}
}

// A relay reads every key with the ending of a promise as a position, and takes those of
// other holders back.
func TestBeforeSlotKey_IsNoPositionToARelay(t *testing.T) {
	key := BeforeSlotKey("7301", "relay", 16384)
	if strings.HasSuffix(key, PromiseSuffix("7301", "relay")) || key == Key("7301", "relay") {
		t.Errorf("a relay takes %q for a position", key)
	}
}

func TestBefore_IsKnownOnlyWhenNothingIsLeftToDeliver(t *testing.T) {
	for before, want := range map[Before]bool{BeforeNone: true, BeforeSent: true, BeforeDeclared: true, BeforeUnknown: false, "": false, "nonsense": false} {
		if before.Known() != want {
			t.Errorf("%q is known: %t", before, !want)
		}
	}
}
