package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/loopback"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/twmb/franz-go/pkg/sr"
)

// Config says where the registry is.
type Config struct {
	URLs     []string // of one registry; the next one is asked where one cannot be reached
	Username string
	Password func(context.Context) (string, error) // nil: without
	Token    func(context.Context) (string, error) // nil: without
	Timeout  time.Duration                         // of a request; defaults to 5s
	TLS      func() (*tls.Config, error)           // asked for each look-up; nil: the system's authorities
}

// Client asks one registry. Any goroutine may use it.
type Client struct {
	cfg Config

	mu      sync.Mutex
	asking  map[string]*answer // look-ups that are under way, or failed a moment ago
	first   int                // the address that look-ups begin with; where one fails the next one begins with another
	now     func() time.Time
	pinned  map[string]*encode.Schema // versions, which never change
	forgets time.Duration
}

// answer is the outcome of one look-up, for all that asked meanwhile.
type answer struct {
	done  chan struct{}
	value any
	err   error
	until time.Time // of a failure: so long nobody asks again
}

// How long a failure is the answer to further questions. Whoever waits for a registry that is away has
// a back-off of its own.
const (
	remembers     = 10 * time.Second
	remembersLost = time.Second
)

// maxPinned bounds the versions that are kept.
const maxPinned = 1024

// New connects to nothing. CheckURL was called for each URL.
func New(cfg Config) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	return &Client{cfg: cfg, asking: make(map[string]*answer), pinned: make(map[string]*encode.Schema), now: time.Now, forgets: remembers}
}

// CheckURL refuses what is no address of a registry, and one that would have credentials cross the
// network in the clear, unless insecure permits that.
func CheckURL(address string, credentials, insecure bool) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("is no URL; allowed: https://host:port, with the path of the API where it has one")
	case u.User != nil:
		return errors.New("has credentials in it; write them to kafka.registry.username and password_file, or token_file")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("has a query; allowed: https://host:port, with the path of the API where it has one")
	case u.Scheme == "http" && credentials && !loopback.Is(u.Hostname()) && !insecure:
		return errors.New("http shows the password or token to the network; allowed: https, or kafka.insecure: true when the network is trusted")
	}
	return nil
}

// Schema is a version of a subject, with the schemas that it names; version zero is the latest.
func (c *Client) Schema(ctx context.Context, subject string, version int) (*encode.Schema, error) {
	key := fmt.Sprintf("%d of %s", version, subject)
	v, err := c.once(ctx, key, version > 0, func(ctx context.Context, cl *sr.Client) (any, error) {
		s, err := c.fetch(ctx, cl, subject, version)
		if err == nil && version > 0 {
			c.pin(key, s)
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*encode.Schema), nil
}

func (c *Client) pin(key string, s *encode.Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pinned) >= maxPinned {
		clear(c.pinned)
	}
	c.pinned[key] = s
}

// Known reports whether there is a schema with a number, and its language.
func (c *Client) Known(ctx context.Context, id uint32) (encode.Kind, bool, error) {
	if id == 0 || id > 1<<31-1 {
		return "", false, nil
	}
	v, err := c.once(ctx, fmt.Sprintf("id %d", id), true, func(ctx context.Context, cl *sr.Client) (any, error) {
		s, err := cl.SchemaByID(ctx, int(id))
		if refusal, ok := errors.AsType[*sr.ResponseError](err); ok && refusal.ErrorCode == sr.ErrSchemaNotFound.Code {
			return encode.Kind(""), nil
		}
		return encode.Kind(s.Type.String()), c.explain(fmt.Sprintf("schema %d", id), err)
	})
	if err != nil {
		return "", false, err
	}
	kind := v.(encode.Kind)
	return kind, kind != "", nil
}

// once gives an answer that is kept, or looks it up, once for all that ask meanwhile if they share the
// answer. Who asks for the latest version needs one from now on, and not one that was on its way already.
func (c *Client) once(ctx context.Context, key string, share bool, look func(context.Context, *sr.Client) (any, error)) (any, error) {
	c.mu.Lock()
	if s := c.pinned[key]; s != nil {
		c.mu.Unlock()
		return s, nil
	}
	a := c.asking[key]
	if a != nil && (a.until.IsZero() && !share || !a.until.IsZero() && !c.now().Before(a.until)) {
		a = nil
	}
	if a == nil {
		a = &answer{done: make(chan struct{})}
		c.asking[key] = a
		go c.run(key, a, look) // one that gives up must not end it for the others
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Client) run(key string, a *answer, look func(context.Context, *sr.Client) (any, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), maxLook)
	defer cancel()
	first := c.begins()
	last := first
	cl, done, err := c.client(first)
	if err == nil {
		a.value, a.err = look(ctx, cl)
		last = done()
	} else {
		a.err = c.explain("", err)
	}
	c.mu.Lock()
	if a.err == nil && c.first == first {
		c.first = last // one before it that does not answer costs its time once
	}
	switch {
	case c.asking[key] != a: // it was asked again meanwhile
	case a.err == nil:
		delete(c.asking, key)
	default:
		forgets := c.forgets
		if failure, ok := errors.AsType[*fault.Error](a.err); ok && failure.Kind == fault.KindRetry {
			forgets = min(forgets, remembersLost)
			if c.first == first { // else a look-up that failed beside this one has moved it
				c.first = (first + 1) % max(1, len(c.cfg.URLs))
			}
		}
		a.until = c.now().Add(forgets)
		c.dropOld()
	}
	c.mu.Unlock()
	close(a.done)
}

// maxLook bounds a look-up with all that it refers to.
const maxLook = time.Minute

// dropOld forgets failures whose time is over.
func (c *Client) dropOld() {
	for key, a := range c.asking {
		if !a.until.IsZero() && !c.now().Before(a.until) {
			delete(c.asking, key)
		}
	}
}

// begins is the address that a look-up begins with now.
func (c *Client) begins() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// client is for one look-up, which begins with the address at first: look-ups are rare, and files of
// TLS may have changed since the last one. done ends it, and gives the address that was asked last.
func (c *Client) client(first int) (cl *sr.Client, done func() (last int), err error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.cfg.TLS != nil {
		if transport.TLSClientConfig, err = c.cfg.TLS(); err != nil {
			return nil, nil, &secretError{err}
		}
	}
	transport.MaxResponseHeaderBytes = 64 << 10
	transport.DialContext = (&net.Dialer{Timeout: c.cfg.Timeout}).DialContext
	last := first
	ask := func(req *http.Request) error {
		last = max(0, slices.IndexFunc(c.cfg.URLs, func(address string) bool { return strings.HasPrefix(req.URL.String(), address) }))
		return c.authorize(req)
	}
	cl, err = sr.NewClient(sr.URLs(slices.Concat(c.cfg.URLs[first:], c.cfg.URLs[:first])...), sr.UserAgent("cdc-relay"), sr.PreReq(ask), sr.HTTPClient(&http.Client{
		Timeout:       c.cfg.Timeout,
		Transport:     bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // never carry a secret elsewhere
	}))
	return cl, func() int { transport.CloseIdleConnections(); return last }, err
}

func (c *Client) authorize(req *http.Request) error {
	switch {
	case c.cfg.Token != nil:
		token, err := c.cfg.Token(req.Context())
		if err != nil {
			return &secretError{err}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	case c.cfg.Username != "":
		password := ""
		if c.cfg.Password != nil {
			var err error
			if password, err = c.cfg.Password(req.Context()); err != nil {
				return &secretError{err}
			}
		}
		req.SetBasicAuth(c.cfg.Username, password)
	}
	return nil
}

// secretError is why a request could not be given credentials.
type secretError struct{ err error }

func (e *secretError) Error() string { return e.err.Error() }
func (e *secretError) Unwrap() error { return e.err }

// bounded cuts answers off that are longer than any schema.
type bounded struct{ next *http.Transport }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = &limited{ReadCloser: resp.Body, left: maxAnswer}
	}
	return resp, err
}

// maxAnswer is that of a schema, whose text is a JSON string with escapes.
const maxAnswer = encode.MaxSchema + encode.MaxSchema/4

var errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)

type limited struct {
	io.ReadCloser
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.ReadCloser.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
