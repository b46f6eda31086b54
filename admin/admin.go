// Package admin answers over HTTP how the relay is: health checks, metrics, status, and a console
// for people. Unless Config has Actions and Payloads set, it only reads: no path changes anything
// of the relay or its servers, and none shows payloads, keys or secrets.
//
// Health never lies in the direction that hurts: /livez does not depend on
// PostgreSQL or Kafka, so an outage of theirs restarts nothing, and /readyz says
// 503 with the reason for as long as the relay does not do its job.
package admin

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/rs/zerolog"
)

// Handler answers every path. status and metrics are called once for a request
// and must be safe for concurrent use.
func Handler(cfg Config, status func() status.Status, metrics http.Handler) http.Handler {
	return HandlerWithConsole(cfg, status, metrics, nil)
}

// HandlerWithConsole is Handler with a console; nil: without.
func HandlerWithConsole(cfg Config, status func() status.Status, metrics http.Handler, console *Console) http.Handler {
	a := &api{cfg: cfg, status: status, console: console, born: time.Now(), now: time.Now}
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", a.live)
	mux.HandleFunc("/healthz", a.live)
	mux.HandleFunc("/readyz", a.ready)
	mux.HandleFunc("/startupz", a.startup)
	mux.Handle("/metrics", a.private(metrics))
	mux.Handle("/api/v1/status", a.private(http.HandlerFunc(a.statusJSON)))
	mux.Handle("/", a.private(http.NotFoundHandler()))
	if console != nil {
		a.serveConsole(mux)
	}
	return a.readOnly(mux)
}

// serveConsole adds the console's pages and interface.
func (a *api) serveConsole(mux *http.ServeMux) {
	for _, path := range pages {
		pattern := path
		if path == "/" {
			pattern = "/{$}"
		}
		mux.Handle(pattern, http.HandlerFunc(a.page))
	}
	for name := range kindsOf {
		mux.Handle("/assets/"+name, a.ours(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { sendAsset(w, r, name) })))
	}
	a.changes = http.NewServeMux()
	foreign := http.NewCrossOriginProtection()
	for _, one := range a.routes() {
		handle := one.handle
		if one.acts {
			handle = a.acting(handle)
		}
		if one.sensitive || one.acts {
			inner := handle
			handle = func(w http.ResponseWriter, r *http.Request) {
				if a.mayRead(w, r) {
					inner(w, r)
				}
			}
		}
		pattern := one.method + " " + one.path // GET has HEAD with it
		if one.method != http.MethodGet {
			handle = a.posted(foreign, handle)
			a.changes.HandleFunc(pattern, http.NotFound)
		}
		guarded := a.private(handle)
		if one.open {
			guarded = a.ours(handle)
		}
		if one.acts {
			guarded = a.whenActing(guarded)
		}
		mux.Handle(pattern, guarded)
		if one.method == http.MethodPost && !a.reads(one.path) {
			refuse := http.Handler(http.HandlerFunc(onlyPost))
			if !one.open {
				refuse = a.private(refuse)
			}
			mux.Handle("GET "+one.path, a.ours(refuse))
		}
	}
}

// reads reports whether a path takes GET: as a page, or as one of the interface.
func (a *api) reads(path string) bool {
	return slices.Contains(pages, path) || slices.ContainsFunc(a.routes(), func(r route) bool { return r.path == path && r.method == http.MethodGet })
}

func onlyPost(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	problem(w, http.StatusMethodNotAllowed, "only_post", "this path takes POST alone")
}

// whenActing passes requests on only where actions are on.
func (a *api) whenActing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.actionsOff(w) {
			next.ServeHTTP(w, r)
		}
	})
}

// maxBody bounds what is posted.
const maxBody = 16 << 10

// posted takes what a page of this server sends: no other page can send JSON here without
// asking first, and nobody answers that.
func (a *api) posted(foreign *http.CrossOriginProtection, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if foreign.Check(r) != nil {
			a.console.refused(a.now(), "foreign_origin", r)
			problem(w, http.StatusForbidden, "foreign_origin", "a page of another origin sent this")
			return
		}
		if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); r.Method == http.MethodPost && kind != "application/json" {
			problem(w, http.StatusUnsupportedMediaType, "content_type", "send application/json")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next(w, r)
	}
}

type api struct {
	cfg     Config
	status  func() status.Status
	console *Console       // nil: none
	changes *http.ServeMux // knows the paths that take another method than GET and HEAD
	born    time.Time
	now     func() time.Time
}

// readOnly refuses what could carry a change, and sets the headers that every
// answer has.
func (a *api) readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		if a.changing(r) {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 0)
		next.ServeHTTP(w, r)
	})
}

// Server is an address that is already ours, so that an occupied one is known
// before anything else starts.
type Server struct {
	listener net.Listener
	log      zerolog.Logger
}

// Listen takes the address, or fails with a *ListenError.
func Listen(cfg Config, log zerolog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, &ListenError{Address: cfg.Listen, Err: err}
	}
	log.Info().Str("listen", listener.Addr().String()).Msg("HTTP server listening")
	return &Server{listener: listener, log: log}, nil
}

// Addr is the address in use, with the port that was found for port 0.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Serve answers until ctx ends, then lets running requests finish for at most
// two seconds. It returns nil after such an end. Call it once.
func (s *Server) Serve(ctx context.Context, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          stdlog.New(s.log, "", 0),
		BaseContext:       func(net.Listener) context.Context { return ctx }, // streams end with it
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", s.Addr(), err)
	}
	return nil
}

// Serve is Listen and (*Server).Serve in one.
func Serve(ctx context.Context, cfg Config, handler http.Handler, log zerolog.Logger) error {
	server, err := Listen(cfg, log)
	if err != nil {
		return err
	}
	return server.Serve(ctx, handler)
}
