package ledger_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
)

func event(id, key string) ledger.Event {
	return ledger.Event{ID: id, Topic: "t", Key: key, Value: []byte("value of " + id)}
}

func record(id, key string) *kgo.Record {
	return &kgo.Record{Topic: "t", Key: []byte(key), Value: []byte("value of " + id), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
}

func TestCheck_FindsEveryKindOfFault(t *testing.T) {
	committed := []ledger.Event{event("1", "a"), event("2", "a"), event("3", "a"), event("4", "b")}
	other := record("2", "a")
	other.Value = []byte("something else")
	cases := []struct {
		name                                   string
		records                                []*kgo.Record
		missing, disordered, phantoms, altered []string
		duplicates                             int
	}{
		{name: "all well", records: []*kgo.Record{record("4", "b"), record("1", "a"), record("2", "a"), record("3", "a")}},
		{name: "replay", duplicates: 2, records: []*kgo.Record{record("1", "a"), record("2", "a"), record("3", "a"), record("2", "a"), record("3", "a"), record("4", "b")}},
		{name: "missing", missing: []string{"2"}, records: []*kgo.Record{record("1", "a"), record("3", "a"), record("4", "b")}},
		{name: "swapped", disordered: []string{"2"}, records: []*kgo.Record{record("1", "a"), record("3", "a"), record("2", "a"), record("4", "b"), record("3", "a")}, duplicates: 1},
		{name: "replay that stops early", disordered: []string{"1"}, duplicates: 1, records: []*kgo.Record{record("1", "a"), record("2", "a"), record("3", "a"), record("1", "a"), record("4", "b")}},
		{name: "rolled back", phantoms: []string{"9"}, records: []*kgo.Record{record("1", "a"), record("2", "a"), record("3", "a"), record("4", "b"), record("9", "a")}},
		{name: "wrong value", altered: []string{"2"}, records: []*kgo.Record{record("1", "a"), other, record("3", "a"), record("4", "b")}},
		{name: "wrong key", altered: []string{"4"}, records: []*kgo.Record{record("1", "a"), record("2", "a"), record("3", "a"), record("4", "a")}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := ledger.New()
			l.Committed(committed...)
			l.RolledBack(event("9", "a"))
			r := l.Check(c.records)
			if !slices.Equal(r.Missing, c.missing) || !slices.Equal(r.Disordered, c.disordered) ||
				!slices.Equal(r.Phantom, c.phantoms) || !slices.Equal(r.Altered, c.altered) || r.Duplicates != c.duplicates {
				t.Errorf("report = %+v", r)
			}
			if bad := c.missing != nil || c.disordered != nil || c.phantoms != nil || c.altered != nil; bad != (r.Err() != nil) {
				t.Errorf("Err = %v", r.Err())
			}
		})
	}
}

func TestResolve_DecidesUncertainEvents(t *testing.T) {
	l := ledger.New()
	l.Uncertain(event("1", "a"), event("2", "a"))
	if err := l.Resolve(func(string) (bool, error) { return false, errors.New("away") }); err == nil {
		t.Fatal("an error of the question was swallowed")
	}
	if err := l.Resolve(func(id string) (bool, error) { return id == "1", nil }); err != nil {
		t.Fatal(err)
	}
	if r := l.Check([]*kgo.Record{record("1", "a")}); r.Err() != nil || r.Committed != 1 {
		t.Errorf("report = %v", r)
	}
	if r := l.Check([]*kgo.Record{record("1", "a"), record("2", "a")}); len(r.Phantom) != 1 {
		t.Errorf("report = %v, want one phantom", r)
	}
}
