package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// What somebody has to change is a conflict, which says what; what passes is an answer to ask again for.
func TestConsole_SaysWhyLettersCannotBeRead(t *testing.T) {
	for name, tt := range map[string]struct {
		topics map[string]int32
		before func(*harness.Brokers)
		code   int
		says   []string
	}{
		"no topic":  {nil, func(*harness.Brokers) {}, http.StatusConflict, []string{"letters", "cdc-relay setup"}},
		"no right":  {map[string]int32{"letters": 1}, func(b *harness.Brokers) { b.Fake.DenyTopic("letters") }, http.StatusConflict, []string{"letters", "READ"}},
		"no broker": {map[string]int32{"letters": 1}, func(b *harness.Brokers) { b.Fake.TakeAway(time.Hour) }, http.StatusServiceUnavailable, []string{"brokers"}},
	} {
		t.Run(name, func(t *testing.T) {
			brokers := harness.Kfake(t, sandbox.KafkaOptions{Topics: tt.topics})
			a := &app{process: process{stdout: io.Discard, stderr: io.Discard, env: []string{
				"HOME=/nonexistent", "CDC_RELAY_POSTGRES_URL=postgres://a@127.0.0.1:1/b", "CDC_RELAY_OUTBOX_TABLE=outbox", "CDC_RELAY_KAFKA_BROKERS=" + strings.Join(brokers.Addrs, ","),
				"CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC=letters",
			}}}
			cfg, err := a.load()
			if err != nil {
				t.Fatal(err)
			}
			tt.before(brokers)
			show := func() status.Status { return status.Status{} }
			console := admin.NewConsole(show, admin.Tools{Letters: letterTools(cfg, cfg.Relay())}, 0)
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/dead-letters", nil)
			r.Host = "localhost"
			admin.HandlerWithConsole(admin.Config{Listen: "127.0.0.1:8080"}, show, http.NotFoundHandler(), console).ServeHTTP(w, r)
			var got struct{ Detail, Reason string }
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != tt.code || got.Reason == "" {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			for _, word := range tt.says {
				if !strings.Contains(got.Detail, word) {
					t.Errorf("%q does not say %q", got.Detail, word)
				}
			}
		})
	}
}
