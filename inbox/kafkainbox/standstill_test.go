package kafkainbox

import (
	"errors"
	"testing"
	"time"
)

func TestStands_IsReportedLessAndLessOften(t *testing.T) {
	t.Parallel()
	p := testPartition(t, Config{})
	began := time.Now()
	var reported []int
	look := func(n int, end int64) {
		if _, since := p.stands(end, began.Add(time.Duration(n)*lookEvery)); since > 0 {
			reported = append(reported, n)
		}
	}
	for n := range 20 { // nothing is known of the beginning
		look(n, 100)
	}
	if reported != nil {
		t.Fatalf("without a beginning: %v", reported)
	}
	p.startsAt(100)
	for n := range 20 {
		look(n, 100)
	}
	if reported != nil {
		t.Fatalf("at the end: %v", reported)
	}
	p.startsAt(7)
	for n := range 20 {
		look(n, 100)
	}
	if want := []int{2, 3, 5, 9, 17}; len(reported) != len(want) || reported[0] != want[0] || reported[4] != want[4] {
		t.Errorf("reported at the looks %v, want %v", reported, want)
	}
	reported = nil
	p.add([16]byte{}, fetched(7, 50))
	look(20, 100)
	look(29, 100)
	if reported != nil {
		t.Error("a partition is reported whose records are on their way")
	}
	for _, it := range admitted(p) {
		p.finish([]item{it})
	}
	look(30, 100)
	look(31, 100)
	if len(reported) != 1 || reported[0] != 31 {
		t.Errorf("reported at the looks %v behind a record", reported)
	}
}

func TestPlaced_IsLeftOutOnceAndNeverWhereItHasAnOffset(t *testing.T) {
	t.Parallel()
	p := testPartition(t, Config{})
	if !p.placed(false) || p.placed(false) {
		t.Error("a partition without an offset is left out, once")
	}
	p = testPartition(t, Config{})
	if p.isUnplaced(p.source.still.assigned.Add(time.Minute)) != time.Minute {
		t.Error("it waits for its offset")
	}
	if p.placed(true) || p.placed(false) || p.isUnplaced(p.source.still.assigned.Add(time.Minute)) != 0 {
		t.Error("a partition with an offset is not left out by what others get")
	}
}

func TestFetchError_NamesWhatIsKnown(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for want, err := range map[string]error{
		"consume: cause":                    fetchError("", 0, cause),
		"fetch topic t: cause":              fetchError("t", -1, cause),
		"fetch topic t, partition 0: cause": fetchError("t", 0, cause),
	} {
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
