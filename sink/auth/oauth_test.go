package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/auth"
)

func clientSecret(context.Context) (string, error) { return "s3cr3t/", nil }

// endpoint answers with tokens that are numbered by how often it was asked.
func endpoint(t *testing.T, asked *atomic.Int64, answer func(n int64) (int, string)) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, pass, _ := r.BasicAuth()
		if r.FormValue("grant_type") != "client_credentials" || id != "relay" || pass != "s3cr3t%2F" || r.FormValue("scope") != "kafka" {
			t.Errorf("asked with %v as %q", r.Form, id)
		}
		status, body := answer(asked.Add(1))
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestTokens_AreKeptUntilShortlyBeforeTheyExpire(t *testing.T) {
	var asked atomic.Int64
	now := time.Unix(0, 0)
	get, err := auth.Tokens(auth.OAuth{
		TokenEndpoint: endpoint(t, &asked, func(n int64) (int, string) {
			return http.StatusOK, fmt.Sprintf(`{"access_token": "t%d", "expires_in": 300}`, n)
		}),
		ClientID: "relay", ClientSecret: clientSecret, Scope: "kafka",
	}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{0, "t1"}, {200 * time.Second, "t1"}, {269 * time.Second, "t1"}, {271 * time.Second, "t2"}} {
		now = time.Unix(0, 0).Add(step.at)
		if token, err := get(context.Background()); err != nil || token != step.want {
			t.Errorf("after %s: %q, %v, want %q", step.at, token, err, step.want)
		}
	}
}

func TestTokens_TellRefusalsFromOutages(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		class  sink.Class
	}{
		"wrong secret": {http.StatusUnauthorized, `{"error": "invalid_client"}`, sink.Blocked},
		"outage":       {http.StatusBadGateway, `<html>`, sink.Retry},
		"busy":         {http.StatusTooManyRequests, ``, sink.Retry},
		"nonsense":     {http.StatusOK, `not json with t0ken`, sink.Blocked},
		"moved":        {http.StatusFound, ``, sink.Blocked},
	} {
		var asked atomic.Int64
		get, err := auth.Tokens(auth.OAuth{
			TokenEndpoint: endpoint(t, &asked, func(int64) (int, string) { return c.status, c.body }),
			ClientID:      "relay", ClientSecret: clientSecret, Scope: "kafka",
		}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		_, err = get(context.Background())
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		var own sink.Classified
		if !errors.As(err, &own) {
			t.Fatalf("%s: %v has no class", name, err)
		}
		e := own.WrappedBy(err)
		if e.Class != c.class || e.Reason != "sasl_secret" {
			t.Errorf("%s: %s %s, want %s", name, e.Class, e.Reason, c.class)
		}
		for _, hidden := range []string{"s3cr3t", "t0ken"} {
			if strings.Contains(e.Error(), hidden) {
				t.Errorf("%s: the message shows %q: %v", name, hidden, e)
			}
		}
	}
}
