package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// private asks for the token, or, without one, for a host that is ours. A token that
// cannot be read lets nobody in.
func (a *api) private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ok, err := a.allowed(r)
		switch {
		case err != nil:
			http.Error(w, "the token of this server cannot be read; see http.token_file", http.StatusServiceUnavailable)
		case !ok && a.cfg.Token == nil:
			http.Error(w, "the loopback server does not accept this host name: use localhost, add the name to http.hosts, or set http.token_file", http.StatusMisdirectedRequest)
		case !ok:
			w.Header().Set("WWW-Authenticate", `Bearer realm="cdc-relay"`)
			http.Error(w, "send the token as `Authorization: Bearer …`", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (a *api) allowed(r *http.Request) (bool, error) {
	if a.cfg.Token == nil {
		return a.cfg.ours(r.Host), nil
	}
	want, err := a.cfg.Token()
	if err != nil {
		return false, err
	}
	scheme, given, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return false, nil
	}
	// Comparing digests makes the time independent of the lengths too. An empty
	// token file admits nobody.
	a1, b1 := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a1[:], b1[:]) == 1 && want != "", nil
}
