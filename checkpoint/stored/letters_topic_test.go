package stored

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var lettersSample = LettersTopic{
	Topic: "letters", ID: "abc", Begins: map[int32]int64{0: 0, 1: 7}, At: time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC), Relay: "1.2.3",
}

func TestLettersTopic_IsReadAsTheFirstVersionWroteIt(t *testing.T) {
	const value = `{"v":1,"topic":"letters","topic_id":"abc","first_offsets":{"0":0,"1":7},"at":"2026-11-23T10:00:00Z","relay_version":"1.2.3"}`
	if got := string(lettersSample.Encode()); got != value {
		t.Errorf("wrote %s\nwant  %s", got, value)
	}
	if got, err := ParseLettersTopic([]byte(value)); err != nil || !reflect.DeepEqual(got, lettersSample) {
		t.Errorf("read %+v, %v", got, err)
	}
	for mention, value := range map[string]string{
		"dead letters":  `[]`,
		"version 2":     strings.Replace(value, `"v":1`, `"v":2`, 1),
		"first_offsets": strings.Replace(value, `{"0":0,"1":7}`, `{}`, 1),
		"topic or":      strings.Replace(value, `"letters"`, `""`, 1),
		"at:":           strings.Replace(value, `2026-11-23T10:00:00Z`, `yesterday`, 1),
	} {
		if l, err := ParseLettersTopic([]byte(value)); err == nil || !strings.Contains(err.Error(), mention) {
			t.Errorf("%s: read %+v, error %v does not mention %q", value, l, err, mention)
		}
	}
}

// A letter that the topic does not hold any more still waits.
func TestLettersTopic_ShowsThatLettersMayBeGone(t *testing.T) {
	with := func(topic, id string, begins ...int64) *LettersTopic {
		l := &LettersTopic{Topic: topic, ID: id, Begins: map[int32]int64{}}
		for i, begin := range begins {
			l.Begins[int32(i)] = begin
		}
		return l
	}
	for name, tt := range map[string]struct {
		was, now *LettersTopic
		changed  string
	}{
		"the same":                       {with("a", "1", 0, 5), with("a", "1", 0, 5), ""},
		"one more partition":             {with("a", "1", 0), with("a", "1", 0, 0), ""},
		"never seen before":              {nil, with("a", "1", 0, 0), ""},
		"brokers without ids":            {with("a", "", 0), with("a", "", 0), ""},
		"brokers that now give it an id": {with("a", "", 0), with("a", "1", 0), "had no id"},
		"another name":                   {with("a", "1", 0), with("b", "1", 0), `in topic "a"`},
		"another topic of that name":     {with("a", "1", 0), with("a", "2", 0), "not the topic that it was"},
		"brokers that give it no id":     {with("a", "1", 0), with("a", "", 0), "not the topic that it was"},
		"records are gone":               {with("a", "1", 0, 5), with("a", "1", 0, 6), "partition 1 from offset 5 to 5"},
		"records of a new partition":     {with("a", "1", 0), with("a", "1", 0, 3), "partition 1 from offset 0 to 2"},
		"records before anybody looked":  {nil, with("a", "1", 0, 3), "partition 1 from offset 0 to 2"},
		"fewer partitions, without ids":  {with("a", "", 0, 0), with("a", "", 0), "had 2"},
	} {
		if got := tt.was.Changed(tt.now); (got == "") != (tt.changed == "") || !strings.Contains(got, tt.changed) {
			t.Errorf("%s: %q, want %q", name, got, tt.changed)
		}
	}
}

// A relay reads every key with the ending of a promise as a position, and takes back what is
// known before the slot under every key with that ending.
func TestLettersTopicKey_IsNoOtherRecordToARelay(t *testing.T) {
	key := LettersTopicKey("7301", "relay")
	for _, suffix := range []string{PromiseSuffix("7301", "relay"), BeforeSlotSuffix("7301", "relay")} {
		if strings.HasSuffix(key, suffix) || key == Key("7301", "relay") {
			t.Errorf("a relay takes %q for another record", key)
		}
	}
}
