package admin

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
)

//go:embed web
var web embed.FS

// pages are the paths of the console. All have the same document, which holds nothing of the
// relay; its script asks the interface.
var pages = []string{"/", "/blocked", "/dead-letters", "/tail", "/tables", "/shards", "/check", "/config", "/log", "/login"}

// pagePolicy admits nothing that comes from elsewhere, no frame, and no text as markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// kindsOf are the files of the page. What the system says of their names does not count.
var kindsOf = map[string]string{
	"index.html": "text/html; charset=utf-8", "console.js": "text/javascript; charset=utf-8", "console.css": "text/css; charset=utf-8",
	"icon.svg": "image/svg+xml", "openapi.json": "application/json",
}

// asset is a file of the page as it is sent.
type asset struct {
	plain, packed []byte
	kind, etag    string
}

// assets are made ready when the first page is asked for: packing takes a megabyte, which a relay at which nobody
// looks does not need.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	z, _ := gzip.NewWriterLevel(nil, gzip.BestCompression)
	for name, kind := range kindsOf {
		plain, err := web.ReadFile("web/" + name)
		if err != nil {
			continue
		}
		var packed bytes.Buffer
		z.Reset(&packed)
		_, _ = z.Write(plain)
		_ = z.Close()
		sum := sha256.Sum256(plain)
		all[name] = asset{plain, packed.Bytes(), kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return all
})

// sendAsset answers with a file, not again to whom has it.
func sendAsset(w http.ResponseWriter, r *http.Request, name string) {
	one, found := assets()[name]
	if !found {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", one.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", one.etag)
	h.Add("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == one.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := one.plain
	if accepts(r, "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = one.packed
	}
	_, _ = w.Write(body)
}

func accepts(r *http.Request, encoding string) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(one string) bool {
		name, parameters, _ := strings.Cut(one, ";")
		return strings.TrimSpace(name) == encoding && strings.ReplaceAll(parameters, " ", "") != "q=0"
	})
}

// page sends the document, or the way to sign in to browsers that may not see it yet.
func (a *api) page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	if r.URL.Path != "/login" && a.cfg.Token != nil && r.Header.Get("Authorization") == "" {
		if ok, err := a.allowed(r); !ok && err == nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.Redirect(w, r, "/login?next="+strings.TrimPrefix(r.URL.Path, "/"), http.StatusSeeOther)
			return
		}
	}
	document := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { sendAsset(w, r, "index.html") })
	if r.URL.Path == "/login" {
		a.ours(document).ServeHTTP(w, r)
		return
	}
	a.private(document).ServeHTTP(w, r)
}

func (a *api) openapi(w http.ResponseWriter, r *http.Request) { sendAsset(w, r, "openapi.json") }
