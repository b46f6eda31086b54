package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// tokens fetches access tokens with the client-credentials grant (RFC 6749,
// section 4.4) and keeps one until shortly before it expires. Brokers are many
// and connect at once; the endpoint is asked once.
type tokens struct {
	cfg  OAuth
	http http.Client
	now  func() time.Time

	mu    sync.Mutex
	token string
	until time.Time
}

// CheckTokenEndpoint refuses what is no URL of a token endpoint, and one that would have
// the client's secret cross the network in the clear, unless insecure permits that.
func CheckTokenEndpoint(endpoint string, insecure bool) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("is no URL without credentials in it; allowed: https://host/path")
	case u.Scheme == "http" && !Loopback(u.Hostname()) && !insecure:
		return errors.New("http shows the client's secret to the network; allowed: https, or kafka.insecure: true when the network is trusted")
	}
	return nil
}

func newTokens(cfg OAuth, insecure bool) (*tokens, error) {
	if err := CheckTokenEndpoint(cfg.TokenEndpoint, insecure); err != nil {
		return nil, fmt.Errorf("configure kafka: kafka.oauth.token_endpoint %w", err)
	}
	t := &tokens{cfg: cfg, now: time.Now}
	t.http.Timeout = 10 * time.Second
	t.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // never carry the secret elsewhere
	return t, nil
}

func (t *tokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && t.now().Before(t.until) {
		return t.token, nil
	}
	if t.cfg.ClientSecret == nil {
		return "", &secretError{"oauth client secret", true, errors.New("none is configured")}
	}
	secret, err := t.cfg.ClientSecret(ctx)
	if err != nil {
		return "", &secretError{"oauth client secret", true, err}
	}
	token, life, err := t.fetch(ctx, secret)
	if err != nil {
		return "", err
	}
	t.token, t.until = token, t.now().Add(life-min(30*time.Second, life/4))
	return token, nil
}

func (t *tokens) fetch(ctx context.Context, secret string) (string, time.Duration, error) {
	const what = "oauth token"
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.cfg.Scope != "" {
		form.Set("scope", t.cfg.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.cfg.TokenEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, &secretError{what, true, err}
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(t.cfg.ClientID), url.QueryEscape(secret))
	resp, err := t.http.Do(req)
	if err != nil {
		return "", 0, &secretError{what, false, err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", 0, &secretError{what, false, err}
	}
	var answer struct {
		Token   string      `json:"access_token"`
		Expires json.Number `json:"expires_in"`
		Error   string      `json:"error"`
	}
	parsed := json.Unmarshal(body, &answer) // the body may hold a token, so it is in no message
	if resp.StatusCode != http.StatusOK || parsed != nil || answer.Token == "" {
		transient := resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
		return "", 0, &secretError{what, !transient, fmt.Errorf("token endpoint answered %s, error %q", resp.Status, answer.Error)}
	}
	seconds, err := answer.Expires.Int64()
	if err != nil || seconds <= 0 {
		seconds = 60
	}
	return answer.Token, time.Duration(seconds) * time.Second, nil
}
