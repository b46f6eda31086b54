package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/rs/zerolog"
)

func sampleStatus(state status.State, reason string) status.Status {
	return status.Status{
		State: state, Reason: reason, Since: time.Now().Add(-time.Minute), Version: "1.2.3", Pipeline: "orders",
		Slot: "cdc_relay", Publication: "cdc_relay", LSN: status.LSNs{Confirmed: 0x16_B374D848}, LagBytes: new(int64(2048)), EventsPublished: 1234,
		Topics: []string{"order-events"}, SourceConnected: true, LastTick: time.Now(),
	}
}

// serve runs the real handler.
func serve(t *testing.T, s status.Status, token string) string {
	t.Helper()
	cfg := admin.Config{}
	if token != "" {
		cfg.Token = func() (string, error) { return token, nil }
	}
	server := httptest.NewServer(admin.Handler(cfg, func() status.Status { return s }, http.NotFoundHandler()))
	t.Cleanup(server.Close)
	return server.URL
}

func TestStatus_ExitsWith0OnlyWhileStreaming(t *testing.T) {
	for _, state := range status.States {
		want := exitFailed
		if state == status.Streaming {
			want = exitOK
		}
		got := invoke(t, nil, "status", "--url", serve(t, sampleStatus(state, ""), ""))
		got.want(t, want, string(state), "")
		if got.stderr != "" {
			t.Errorf("%s: stderr %q, want none", state, got.stderr)
		}
	}
}

func TestStatus_ShowsWhatMatters(t *testing.T) {
	got := invoke(t, nil, "status", "--url", serve(t, sampleStatus(status.Blocked, "unknown_topic"), ""))
	for _, want := range []string{"blocked (unknown_topic) since 1m", "16/B374D848", "2.0 KiB", "1234", "order-events", "PostgreSQL yes, Kafka no"} {
		got.want(t, exitFailed, want, "")
	}
}

// The reason may be younger than the state, and older.
func TestStatus_TellsSinceWhenStateAndReasonHold(t *testing.T) {
	s, now := sampleStatus(status.Streaming, "kafka_unreachable"), time.Now()
	s.Since = now.Add(-time.Minute)
	for ago, want := range map[time.Duration]string{14 * time.Second: "since 14s\n", 5 * time.Minute: "since 1m0s\n", 0: "since 1m0s\n"} {
		s.ReasonSince = time.Time{}
		if ago > 0 {
			s.ReasonSince = now.Add(-ago)
		}
		if got := status.Text(s, now); !strings.Contains(got, "streaming (kafka_unreachable) "+want) {
			t.Errorf("the reason began %s ago:\n%s", ago, got)
		}
	}
}

// Who stands by has no stream, and nothing is wrong with that.
func TestStatus_TellsAStandbyFromALostConnection(t *testing.T) {
	of := func(states ...status.State) status.Status {
		all := make([]status.Status, len(states))
		for i, state := range states {
			all[i] = sampleStatus(state, "")
			all[i].SourceConnected = state == status.Streaming
		}
		s := all[0]
		if len(all) > 1 {
			s.Shards, s.SourceConnected = all, false
		}
		return s
	}
	for _, tt := range []struct {
		status status.Status
		want   string
	}{
		{of(status.Streaming), "PostgreSQL yes, Kafka"},
		{of(status.Reconnecting), "PostgreSQL no, Kafka"},
		{of(status.Standby), "PostgreSQL no stream (standby), Kafka"},
		{of(status.Standby, status.Standby), "PostgreSQL no stream (standby), Kafka"},
		{of(status.Streaming, status.Standby, status.Standby), "PostgreSQL yes, 2 of 3 shards stand by, Kafka"},
		{of(status.Reconnecting, status.Standby), "PostgreSQL no, Kafka"},
	} {
		if got := status.Text(tt.status, time.Now()); !strings.Contains(got, tt.want) {
			t.Errorf("want %q in\n%s", tt.want, got)
		}
	}
}

// The names that the configuration has for one slot are nobody's with shards.
func TestStatus_NamesTheSlotsThatThereAre(t *testing.T) {
	s := sampleStatus(status.Streaming, "")
	slot := "slot          " + s.Slot + ", publication "
	if got := status.Text(s, time.Now()); !strings.Contains(got, slot) {
		t.Errorf("want %q in\n%s", slot, got)
	}
	for i := range 2 {
		s.Shards = append(s.Shards, sampleStatus(status.Streaming, ""))
		s.Shards[i].Slot = fmt.Sprintf("shard_%d", i)
	}
	if got := status.Text(s, time.Now()); strings.Contains(got, "slot  ") || !strings.Contains(got, "\nslots         shard_0 streaming") || !strings.Contains(got, "\n              shard_1 streaming") {
		t.Errorf("two shards:\n%s", got)
	}
}

func TestStatus_JSONIsPassedOn(t *testing.T) {
	got := invoke(t, nil, "status", "--json", "--url", serve(t, sampleStatus(status.Streaming, ""), ""))
	var s status.Status
	if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || s.EventsPublished != 1234 || got.code != exitOK {
		t.Errorf("status --json: code %d, %q (%v)", got.code, got.stdout, err)
	}
}

func TestStatus_TakesAddressAndTokenFromTheConfiguration(t *testing.T) {
	address := strings.TrimPrefix(serve(t, sampleStatus(status.Streaming, ""), "sesame"), "http://")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := []string{"status", "--set", "http.listen=" + address}
	invoke(t, closedPorts, append(set, "--set", "http.token_file="+file)...).want(t, exitOK, "streaming", "")
	invoke(t, closedPorts, set...).want(t, exitFailed, "", "token")
	// A shell has no right to the secrets of the servers, and status no use for them.
	withSecret := append(set, "--set", "http.token_file="+file, "--set", "postgres.password_file=postgres")
	invoke(t, closedPorts, withSecret...).want(t, exitOK, "streaming", "")
	withSecret[0] = "healthcheck"
	invoke(t, closedPorts, withSecret...).want(t, exitOK, "", "")
	withSecret[0] = "sql"
	invoke(t, closedPorts, withSecret...).want(t, exitOK, "CREATE PUBLICATION", "")
	withSecret[0] = "setup"
	invoke(t, closedPorts, withSecret...).want(t, exitUsage, "", "read postgres: no such file or directory, and $CREDENTIALS_DIRECTORY")
	invoke(t, nil, "status", "--url", address, "--token-file", file).want(t, exitOK, "streaming", "")
	invoke(t, closedPorts, "status", "--set", "http.listen=").want(t, exitUsage, "", "http.listen")
}

func TestStatus_SaysWhyThereIsNoAnswer(t *testing.T) {
	invoke(t, nil, "status", "--url", "127.0.0.1:1").want(t, exitFailed, "", "connection refused")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer other.Close()
	invoke(t, nil, "status", "--url", other.URL).want(t, exitFailed, "", "not a status")
	moved := httptest.NewServer(http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound))
	defer moved.Close()
	invoke(t, nil, "status", "--url", moved.URL).want(t, exitFailed, "", "HTTP 302")
}

func TestStatus_WatchGoesOnUntilStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 3 {
			stop()
		}
		_ = json.NewEncoder(w).Encode(sampleStatus(status.Streaming, ""))
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	args := []string{"status", "--watch", "--json", "--interval", "1ms", "--url", server.URL}
	code := run(ctx, args, process{stdout: &stdout, stderr: &stderr})
	if code != exitOK || asked != 3 {
		t.Errorf("code %d after %d looks, want 0 after 3; stderr %q", code, asked, &stderr)
	}
	if n := strings.Count(stdout.String(), "\n"); n < 2 {
		t.Errorf("%d lines, want one for each look", n)
	}
}

func TestHealthcheck_IsTheAnswerOfReadyz(t *testing.T) {
	invoke(t, nil, "healthcheck", "--url", serve(t, sampleStatus(status.Streaming, ""), "sesame")).want(t, exitOK, "ok", "")
	invoke(t, nil, "healthcheck", "--url", serve(t, sampleStatus(status.Standby, "slot_in_use"), "")).want(t, exitOK, "ok", "")
	invoke(t, nil, "healthcheck", "--url", serve(t, sampleStatus(status.Blocked, "route"), "")).want(t, exitFailed, "", "blocked: route")
	invoke(t, nil, "healthcheck", "--url", "127.0.0.1:1").want(t, exitFailed, "", "connection refused")
	invoke(t, nil, "healthcheck").want(t, exitFailed, "", "postgres.url") // never 2, which Docker reserves
	invoke(t, closedPorts, "healthcheck", "--set", "http.listen=").want(t, exitFailed, "", "http.listen")
}

func TestReachable_TurnsEveryAddressIntoThisHost(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:8080": "127.0.0.1:8080", "[::]:8080": "127.0.0.1:8080",
		"10.0.0.5:8080": "10.0.0.5:8080", "[::1]:8080": "[::1]:8080", "localhost:1": "localhost:1",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("reachable(%q) = %q, want %q", listen, got, want)
		}
	}
}

// A zero would say that there is no lag.
func TestStatus_SaysWhenTheLagIsNotKnown(t *testing.T) {
	s := sampleStatus(status.Blocked, "publication_missing")
	if got := status.Text(s, time.Now()); !strings.Contains(got, "2.0 KiB, age of the oldest row not known;") || strings.Contains(got, "oldest 0s") {
		t.Errorf("not known:\n%s", got)
	}
	s.LagSeconds, s.OldestUnacked, s.InFlightEvents = new(12.5), new(3.0), 1
	if got := status.Text(s, time.Now()); !strings.Contains(got, "2.0 KiB, 12.5s;") || !strings.Contains(got, "1 row, ") || !strings.Contains(got, "oldest 3s") {
		t.Errorf("known:\n%s", got)
	}
}

// Before the first session nobody knows how much waits in the slot.
func TestStatus_CallsALagThatNobodyKnowsNotZero(t *testing.T) {
	s := sampleStatus(status.Reconnecting, "network")
	s.LSN, s.LagBytes, s.SourceConnected = status.LSNs{}, nil, false
	if got := status.Text(s, time.Now()); !strings.Contains(got, "lag           not known: PostgreSQL has not been reached\n") || strings.Contains(got, "retained") {
		t.Errorf("not reached:\n%s", got)
	}
}

// What a restart would repeat is said before it.
func TestStatus_SaysWhatARestartRepeats(t *testing.T) {
	s := sampleStatus(status.Blocked, "route")
	if got := status.Text(s, time.Now()); strings.Contains(got, "a restart sends") {
		t.Errorf("nothing to repeat:\n%s", got)
	}
	s.EventsToRepeat = 2
	if got := status.Text(s, time.Now()); !strings.Contains(got, "a restart sends 2 rows again") {
		t.Errorf("two rows:\n%s", got)
	}
}

func TestSummary_RoundsItsRate(t *testing.T) {
	for n, want := range map[int64]float64{83231: 2774, 100: 3.3, 1: 0} {
		if got := perSecond(n, 30*time.Second); got != want {
			t.Errorf("%d in 30s are %v a second, want %v", n, got, want)
		}
	}
}

// What was published in the last seconds says nothing about now.
func TestSummary_NamesTheState(t *testing.T) {
	for want, s := range map[string]status.Status{
		`"state":"streaming","published":30,`:                 {State: status.Streaming},
		`"state":"blocked","reason":"route","published":30,`:  {State: status.Blocked, Reason: "route"},
		`"state":"reconnecting","reason":"x","published":30,`: {State: status.Reconnecting, Reason: "x"},
	} {
		var log bytes.Buffer
		(&daemon{log: zerolog.New(&log)}).summary(s, 30)
		if !strings.Contains(log.String(), want) {
			t.Errorf("want %s in %s", want, &log)
		}
	}
}

// A script waits for a relay that starts later, and goes on once it is caught up.
func TestStatus_WaitsUntil(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if n < 3 { // a proxy whose relay is not there yet
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		}
		s := sampleStatus(status.Streaming, "")
		s.LSN.Server, s.LSN.Confirmed = 1000, status.Position(970+10*n) // 1000, and 1000 at the third answer
		if n > 3 {
			s.LSN.Server = 5000
		}
		admin.Handler(admin.Config{}, func() status.Status { return s }, http.NotFoundHandler()).ServeHTTP(w, r)
	}))
	defer server.Close()
	args := []string{"status", "--url", server.URL, "--interval", "1ms", "--until"}
	invoke(t, nil, append(args, "caught_up")...).want(t, exitOK, "streaming", "")
	asked.Store(-1 << 20) // never
	invoke(t, nil, append(args, "streaming", "--timeout", "20ms")...).want(t, exitFailed, "", "--until streaming was not reached in 20ms")
	url := serve(t, sampleStatus(status.Reconnecting, "connection_refused"), "")
	for within := 250 * time.Millisecond; ; within *= 4 {
		got := invoke(t, nil, "status", "--url", url, "--interval", "1ms", "--until", "blocked", "--timeout", within.String())
		if got.stdout == "" && within < time.Minute { // a busy machine gave no answer within that
			continue
		}
		got.want(t, exitFailed, "reconnecting", "--until blocked was not reached in "+within.String())
		break
	}
}

func TestStatus_RefusesFlagsThatDoNotFit(t *testing.T) {
	for _, args := range [][]string{
		{"--until", "done"}, {"--until", "streaming", "--watch"}, {"--interval", "1s"},
		{"--until", "streaming", "--interval", "0s"}, {"--until", "streaming", "--timeout", "-1s"},
	} {
		got := invoke(t, nil, append([]string{"status", "--url", "http://127.0.0.1:1"}, args...)...)
		if got.code != exitUsage {
			t.Errorf("%v ended with %d: %s", args, got.code, got.stderr)
		}
	}
}
