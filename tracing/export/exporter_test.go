package export

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/tracing"
	"github.com/rs/zerolog"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// collector is the other side of a client. answer gives the n-th answer, from 1 on.
type collector struct {
	answer func(n int, r *http.Request) (*http.Response, error)

	mu     sync.Mutex
	bodies [][]byte
	at     []time.Time
	header http.Header
}

func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.bodies, c.at, c.header = append(c.bodies, body), append(c.at, time.Now()), r.Header
	n := len(c.bodies)
	c.mu.Unlock()
	return c.answer(n, r)
}

func (c *collector) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.bodies)
}

// sent is what came so far.
func (c *collector) sent() *collector {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &collector{bodies: slices.Clone(c.bodies), at: slices.Clone(c.at), header: c.header.Clone()}
}

// pass lets time pass, which is a bubble's of synctest.
func pass(d time.Duration) { <-time.After(d) }

func answered(status int, body io.Reader, headers ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/x-protobuf"}}, Body: io.NopCloser(body)}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func always(status int, headers ...string) func(int, *http.Request) (*http.Response, error) {
	return func(int, *http.Request) (*http.Response, error) {
		return answered(status, http.NoBody, headers...), nil
	}
}

func open(t *testing.T, cfg Config, c *collector) (*Exporter, *tracing.Tracer, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer) // written by the exporter's goroutine alone, until Close
	cfg.Endpoint = "http://collector:4318/v1/traces"
	e, tr := New(cfg, tracing.Config{MaxPerSecond: 1 << 30}, zerolog.New(log))
	e.client.Transport = c
	return e, tr, log
}

func end(tr *tracing.Tracer, n int) {
	p := tr.Picker()
	for range n {
		p.Pick([]byte(parent)).End(time.Now())
	}
}

func counts(t *testing.T, tr *tracing.Tracer, want map[tracing.Outcome]int64) {
	t.Helper()
	for o, n := range tr.Counts() {
		if n != want[tracing.Outcome(o)] {
			t.Errorf("%s: %d, want %d", tracing.Outcomes[o], n, want[tracing.Outcome(o)])
		}
	}
}

// A batch leaves when it is full, or two seconds after its first span.
func TestExporter_SendsFullBatchesAtOnceAndOthersAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: always(200)}
		e, tr, log := open(t, Config{Headers: func() (map[string]string, error) { return map[string]string{"x-key": "one two"}, nil }}, c)
		began := time.Now()
		e.Start()
		end(tr, 256+10)
		synctest.Wait()
		if c.requests() != 1 || !c.sent().at[0].Equal(began) {
			t.Errorf("%d requests at once", c.requests())
		}
		pass(2 * time.Second)
		synctest.Wait()
		if c.requests() != 2 || c.sent().at[1].Sub(began) != 2*time.Second {
			t.Errorf("%d requests: %v", c.requests(), c.sent().at)
		}
		e.Close(nil)
		counts(t, tr, map[tracing.Outcome]int64{tracing.Sent: 2 * 266})
		if c.sent().header.Get("X-Key") != "one two" || c.sent().header.Get("Content-Encoding") != "gzip" || c.sent().header.Get("Content-Type") != "application/x-protobuf" || log.Len() > 0 {
			t.Errorf("%v; log %s", c.sent().header, log)
		}
		r, err := gzip.NewReader(bytes.NewReader(c.sent().bodies[0]))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(r); err != nil || !bytes.Contains(text, []byte("cdc-relay")) {
			t.Errorf("%v: %d bytes", err, len(text))
		}
	})
}

func TestExporter_TriesAgainWhereThatMayHelp(t *testing.T) {
	for name, c := range map[string]struct {
		first func() (*http.Response, error)
		pause time.Duration
	}{
		"429":         {func() (*http.Response, error) { return answered(429, http.NoBody), nil }, time.Second},
		"502":         {func() (*http.Response, error) { return answered(502, http.NoBody), nil }, time.Second},
		"503":         {func() (*http.Response, error) { return answered(503, http.NoBody, "Retry-After", "7"), nil }, 7 * time.Second},
		"504":         {func() (*http.Response, error) { return answered(504, http.NoBody, "Retry-After", "nonsense"), nil }, time.Second},
		"a long wait": {func() (*http.Response, error) { return answered(503, http.NoBody, "Retry-After", "86400"), nil }, maxPause},
		"away":        {func() (*http.Response, error) { return nil, errors.New("connection refused") }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				col := &collector{answer: func(n int, _ *http.Request) (*http.Response, error) {
					if n == 1 {
						return c.first()
					}
					return answered(200, http.NoBody), nil
				}}
				e, tr, _ := open(t, Config{}, col)
				e.Start()
				end(tr, 3)
				pass(time.Minute)
				synctest.Wait()
				if col.requests() != 2 || col.sent().at[1].Sub(col.sent().at[0]) != c.pause || !bytes.Equal(col.sent().bodies[0], col.sent().bodies[1]) {
					t.Errorf("requests at %v", col.sent().at)
				}
				e.Close(nil)
				counts(t, tr, map[tracing.Outcome]int64{tracing.Sent: 6})
			})
		})
	}
}

// What a request is refused for does not pass by itself. The log says so once a minute.
func TestExporter_DropsWhatIsRefusedAndSaysSoOnceAMinute(t *testing.T) {
	const secret = "hunter2"
	for status, advice := range map[int]string{400: "", 401: "correct tracing.headers_file", 403: "correct tracing.headers_file", 404: "correct tracing.endpoint", 415: "correct tracing.endpoint", 302: "redirects are not followed", 500: ""} {
		synctest.Test(t, func(t *testing.T) {
			c := &collector{answer: always(status, "Location", "http://elsewhere/")}
			e, tr, log := open(t, Config{Headers: func() (map[string]string, error) { return map[string]string{"authorization": secret}, nil }}, c)
			e.Start()
			for range 40 { // more than a minute
				end(tr, 1)
				pass(3 * time.Second)
			}
			e.Close(nil)
			lines := strings.Count(log.String(), "\n")
			if c.requests() != 40 || lines != 2 || !strings.Contains(log.String(), advice) || strings.Contains(log.String(), secret) {
				t.Errorf("%d: %d requests, log %s", status, c.requests(), log)
			}
			counts(t, tr, map[tracing.Outcome]int64{tracing.Failed: 80})
		})
	}
}

// A collector that is slow or silent holds up nobody: what it does not take in time is dropped.
func TestExporter_NeverMakesAnybodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		e, tr, log := open(t, Config{Timeout: 5 * time.Second}, c)
		e.Start()
		began := time.Now()
		for range 10 {
			end(tr, 500)
		}
		if time.Since(began) != 0 {
			t.Errorf("the caller waited %v", time.Since(began))
		}
		pass(3 * time.Minute)
		stopped := time.Now()
		e.Close(nil)
		if took := time.Since(stopped); took > atEnd {
			t.Errorf("the end took %v", took)
		}
		n := tr.Counts()
		if n[tracing.Sent] != 0 || n[tracing.DroppedQueue] < 2*5000-maxQueued-2*maxBatch || n[tracing.DroppedQueue]+n[tracing.Failed] != 2*5000 {
			t.Errorf("counts %v", n)
		}
		if !strings.Contains(log.String(), "spans were not sent") {
			t.Errorf("log %s", log)
		}
	})
}

// endless is a body without an end.
type endless struct{ read int }

func (b *endless) Read(p []byte) (int, error) {
	b.read += len(p)
	return len(p), nil
}

func TestExporter_ReadsNoMoreOfAnAnswerThanItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := new(endless)
		c := &collector{answer: func(int, *http.Request) (*http.Response, error) { return answered(200, body), nil }}
		e, tr, _ := open(t, Config{}, c)
		e.Start()
		end(tr, 1)
		e.Close(nil)
		if body.read > 2*maxAnswer {
			t.Errorf("%d bytes were read", body.read)
		}
		counts(t, tr, map[tracing.Outcome]int64{tracing.Sent: 2})
	})
}

// The collector says that it took a part. The answer is the bytes of {partial_success: {3, "too old"}}.
func TestExporter_CountsWhatACollectorDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(int, *http.Request) (*http.Response, error) {
			return answered(200, strings.NewReader("\x0a\x0b\x08\x03\x12\x07too old")), nil
		}}
		e, tr, log := open(t, Config{}, c)
		e.Start()
		end(tr, 5)
		synctest.Wait() // all of them are in one batch
		e.Close(nil)
		counts(t, tr, map[tracing.Outcome]int64{tracing.Sent: 7, tracing.Failed: 3})
		if !strings.Contains(log.String(), "too old") {
			t.Errorf("log %s", log)
		}
	})
}

// What waits is sent at the end, unless somebody is in a hurry or the collector is away.
func TestClose_SendsWhatWaitsForTwoSecondsAtMost(t *testing.T) {
	hurry := make(chan struct{})
	close(hurry)
	for name, c := range map[string]struct {
		answer func(int, *http.Request) (*http.Response, error)
		hurry  <-chan struct{}
		sent   int64
		took   time.Duration
	}{
		"there": {always(200), nil, 600, 0},
		"away":  {func(int, *http.Request) (*http.Response, error) { return nil, errors.New("refused") }, nil, 0, atEnd},
		"hurry": {func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, hurry, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, tr, _ := open(t, Config{}, &collector{answer: c.answer})
				e.Start()
				end(tr, 300)
				synctest.Wait()
				began := time.Now()
				e.Close(c.hurry)
				if took := time.Since(began); took != c.took {
					t.Errorf("it took %v", took)
				}
				counts(t, tr, map[tracing.Outcome]int64{tracing.Sent: c.sent, tracing.Failed: 600 - c.sent})
				end(tr, 1)
				if tr.Counts()[tracing.DroppedQueue] != 2 {
					t.Error("a span is taken after the end")
				}
			})
		})
	}
}

func TestExporter_ClosesWithoutEverHavingBegun(t *testing.T) {
	e, _, _ := open(t, Config{}, &collector{})
	e.Close(nil)
}

// Headers that cannot be read are an error of that request: the file may come back.
func TestExporter_AsksForHeadersAtEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, asked := &collector{answer: always(200)}, 0
		e, tr, _ := open(t, Config{Headers: func() (map[string]string, error) {
			if asked++; asked == 1 {
				return nil, errors.New("read h: it is gone")
			}
			return map[string]string{"x-key": "2"}, nil
		}}, c)
		e.Start()
		end(tr, 1)
		pass(10 * time.Second)
		e.Close(nil)
		if c.requests() != 1 || c.sent().header.Get("X-Key") != "2" {
			t.Errorf("%d requests, %v", c.requests(), c.sent().header)
		}
		counts(t, tr, map[tracing.Outcome]int64{tracing.Sent: 2})
	})
}

func TestRetryAfter_IsSecondsOrADate(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{"": 0, "3": 3 * time.Second, "-3": 0, "99999999999": time.Hour, "999999": time.Hour, "soon": 0, now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): 0} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
