package admin

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// busy shows a status with as many tables and topics as a large relay has.
func busy() func() status.Status {
	s := streaming()
	for i := range 40 {
		name := strings.Repeat("x", 20) + string(rune('a'+i%26))
		s.Tables = append(s.Tables, status.Flow{Name: "public." + name, Total: 1 << 30, PerSecond: 41.5})
		s.TopicRates = append(s.TopicRates, status.Flow{Name: name + "-events", Total: 1 << 30, PerSecond: 41.5})
	}
	return func() status.Status { return s }
}

func timed() Tools {
	of := tools()
	buckets := figures.Buckets{Upper: make([]float64, 20), Counts: make([]uint64, 20)}
	of.Timings = func() (ages, produce figures.Buckets) { return buckets, buckets }
	return of
}

// What a console costs each second while nobody looks, and the memory that it has.
func BenchmarkConsole_NobodyLooks(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c := NewConsole(busy(), timed(), time.Hour)
	now := time.Now()
	for i := range 3600 {
		c.Sample(now.Add(time.Duration(i) * time.Second))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Sample(now.Add(time.Duration(3600+i) * time.Second))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e9*100, "%core")
	b.ReportMetric(float64(after.HeapAlloc)-float64(before.HeapAlloc), "heap-bytes")
	runtime.KeepAlive(c)
}

// What the open pages cost each second.
func BenchmarkConsole_Viewers(b *testing.B) {
	for name, viewers := range map[string]int{"1": 1, "15": 15} {
		b.Run(name, func(b *testing.B) {
			c := NewConsole(busy(), timed(), time.Hour)
			a := &api{cfg: Config{Listen: local}, status: c.status, console: c, now: time.Now}
			all := make([]follower, viewers)
			for i := range all {
				all[i] = follower{a: a, wanted: kinds, number: -1}
			}
			now, sent := time.Now(), 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := now.Add(time.Duration(i) * time.Second)
				c.Sample(at)
				for v := range all {
					sent += len(all[v].next(at))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e9*100, "%core")
			b.ReportMetric(float64(sent)/float64(b.N)/float64(viewers), "bytes/viewer")
		})
	}
}

// What a request takes over the loopback interface.
func BenchmarkAPI(b *testing.B) {
	c := NewConsole(busy(), timed(), time.Hour)
	for i := range 3600 {
		c.Sample(time.Now().Add(time.Duration(i-3600) * time.Second))
	}
	server := httptest.NewServer(HandlerWithConsole(Config{Listen: "127.0.0.1:0"}, c.status, http.HandlerFunc(metricsStub), c))
	defer server.Close()
	for _, path := range []string{"/", "/assets/console.js", "/api/v1/status", "/api/v1/obstacle", "/api/v1/tables", "/api/v1/history?step=1s", "/api/v1/log"} {
		b.Run(strings.NewReplacer("/", "_", "?", "_").Replace(path), func(b *testing.B) {
			var took []time.Duration
			var size int64
			for b.Loop() {
				began := time.Now()
				answer, err := server.Client().Get(server.URL + path)
				if err != nil {
					b.Fatal(err)
				}
				size, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					b.Fatal(answer.Status)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
