package admin

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// role is what somebody may do. A higher one may do what the lower ones may.
type role int

const (
	nobody role = iota
	viewer
	operator
)

func (r role) String() string { return [...]string{"nobody", "viewer", "operator"}[r] }

// asker is who sent a request.
type asker struct {
	role    role
	session string    // secret of the session; empty: there is none
	until   time.Time // end of the session
}

// named is how the log distinguishes sessions: never by anything that opens one.
func (w asker) named() string {
	if w.session == "" {
		return "bearer"
	}
	sum := sha256.Sum256([]byte(w.session))
	return hex.EncodeToString(sum[:4])
}

// formToken is what a page has to send along with what changes something, so that a cookie alone
// does not suffice. It is made of the session's secret and does not disclose it.
func (w asker) formToken() string {
	if w.session == "" {
		return ""
	}
	h := hmac.New(sha256.New, []byte(w.session))
	h.Write([]byte("form"))
	return hex.EncodeToString(h.Sum(nil))
}

// who returns the role of whoever sent a request. An error is a token that cannot be read.
func (a *api) who(r *http.Request) (asker, error) {
	tokens, err := a.tokens()
	if err != nil && len(tokens) == 0 {
		return asker{}, err
	}
	if secret := sessionSecret(r); secret != "" && a.console != nil {
		if token, until, ok := a.console.sessions.holds(a.now(), secret); ok {
			for of, want := range tokens {
				if subtle.ConstantTimeCompare(token[:], want[:]) == 1 {
					return asker{role: of, session: secret, until: until}, nil
				}
			}
			a.console.sessions.drop(secret) // its token was rotated
		}
	}
	if scheme, given, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		// Comparing digests makes the time independent of the lengths too.
		sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
		for of, want := range tokens {
			if subtle.ConstantTimeCompare(sum[:], want[:]) == 1 {
				return asker{role: of}, nil
			}
		}
	}
	if a.cfg.Token == nil && a.cfg.ours(r.Host) {
		return asker{role: viewer}, nil
	}
	return asker{}, err
}

// tokens are the digests of the tokens by role. An empty file admits nobody, and a token that
// viewers have makes no operator.
func (a *api) tokens() (all map[role]digest, err error) {
	all = make(map[role]digest)
	var text [operator + 1]string
	for of, ask := range map[role]func() (string, error){viewer: a.cfg.Token, operator: a.cfg.Operator} {
		if ask == nil || of == operator && a.console == nil {
			continue
		}
		token, failed := ask()
		if failed != nil {
			err = failed
		} else if token != "" {
			text[of], all[of] = token, sha256.Sum256([]byte(token))
		}
	}
	if text[operator] != "" && text[operator] == text[viewer] {
		delete(all, operator)
	}
	return all, err
}

// mostActions bounds what all operators together do in a minute.
const mostActions = 10

// pace counts what was done in the last minute.
type pace struct {
	mu     sync.Mutex
	recent []time.Time
}

// allow counts one more, or returns how long to wait.
func (p *pace) allow(now time.Time, most int) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.recent) > 0 && now.Sub(p.recent[0]) >= time.Minute {
		p.recent = p.recent[1:]
	}
	if len(p.recent) >= most {
		return time.Minute - now.Sub(p.recent[0])
	}
	p.recent = append(p.recent, now)
	return 0
}

// formHeader carries the form token.
const formHeader = "X-Form-Token"

// acting admits operators, where actions are on. It answers everybody else.
func (a *api) acting(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := a.who(r)
		switch {
		case err != nil:
			problem(w, http.StatusServiceUnavailable, "token_unreadable", "a token of this server cannot be read; see http.console.operator_token_file")
		case who.role < operator:
			problem(w, http.StatusForbidden, "operator_needed", "this needs the operator token: sign in with the content of http.console.operator_token_file")
		case who.session != "" && !hmac.Equal([]byte(r.Header.Get(formHeader)), []byte(who.formToken())):
			a.console.refused(a.now(), "form_token", r)
			problem(w, http.StatusForbidden, "form_token", "the header "+formHeader+" does not belong to this session: send form_token of GET /api/v1/console, or load the page again")
		default:
			next(w, r)
		}
	}
}

// actionsOff answers for what is switched off, before anything is looked at. It reports whether
// it did.
func (a *api) actionsOff(w http.ResponseWriter) bool {
	if a.cfg.Actions && a.cfg.Operator != nil {
		return false
	}
	w.Header().Set("Allow", "GET, HEAD")
	problem(w, http.StatusMethodNotAllowed, "actions_off", "this console changes nothing: set http.console.actions: true and http.console.operator_token_file, and start the relay again")
	return true
}

// tooMany answers whoever acts too often.
func (a *api) tooMany(w http.ResponseWriter) bool {
	wait := a.console.actions.allow(a.now(), mostActions)
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		problem(w, http.StatusTooManyRequests, "too_often", "at most "+strconv.Itoa(mostActions)+" actions a minute; wait "+wait.Round(time.Second).String())
	}
	return wait > 0
}

// audit writes who did what, and with which outcome, into the log, whatever its level. It has no
// key and no value of a row.
func (a *api) audit(r *http.Request, who asker, action, filter string, count int, outcome string) {
	a.console.tools.Audit.Log().Str("level", "info").Str("action", action).Stringer("role", who.role).Str("session", who.named()).
		Str("remote", r.RemoteAddr).Str("filter", filter).Int("count", count).Str("outcome", outcome).Msg("operator")
}

// refused counts requests that were not let in although somebody's browser sent them, and says so
// once a minute.
func (c *Console) refused(now time.Time, why string, r *http.Request) {
	c.mu.Lock()
	c.refusals++
	n := c.refusals
	said := now.Sub(c.refusalSaid) < time.Minute
	if !said {
		c.refusals, c.refusalSaid = 0, now
	}
	c.mu.Unlock()
	if !said {
		c.tools.Audit.Warn().Str("reason", why).Str("remote", r.RemoteAddr).Int("requests", n).Msg("requests to the console were refused")
	}
}
