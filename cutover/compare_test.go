package cutover

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// has writes rows 1 to n of five keys, whose payload is their number.
func (s *scene) has(t *testing.T, n int) {
	t.Helper()
	s.db.Exec(t, fmt.Sprintf("INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload) SELECT 'a', (n %% 5)::text, 'e', n::text FROM generate_series(1, %d) n", s.table, n))
}

// sends has a publisher send rows; change may make their records others.
func (s *scene) sends(t *testing.T, change func(n int, r *kgo.Record), numbers ...int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, n := range numbers {
		r := &kgo.Record{
			Topic: s.topic, Key: []byte(strconv.Itoa(n % 5)), Value: []byte(strconv.Itoa(n)),
			Headers: []kgo.RecordHeader{{Key: "by", Value: []byte("publisher")}, {Key: "id", Value: []byte(strconv.Itoa(n))}},
		}
		if change != nil {
			change(n, r)
		}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func to(from, last int) (all []int) {
	for n := from; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// What the relay would send is held against what the publisher sent; a difference is for a person.
func TestCutover_ComparesRecordsWithThePublishers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(int, *kgo.Record)
		field  string
		says   []string
		alike  bool
	}{
		"the same":   {nil, "", []string{"20 published rows, 20 alike", "header by is sent only by the publisher (20 rows)"}, true},
		"without id": {func(_ int, r *kgo.Record) { r.Headers = nil }, "", []string{"20 without a record"}, false},
		"another topic": {func(n int, r *kgo.Record) {
			if n == 97 {
				r.Topic += "-other"
			}
		}, "", []string{"19 alike", "1 without a record in the topic that the mapping names", "id = 97"}, false},
		"another key": {func(n int, r *kgo.Record) {
			if n > 98 {
				r.Key = []byte("x")
			}
		}, "", []string{"18 alike", "2 with another key", "id = 99"}, false},
		"another value": {func(_ int, r *kgo.Record) { r.Value = append([]byte("1"), r.Value...) }, "", []string{"20 with another value"}, false},
		"another form":  {func(_ int, r *kgo.Record) { r.Value = append([]byte(" "), r.Value...) }, "", []string{"20 with the same JSON"}, false},
		"id in the value": {func(n int, r *kgo.Record) {
			r.Headers, r.Value = nil, fmt.Appendf(nil, `{"event": %d, "of": "x"}`, n)
		}, "event", []string{"20 with another value"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
			s.has(t, 100)
			s.brokers.CreateTopic(t, s.topic+"-other", 1)
			s.sends(t, c.change, to(81, 100)...)
			s.db.Exec(t, "UPDATE "+s.table+" SET published_at = now() + id * interval '1 millisecond'")
			options := Options{Mode: Stopped, Compare: 20, IDField: c.field}
			if text := s.must(t, options); !all(text, c.says) {
				t.Errorf("the plan says\n%s", text)
			}
			options.Yes = true
			text, err := s.attempt(t.Context(), options, nil)
			if c.alike {
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				return
			}
			if blocked, decide := errors.AsType[*relay.BlockedError](err); !decide || blocked.Reason != fault.ReasonRecordsDiffer || s.slots(t) != "" {
				t.Fatalf("%v, slots %q\n%s", err, s.slots(t), text)
			}
			options.AcceptDifference = true
			s.must(t, options)
		})
	}
}

func all(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

func TestCompared_SaysWhatDiffers(t *testing.T) {
	ours := record.Record{Topic: "t", Key: []byte("k"), Value: []byte(`{"a":1,"b":[1,2]}`), Headers: []record.Header{{Key: "id", Value: []byte("1")}, {Key: "cdc-relay-lsn"}}}
	for name, c := range map[string]struct {
		theirs topics.Message
		want   difference
	}{
		"nothing":         {topics.Message{Topic: "t", Key: []byte("k"), Value: ours.Value, Headers: ours.Headers[:1]}, difference{}},
		"form":            {topics.Message{Topic: "t", Key: []byte("k"), Value: []byte(`{"b": [1, 2], "a": 1}`), Headers: ours.Headers[:1]}, difference{form: true}},
		"order of items":  {topics.Message{Topic: "t", Key: []byte("k"), Value: []byte(`{"b": [2, 1], "a": 1}`), Headers: ours.Headers[:1]}, difference{value: true}},
		"number":          {topics.Message{Topic: "t", Key: []byte("k"), Value: []byte(`{"a":1.0,"b":[1,2]}`), Headers: ours.Headers[:1]}, difference{value: true}},
		"no key":          {topics.Message{Topic: "t", Value: ours.Value, Headers: ours.Headers[:1]}, difference{key: true}},
		"empty, not null": {topics.Message{Topic: "t", Key: []byte("k"), Headers: ours.Headers[:1]}, difference{value: true}},
		"headers": {
			topics.Message{Topic: "u", Key: []byte("k"), Value: ours.Value, Headers: []record.Header{{Key: "id", Value: []byte("2")}, {Key: "x"}}},
			difference{topic: "u", headers: []string{"id has another value", "x is sent only by the publisher"}},
		},
	} {
		got := compared(&ours, &c.theirs)
		if got.topic != c.want.topic || got.key != c.want.key || got.value != c.want.value || got.form != c.want.form || !slices.Equal(got.headers, c.want.headers) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Rows that the publisher sent and did not mark are left out, but where a key would then end with
// an older row; also when the command was interrupted.
func TestCutover_SkipsWhatThePublisherHadSent(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		for _, step := range []string{"", "begun", "present_found", "sent", "copied"} {
			t.Run(guarantee+" "+step, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t), byTime, keeps(t, guarantee)...)
				s.has(t, 100)
				s.brokers.CreateTopic(t, s.topic+"-other", 1)
				s.sends(t, nil, to(1, 60)...)
				s.db.Exec(t, "UPDATE "+s.table+" SET published_at = now() WHERE id <= 50; SELECT pg_stat_force_next_flush()") // and not while the table is watched
				s.sends(t, nil, 68)                                                                                           // of its key 63 is missing
				s.sends(t, nil, 75, 70, 65)                                                                                   // none is, but they are the wrong way round
				s.sends(t, func(_ int, r *kgo.Record) { r.Key = []byte("another key") }, 100)                                 // not this row's
				s.sends(t, func(_ int, r *kgo.Record) { r.Value = []byte("162") }, 62)                                        // of another table with that number
				s.sends(t, func(_ int, r *kgo.Record) { r.Topic += "-other" }, 99)                                            // nor this
				s.sends(t, func(_ int, r *kgo.Record) { r.Headers = []kgo.RecordHeader{{Key: "by"}} }, 61)                    // found by the member alone
				options := Options{Mode: Stopped, Yes: true, SkipPresent: true, Watch: time.Millisecond}
				if step != "" {
					s.cancelledAt(t, options, step)
				}
				text := s.must(t, options)
				if step == "" && !all(text, []string{"11 rows in the topics already, and left out", "3 rows in the topics already, before older rows", "1 record with the id of a row and another key", "1 record with the id and the key of a row and another value"}) {
					t.Errorf("it says\n%s", text)
				}
				s.onceInOrder(t)
			})
		}
	}
}

// onceInOrder holds what the relay sent beside the publisher.
func (s *scene) onceInOrder(t *testing.T) {
	t.Helper()
	sent := map[int]int{}
	last := map[string]int{}
	for _, r := range s.committed(t) {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Key) == "another key" {
			continue
		}
		last[string(r.Key)] = n
		if len(r.Headers) == 0 || r.Headers[0].Key != "by" {
			sent[n]++
		}
	}
	for n := 1; n <= 100; n++ {
		want := 1
		if n <= 60 || n == 65 { // of the key of 65 the publisher's 65 is behind its 70 and 75
			want = 0
		}
		if sent[n] != want {
			t.Errorf("the relay sent row %d %d times, want %d", n, sent[n], want)
		}
	}
	for key, n := range last {
		if n < 96 {
			t.Errorf("key %s ends with %d", key, n)
		}
	}
}

// More than can be told, or nothing to tell it by.
func TestCutover_RefusesToCompareWhatItCannot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shape   shape
		options Options
		says    string
	}{
		"deleted":           {deleting, Options{Mode: Stopped, Compare: 10}, "nothing to compare"},
		"not stopped":       {byTime, Options{Mode: MarkNew, SkipPresent: true}, "--skip-present is for --stopped"},
		"no comparison":     {byTime, Options{Mode: MarkNew, AcceptDifference: true}, "--accept-difference is for"},
		"negative":          {byTime, Options{Mode: MarkNew, Compare: -1}, "--compare -1"},
		"no use of a field": {byTime, Options{Mode: MarkNew, IDField: "x"}, "--id-field is for"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), c.shape, keeps(t, "at_least_once")...)
			s.has(t, 3)
			s.refused(t, c.options, c.says)
		})
	}
}
