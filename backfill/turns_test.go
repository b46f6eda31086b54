package backfill

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

// The time in which it streams is none of sending rows at a rate of zero.
func TestProgressLine_CountsNoStreamingAsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &work{online: &online{}, counts: []counted{{rows: 3000}}}
		w.online.filter.Buckets = 16
		w.online.at.Store(1)
		began := time.Now()
		line := func(sent uint64) Line {
			return w.progressLine(pace{sent, 500, time.Since(began)}, walSeen{at: time.Now(), held: 1016, free: -1}, walSeen{})
		}
		w.online.turns.stream(1)
		w.online.turns.add(3)
		<-time.After(40 * time.Second)
		if got := line(500); got.Text != "bucket 1 of 16 sent · 500 rows of 3000 · streaming what was written meanwhile: 3 rows · WAL held 1016 B" || got.State != "streaming" || got.Bucket != 1 || got.Streamed != 3 || got.ETA != 0 || got.Rate != 0 {
			t.Errorf("before anything was sent: %+v", got)
		}
		w.online.turns.send()
		if got := line(500); !strings.HasPrefix(got.Text, "bucket 2 of 16 · 500 rows of 3000 · 0/s · WAL held") {
			t.Errorf("at the beginning of a bucket: %+v", got)
		}
		<-time.After(10 * time.Second)
		if got := line(1500); got.Text != "bucket 2 of 16 · 1500 rows of 3000 · 100/s · ETA 15s without streaming · WAL held 1016 B" || got.State != "sending" || got.Bucket != 2 || got.Buckets != 16 || got.ETA != 15 || got.Rate != 100 || got.Streamed != 0 {
			t.Errorf("in the bucket: %+v", got)
		}
		w.online.turns.stream(2)
		<-time.After(40 * time.Second)
		w.online.turns.add(1)
		if got := line(1500); got.Text != "bucket 2 of 16 sent · 1500 rows of 3000 · streaming what was written meanwhile: 1 row · ETA 15s without streaming · WAL held 1016 B" || got.ETA != 15 {
			t.Errorf("after the bucket: %+v", got)
		}
		w.online.turns.send()
		w.online.turns.send()
		w.online.at.Store(2)
		<-time.After(10 * time.Second)
		if got := line(2500); !strings.HasPrefix(got.Text, "bucket 3 of 16 · 2500 rows of 3000 · 100/s · ETA 5s without") {
			t.Errorf("in the next one: %+v", got)
		}
	})
}

func TestProgressLine_OfOneSnapshot(t *testing.T) {
	w := &work{counts: []counted{{rows: 3000}}}
	got := w.progressLine(pace{1000, 0, 10 * time.Second}, walSeen{held: 5 << 20, free: -1}, walSeen{})
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"what":"progress","text":"1000 rows of 3000 · 100/s · ETA 20s · WAL held 5 MiB","rows":1000,"of":3000,"rows_per_second":100,"eta_seconds":20,"wal_held_bytes":5242880}`; string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}

// While it streams after a bucket, the progress lines say so and count the rows.
func TestOnline_SaysThatItStreams(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 1000)
	var text bytes.Buffer
	var mu sync.Mutex
	said := func(what *regexp.Regexp) bool {
		mu.Lock()
		defer mu.Unlock()
		return what.Match(text.Bytes())
	}
	const streams = `,"state":"streaming","bucket":2,"buckets":4,"streamed_rows":[1-9]`
	buckets := 0
	out := lockedWriter{&mu, &text}
	b := &Backfill{
		Settings: s.settings, Options: bucketed, Out: Output{Result: out, Meanwhile: out, JSON: true}, Log: zerolog.Nop(), Sample: 300 * time.Millisecond, Every: 100 * time.Millisecond,
		OnStep: func(step string) {
			switch {
			case step == "bucket_done":
				if buckets++; buckets == 2 {
					s.db.Exec(t, "INSERT INTO outbox SELECT n, 'a', n::text, 'e', n::text FROM generate_series(1001, 1400) n")
				}
			case step == "streamed" && buckets == 2:
				wait(t.Context(), func() bool { return said(regexp.MustCompile(streams)) })
			case step == "sent" && buckets == 2:
				wait(t.Context(), func() bool { return said(regexp.MustCompile(`"state":"sending","bucket":3,"buckets":4}`)) })
			}
		},
	}
	b.Options.MaxRate = 2000
	if err := b.Run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	if !said(regexp.MustCompile(`"text":"bucket 2 of 4 sent · \d+ rows of 1000 · streaming what was written meanwhile: [1-9]\d* rows? · (ETA \d+s without streaming · )?WAL held `)) || !said(regexp.MustCompile(`"eta_seconds":[1-9]`)) {
		t.Error(text.String())
	}
	t.Log(text.String())
	s.stream(t)
	if n := len(s.committed(t)); n != 1400 {
		t.Errorf("%d records", n)
	}
}
