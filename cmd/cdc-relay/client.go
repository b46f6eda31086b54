package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/spf13/pflag"
)

// client asks a running relay over HTTP.
type client struct {
	base  string // http://host:port
	token string
	http  http.Client
}

// clientFlags say whom to ask; without --url the configuration does.
type clientFlags struct {
	url       string
	tokenFile string
	timeout   time.Duration
}

func (f *clientFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "url", "", "address of the relay (default: http.listen of the configuration)")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the bearer token, for --url")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for an answer")
}

var errHTTPOff = errors.New("ask the relay: http.listen is empty, so it does not answer; set it or give --url")

func newClient(timeout time.Duration) *client {
	return &client{http: http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// client asks the relay of --url, or that of the configuration, whose warnings it prints for a person.
func (a *app) client(f clientFlags, warn bool) (*client, error) {
	if f.timeout <= 0 {
		return nil, notPositive("timeout", f.timeout)
	}
	if f.url != "" {
		c := newClient(f.timeout)
		return c, c.address(f)
	}
	if f.tokenFile != "" {
		return nil, &advice.Usage{Err: errors.New("--token-file is only allowed with --url; otherwise the token comes from http.token or http.token_file of the configuration")}
	}
	cfg, err := config.Load(config.Options{Path: a.configPath, Set: a.set, Environ: a.env, WithoutSecrets: true})
	if err != nil {
		return nil, err
	}
	if warn {
		a.warn(cfg)
	}
	return configuredClient(cfg, f.timeout)
}

// configuredClient asks the relay that has this configuration.
func configuredClient(cfg *config.Config, timeout time.Duration) (*client, error) {
	c, own := newClient(timeout), cfg.HTTP()
	if own.Listen == "" {
		return nil, &advice.Usage{Err: errHTTPOff}
	}
	c.base = "http://" + reachable(own.Listen)
	if own.Token != nil {
		var err error
		if c.token, err = own.Token(); err != nil {
			return nil, fmt.Errorf("read http.token: %w", err)
		}
	}
	return c, nil
}

func (c *client) address(f clientFlags) error {
	base := f.url
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return &advice.Usage{Err: fmt.Errorf("--url %q is not an http address; allowed: http://host:port or https://host:port", f.url)}
	}
	c.base = u.Scheme + "://" + u.Host
	if f.tokenFile != "" {
		token, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return &advice.Usage{Err: fmt.Errorf("read --token-file: %w", err)}
		}
		c.token = strings.TrimSpace(string(token))
	}
	return nil
}

// reachable turns an address to listen on into one to ask: every address means
// this host too.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// get returns status code and body; only an answer that did not come is an error.
func (c *client) get(ctx context.Context, path string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", c.base, err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return 0, nil, fmt.Errorf("ask %s%s: %w: is `cdc-relay run` up there?", c.base, path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s%s: %w", c.base, path, err)
	}
	return response.StatusCode, body, nil
}
