package outbox

import (
	"fmt"
	"testing"
	"time"
)

func TestKey_VectorsForOtherLanguages(t *testing.T) {
	for want, parts := range map[string][]string{
		"e3b0c44298fc1c149afbf4c8996fb924": nil,
		"643d76d2766c1c66bf6df40630304dc3": {""},
		"80e0af87c3c4849e29248f1f06daf8f5": {"order", "o-1", "placed"},
		"a8c15b136badc5e28b25055d3342db9c": {"é", "😀"},
	} {
		if got := Key(parts...); got != want {
			t.Errorf("%q: %s, want %s", parts, got, want)
		}
	}
}

func TestKey_PartsDoNotRunIntoEachOther(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{{"a:b", "c"}, {"a", "b:c"}, {"a:b:c"}, {"a", "b", "c"}, {"a,1:b", "c"}, {"abc"}, {"abc", ""}, {"", "abc"}, {}, {""}} {
		key := Key(parts...)
		if other, twice := seen[key]; twice {
			t.Errorf("%q and %q have one key", parts, other)
		}
		seen[key] = parts
	}
}

func TestNewUUID_IsOfVersion7AndSortsByTime(t *testing.T) {
	seen := map[UUID]bool{}
	for range 10000 {
		u := NewUUID()
		if u[6]>>4 != 7 || u[8]>>6 != 2 || seen[u] {
			t.Fatalf("%s: not of version 7, or made twice", u)
		}
		seen[u] = true
	}
	at := time.Date(2024, 1, 2, 12, 0, 0, 999_999_999, time.UTC)
	var before, after UUID
	for step := time.Duration(0); step < 3*time.Millisecond; step += time.Microsecond {
		stamp(&after, at.Add(step))
		if step > 0 && after.String() <= before.String() {
			t.Fatalf("%s comes after %s, and sorts before", after, before)
		}
		before = after
	}
	stamp(&after, time.UnixMilli(0x017F22E279B0)) // RFC 9562, A.6
	if got := after.String()[:15]; got != "017f22e2-79b0-7" {
		t.Errorf("it begins with %s", got)
	}
}

func TestParseUUID(t *testing.T) {
	u, err := ParseUUID("7F0C1c5e-0000-4000-8000-0000000000aF")
	if err != nil || u.String() != "7f0c1c5e-0000-4000-8000-0000000000af" {
		t.Errorf("%s, %v", u, err)
	}
	for _, bad := range []string{"", "7f0c1c5e00004000800000000000000a", "7f0c1c5e-0000-4000-8000-00000000000g", "7f0c1c5e-0000-4000-8000-00000000000a ", "-7f0c1c5e0000-4000-8000-00000000000a"} {
		if _, err := ParseUUID(bad); err == nil {
			t.Errorf("%q is taken for a UUID", bad)
		}
	}
}

func ExampleKey() {
	fmt.Println(Key("order", "o-1", "placed"))
	// Output: 80e0af87c3c4849e29248f1f06daf8f5
}

func ExamplePythonKey() {
	key, err := PythonKey("7f0c1c5e-0000-4000-8000-000000000001", "OrderCreated", []byte(`{"total":12}`))
	fmt.Println(key, err)
	// Output: 021bf1d1861a1a39e64c53fe459f5370 <nil>
}
