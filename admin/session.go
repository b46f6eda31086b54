package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/loopback"
)

const (
	sessionLasts = 12 * time.Hour
	sessionIdle  = time.Hour
	maxSessions  = 64

	loginsPerMinute    = 5 // of one address
	allLoginsPerMinute = 30

	plainCookie  = "cdc_relay_session"
	secureCookie = "__Host-cdc_relay_session" // which a browser takes over TLS alone
)

// digest is how secrets are kept and compared.
type digest = [sha256.Size]byte

// sessions are log-ins of browsers. A session is bound to the token by which it began, so a
// rotated token ends it.
type sessions struct {
	mu     sync.Mutex
	byID   map[digest]*session
	tries  map[string][]time.Time // of the last minute, by address
	recent []time.Time            // the same, of all
	pauses map[string]pauses      // of addresses that went on trying
}

// pauses are those of an address that made too many attempts, one after the other.
type pauses struct {
	count int
	until time.Time
}

// wait is how long the n-th pause in a row takes: a minute, then two, and five at most, as whoever comes by a
// proxy shares the address with others.
func (p pauses) wait() time.Duration {
	return min(time.Minute<<min(p.count-1, 8), longestPause)
}

const (
	longestPause = 5 * time.Minute
	pauseKept    = 10 * time.Minute // after its end, so that the next one is longer
)

type session struct {
	token       digest
	began, used time.Time
}

// begin makes a session and returns its secret.
func (s *sessions) begin(now time.Time, token digest) string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // which never fails
	text := base64.RawURLEncoding.EncodeToString(secret[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[digest]*session{}
	}
	var oldest digest
	for id, one := range s.byID {
		if one.over(now) {
			delete(s.byID, id)
		} else if o := s.byID[oldest]; o == nil || one.used.Before(o.used) {
			oldest = id
		}
	}
	if len(s.byID) >= maxSessions {
		delete(s.byID, oldest)
	}
	s.byID[sha256.Sum256([]byte(text))] = &session{token, now, now}
	return text
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.began) > sessionLasts || now.Sub(s.used) > sessionIdle
}

// holds gives the token by which the session of a secret began, and when it ends.
func (s *sessions) holds(now time.Time, secret string) (token digest, until time.Time, ok bool) {
	id := sha256.Sum256([]byte(secret))
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byID[id]
	if one == nil {
		return token, until, false
	}
	if one.over(now) {
		delete(s.byID, id)
		return token, until, false
	}
	one.used = now
	return one.token, one.began.Add(sessionLasts), true
}

// admitted ends what was counted against an address: somebody there has the token.
func (s *sessions) admitted(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pauses, address)
}

func (s *sessions) drop(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, sha256.Sum256([]byte(secret)))
}

// attempt counts a log-in; if there were too many it returns how long to wait.
func (s *sessions) attempt(now time.Time, address string) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := func(all []time.Time) []time.Time {
		for len(all) > 0 && now.Sub(all[0]) >= time.Minute {
			all = all[1:]
		}
		return all
	}
	s.recent = fresh(s.recent)
	for of, all := range s.tries {
		if all = fresh(all); len(all) == 0 {
			delete(s.tries, of)
		} else {
			s.tries[of] = all
		}
	}
	for of, p := range s.pauses {
		if now.Sub(p.until) >= pauseKept {
			delete(s.pauses, of)
		}
	}
	paused := s.pauses[address]
	if wait := paused.until.Sub(now); wait > 0 {
		return wait
	}
	mine := s.tries[address]
	if len(mine) >= loginsPerMinute {
		if s.pauses == nil {
			s.pauses = map[string]pauses{}
		}
		paused.count++
		paused.until = now.Add(paused.wait())
		s.pauses[address] = paused
		return paused.wait()
	}
	if len(s.recent) >= allLoginsPerMinute {
		return time.Minute - now.Sub(s.recent[0])
	}
	if s.tries == nil {
		s.tries = map[string][]time.Time{}
	}
	s.tries[address] = append(mine, now)
	s.recent = append(s.recent, now)
	return 0
}

// secure reports whether the browser came by TLS: to a proxy on this machine, which is believed.
func secure(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return r.TLS != nil || err == nil && loopback.Is(host) && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

func sessionSecret(r *http.Request) string {
	for _, name := range []string{secureCookie, plainCookie} {
		if c, err := r.Cookie(name); err == nil {
			return c.Value
		}
	}
	return ""
}

func setCookie(w http.ResponseWriter, r *http.Request, value string, lasts time.Duration) {
	c := &http.Cookie{Name: plainCookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(lasts.Seconds())}
	if secure(r) {
		c.Name, c.Secure = secureCookie, true
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// login takes a token once and answers with a cookie.
func (a *api) login(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Token == nil && a.cfg.Operator == nil {
		problem(w, http.StatusNotFound, "no_token", "this relay has no http.token_file, so there is nothing to sign in with")
		return
	}
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	if wait := a.console.sessions.attempt(a.now(), address); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		problem(w, http.StatusTooManyRequests, "too_many_attempts", "too many attempts to sign in; wait "+wait.Round(time.Second).String())
		return
	}
	var given struct {
		Token string `json:"token"`
	}
	if !decode(w, r, &given, `send {"token": "…"}`) {
		return
	}
	tokens, err := a.tokens()
	if err != nil && len(tokens) == 0 {
		problem(w, http.StatusServiceUnavailable, "token_unreadable", "the token of this server cannot be read; see http.token_file")
		return
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(given.Token)))
	who := asker{}
	for of, want := range tokens {
		if subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
			who.role = of
		}
	}
	if who.role == nobody {
		problem(w, http.StatusUnauthorized, "wrong_token", "that is not the token of this relay; see http.token_file")
		return
	}
	a.console.sessions.admitted(address)
	who.session = a.console.sessions.begin(a.now(), sum)
	setCookie(w, r, who.session, sessionLasts)
	if who.role == operator {
		a.audit(r, who, "sign_in", "", 0, "done")
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) logout(w http.ResponseWriter, r *http.Request) {
	a.console.sessions.drop(sessionSecret(r))
	setCookie(w, r, "", 0)
	w.WriteHeader(http.StatusNoContent)
}

// decode reads what was posted, and answers if it is not what how describes.
func decode(w http.ResponseWriter, r *http.Request, into any, how string) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || d.More() {
		problem(w, http.StatusBadRequest, "malformed", how)
		return false
	}
	return true
}
