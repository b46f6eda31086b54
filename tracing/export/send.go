package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/tracing"
)

const (
	defaultTimeout = 10 * time.Second

	firstPause = time.Second
	maxPause   = 30 * time.Second
	maxTries   = time.Minute // from the first attempt of a batch on

	maxAnswer = 64 << 10
	maxShown  = 300 // of what a collector says
)

// newClient follows no redirect: headers may be secrets.
func newClient(cfg Config) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxConnsPerHost = 1, 1
	transport.ResponseHeaderTimeout = cfg.Timeout
	transport.MaxResponseHeaderBytes = maxAnswer
	if cfg.TLS != nil {
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			settings, err := cfg.TLS()
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{Config: settings}).DialContext(ctx, network, address)
		}
	}
	return &http.Client{
		Transport: transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refusal is an answer that says no.
type refusal struct {
	status int
	after  time.Duration // Retry-After; zero: it names none
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("the collector answered %d %s", r.status, http.StatusText(r.status))
	switch {
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden:
		return text + "; correct tracing.headers_file"
	case r.status == http.StatusNotFound, r.status == http.StatusMethodNotAllowed, r.status == http.StatusUnsupportedMediaType, r.status >= 300 && r.status < 400:
		return text + "; correct tracing.endpoint: it takes OTLP over HTTP, and redirects are not followed"
	}
	return text
}

// passes reports whether the same request may succeed later.
func (r *refusal) passes() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// send sends a batch, again while that may help, and counts what becomes of it.
func (e *Exporter) send(batch []*tracing.Span) {
	spans := len(batch) * tracing.PerRow
	body, err := e.encode(batch)
	if err != nil {
		e.failed(spans, err)
		return
	}
	began, pause := time.Now(), firstPause
	for {
		rejected, why, err := e.post(body)
		if err == nil {
			lost := min(max(0, int(rejected)), spans)
			e.tracer.Count(tracing.Sent, spans-lost)
			if lost > 0 {
				e.failed(lost, fmt.Errorf("the collector took a part of them: %s", shown(why)))
			}
			return
		}
		wait := pause
		if r, ok := errors.AsType[*refusal](err); ok {
			if !r.passes() {
				e.failed(spans, err)
				return
			}
			wait = max(wait, min(r.after, maxPause))
		}
		if time.Since(began)+wait > maxTries || !e.sleep(wait) {
			e.failed(spans, err)
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// sleep reports false where the time is over, or ends meanwhile.
func (e *Exporter) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-e.life.Done():
		return false
	}
}

func (e *Exporter) encode(batch []*tracing.Span) ([]byte, error) {
	text, err := tracing.Encode(e.cfg.Resource, batch)
	if err != nil || e.cfg.Plain {
		return text, err
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(text) // into memory
	_ = w.Close()
	return packed.Bytes(), nil
}

// post makes one attempt. It returns how many spans the collector did not take, and why.
func (e *Exporter) post(body []byte) (rejected int64, why string, err error) {
	request, err := http.NewRequestWithContext(e.life, http.MethodPost, e.cfg.Endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if e.cfg.Headers != nil {
		headers, err := e.cfg.Headers()
		if err != nil {
			return 0, "", err
		}
		for name, value := range headers {
			request.Header.Set(name, value)
		}
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	if !e.cfg.Plain {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := e.client.Do(request)
	if err != nil {
		return 0, "", plain(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		return 0, "", &refusal{status: response.StatusCode, after: retryAfter(response.Header.Get("Retry-After"), time.Now())}
	case err != nil || len(answer) > maxAnswer:
		return 0, "", nil // it took them; what it says besides is not to be had
	case !strings.HasPrefix(response.Header.Get("Content-Type"), "application/x-protobuf"):
		return 0, "", nil
	}
	if rejected, why, err = tracing.Rejections(answer); err != nil {
		return 0, "", nil // as above
	}
	return rejected, why, nil
}

// plain is the cause without the address, which the configuration names.
func plain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("ask the collector at tracing.endpoint: %w", err)
}

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(max(0, min(seconds, 3600))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// shown is what a collector says, fit for a log.
func shown(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if r := []rune(text); len(r) > maxShown {
		text = string(r[:maxShown]) + "…"
	}
	return strconv.Quote(text)
}
