package admin

import (
	"net/http"
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
			if a.console != nil {
				a.console.refused(a.now(), "foreign_host", r)
			}
			http.Error(w, "the loopback server does not accept this host name: use localhost, add the name to http.hosts, or set http.token_file", http.StatusMisdirectedRequest)
		case !ok:
			w.Header().Set("WWW-Authenticate", `Bearer realm="cdc-relay"`)
			http.Error(w, "send the token as `Authorization: Bearer …`", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ours lets in whoever asks for a name of this server, with or without the token.
func (a *api) ours(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.cfg.ours(r.Host) {
			http.Error(w, "this is no name of the server on loopback: ask for localhost, add the name to http.hosts, or set http.token_file", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// revoked reports whether whoever opened a stream may not have it any more.
func (a *api) revoked(r *http.Request) bool {
	ok, err := a.allowed(r)
	return !ok || err != nil
}

func (a *api) allowed(r *http.Request) (bool, error) {
	who, err := a.who(r)
	return who.role >= viewer, err
}
