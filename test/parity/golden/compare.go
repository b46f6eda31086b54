package golden

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Compare says where the relay's records differ first from what a case expects;
// empty when they do not. Both are in the order of Sort. What the expected record
// calls volatile is not compared, but has to be there.
func (c *Case) Compare(got []Record) string {
	want := c.Records
	if c.resumes() {
		want = withoutRepeats(want)
	}
	return c.compare(want, got)
}

// Contains reports whether got has, in each topic, all that the case expects, and
// maybe more behind it.
func (c *Case) Contains(got []Record) bool {
	have := byTopic(c.Collapse(got))
	for topic, want := range byTopic(c.Records) {
		if len(have[topic]) < len(want) || compareTopic(want, have[topic][:len(want)]) != "" {
			return false
		}
	}
	return true
}

// Begins reports whether got is, in each topic, what the case expects up to some
// record.
func (c *Case) Begins(got []Record) bool {
	want := byTopic(c.Records)
	for topic, have := range byTopic(c.Collapse(got)) {
		if len(want[topic]) < len(have) || compareTopic(want[topic][:len(have)], have) != "" {
			return false
		}
	}
	return true
}

// Differs says where a new capture differs first from the stored one; empty when
// it does not.
func (c *Case) Differs(got []Record, failure string) string {
	if d := c.compare(c.Records, got); d != "" {
		return d
	}
	if failure != c.Error {
		return fmt.Sprintf("error %q, want %q", failure, c.Error)
	}
	return ""
}

func (c *Case) compare(want, got []Record) string {
	got = c.Collapse(got)
	if c.Digest != nil {
		if digest := DigestOf(got); digest != *c.Digest {
			return fmt.Sprintf("digest: got %d records %s, want %d records %s", digest.Records, digest.SHA256, c.Digest.Records, c.Digest.SHA256)
		}
		got = Ends(got)
	}
	return Compare(want, got)
}

// resumes says that the case is about a connector that stopped and went on:
// Debezium repeats rows there, which a relay need not.
func (c *Case) resumes() bool { return strings.HasPrefix(c.Name, "resume-") }

// Collapse keeps the first record of topics whose number of records varies.
func (c *Case) Collapse(records []Record) []Record {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool {
		if !c.Hints.Collapse.Matches(r.Topic) {
			return false
		}
		again := seen[r.Topic]
		seen[r.Topic] = true
		return again
	})
}

// withoutRepeats leaves out what is like an earlier record of its partition.
func withoutRepeats(records []Record) []Record {
	var kept []Record
	for _, r := range records {
		if !slices.ContainsFunc(kept, func(k Record) bool { return k.Partition == r.Partition && difference(k, r) == "" }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// Compare says where got differs first from want; empty when it does not.
func Compare(want, got []Record) string {
	wanted, have := byTopic(want), byTopic(got)
	topics := slices.Sorted(maps.Keys(wanted))
	for _, topic := range slices.Sorted(maps.Keys(have)) {
		if wanted[topic] == nil {
			topics = append(topics, topic)
		}
	}
	for _, topic := range topics {
		if d := compareTopic(wanted[topic], have[topic]); d != "" {
			return "topic " + topic + ": " + d
		}
	}
	return ""
}

func byTopic(records []Record) map[string][]Record {
	topics := map[string][]Record{}
	for _, r := range records {
		topics[r.Topic] = append(topics[r.Topic], r)
	}
	return topics
}

func compareTopic(want, got []Record) string {
	for _, r := range want {
		if slices.Contains(r.Volatile, "partition") {
			return compareSets(want, got)
		}
	}
	for i := range min(len(want), len(got)) {
		if d := difference(want[i], got[i]); d != "" {
			return fmt.Sprintf("record %d: %s", i, d)
		}
	}
	switch {
	case len(got) < len(want):
		return fmt.Sprintf("%d records, want %d; the first that is missing has key %s, value %s", len(got), len(want), want[len(got)].Key, clip(want[len(got)].Value.String()))
	case len(got) > len(want):
		return fmt.Sprintf("%d records, want %d; the first too many has key %s, value %s", len(got), len(want), got[len(want)].Key, clip(got[len(want)].Value.String()))
	}
	return ""
}

// compareSets is for topics whose partitions are chosen at random: each expected
// record must be there once.
func compareSets(want, got []Record) string {
	left := slices.Clone(got)
	want = slices.Clone(want)
	// The stricter ones choose first.
	slices.SortStableFunc(want, func(a, b Record) int { return len(a.Volatile) - len(b.Volatile) })
	for _, w := range want {
		at := slices.IndexFunc(left, func(g Record) bool { return difference(w, g) == "" })
		if at < 0 {
			if len(left) == 0 {
				return fmt.Sprintf("%d records, want %d", len(got), len(want))
			}
			return fmt.Sprintf("a record is not there: key %s, value %s, nearest: %s", w.Key, clip(w.Value.String()), difference(w, left[0]))
		}
		left = slices.Delete(left, at, at+1)
	}
	if len(left) > 0 {
		return fmt.Sprintf("%d records, want %d; one too many has key %s", len(got), len(want), left[0].Key)
	}
	return ""
}

// difference is the first difference of two records, the first of which says what
// is volatile.
func difference(want, got Record) string {
	volatile := func(name string) bool { return slices.Contains(want.Volatile, name) }
	switch {
	case want.Partitions != got.Partitions:
		return fmt.Sprintf("the topic has %d partitions, want %d", got.Partitions, want.Partitions)
	case want.Partition != got.Partition && !volatile("partition"):
		return fmt.Sprintf("partition %d, want %d (key %s, want %s)", got.Partition, want.Partition, got.Key, want.Key)
	}
	if d := differ("key", want.Key, got.Key, volatile("key")); d != "" {
		return d
	}
	if d := differ("value", want.Value, got.Value, volatile("value")); d != "" {
		return d
	}
	if d := differentHeaders(want, got); d != "" {
		return d
	}
	switch {
	case want.TimestampType != got.TimestampType:
		return fmt.Sprintf("timestamp type %s, want %s", got.TimestampType, want.TimestampType)
	case want.Timestamp != got.Timestamp && !volatile("timestamp"):
		return fmt.Sprintf("timestamp %d, want %d", got.Timestamp, want.Timestamp)
	}
	return ""
}

// differentHeaders compares names, order and values.
func differentHeaders(want, got Record) string {
	if w, g := names(want.Headers), names(got.Headers); !slices.Equal(w, g) {
		return fmt.Sprintf("headers %q, want %q", g, w)
	}
	for i, w := range want.Headers {
		if d := differ("header "+w.Name, w.Value, got.Headers[i].Value, slices.Contains(want.Volatile, "headers."+w.Name)); d != "" {
			return d
		}
	}
	return ""
}

func names(headers []Header) []string {
	out := make([]string, len(headers))
	for i, h := range headers {
		out[i] = h.Name
	}
	return out
}

// differ compares two values; of a volatile one only whether it is null.
func differ(what string, want, got Bytes, volatile bool) string {
	if want.Equal(got) || volatile && want.Null == got.Null {
		return ""
	}
	w, g := want.String(), got.String()
	if len(w) > 300 || len(g) > 300 { // show where they part
		at := 0
		for at < min(len(w), len(g)) && w[at] == g[at] {
			at++
		}
		from := max(0, at-80)
		return fmt.Sprintf("%s differs at byte %d: …%s, want …%s", what, at, clip(g[min(from, len(g)):]), clip(w[min(from, len(w)):]))
	}
	return fmt.Sprintf("%s %s, want %s", what, g, w)
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}
