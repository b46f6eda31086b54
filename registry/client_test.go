package registry

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

const text = `{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}`

func fake(t *testing.T, options ...srfake.Option) *srfake.Registry {
	r := srfake.New(options...)
	t.Cleanup(r.Close)
	return r
}

func register(t *testing.T, r *srfake.Registry, subject string, s sr.Schema) {
	t.Helper()
	if _, _, err := r.RegisterSchema(subject, s); err != nil {
		t.Fatal(err)
	}
}

func TestSchema_ComesWithWhatItRefersTo(t *testing.T) {
	r := fake(t)
	register(t, r, "zip", sr.Schema{Schema: `{"type": "record", "name": "Zip", "fields": [{"name": "z", "type": "string"}]}`})
	register(t, r, "address", sr.Schema{Schema: `{"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "Zip"}]}`, References: []sr.SchemaReference{{Name: "Zip", Subject: "zip", Version: 1}}})
	register(t, r, "order-value", sr.Schema{Schema: text})
	register(t, r, "order-value", sr.Schema{Schema: `{"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Address", "default": {"zip": {"z": ""}}}]}`, References: []sr.SchemaReference{{Name: "Address", Subject: "address", Version: 1}}})
	c := New(Config{URLs: []string{r.URL()}})
	latest, err := c.Schema(t.Context(), "order-value", 0)
	if err != nil || latest.Version != 2 || latest.Kind != encode.Avro || len(latest.References) != 2 || latest.References[0].Name != "Zip" {
		t.Fatalf("%+v, %v", latest, err)
	}
	if _, err := encode.Compile(*latest, encode.Options{Kind: encode.Avro}); err != nil {
		t.Error(err)
	}
	first, err := c.Schema(t.Context(), "order-value", 1)
	if err != nil || first.Version != 1 || first.Text != text {
		t.Errorf("%+v, %v", first, err)
	}
	kind, known, err := c.Known(t.Context(), latest.ID)
	if kind != encode.Avro || !known || err != nil {
		t.Errorf("%s %v %v", kind, known, err)
	}
	if _, known, err := c.Known(t.Context(), 4711); known || err != nil {
		t.Errorf("%v %v", known, err)
	}
}

// Each bad answer has its reason, a next step, and nothing secret in it.
func TestSchema_ExplainsEachFailure(t *testing.T) {
	const secret = "hunter2"
	closed := httptest.NewServer(nil)
	closed.Close()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect was followed, with %s", r.Header)
	}))
	defer elsewhere.Close()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			_, _ = w.Write([]byte(strings.Repeat(" ", 1<<16)))
		}
	}
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		reason  string
		kind    fault.Kind
	}{
		"away":           {nil, fault.ReasonRegistryUnreachable, fault.KindRetry},
		"broken":         {answer(500, "oops"), fault.ReasonRegistryUnreachable, fault.KindRetry},
		"busy":           {answer(429, ""), fault.ReasonRegistryUnreachable, fault.KindRetry},
		"no account":     {answer(401, ""), fault.ReasonRegistryRefused, fault.KindRefused},
		"no rights":      {answer(403, `{"error_code": 40301, "message": "not for you"}`), fault.ReasonRegistryRefused, fault.KindRefused},
		"no subject":     {answer(404, `{"error_code": 40401, "message": "Subject not found"}`), fault.ReasonUnknownSubject, fault.KindRefused},
		"no version":     {answer(404, `{"error_code": 40402, "message": "Version not found"}`), fault.ReasonUnknownSubject, fault.KindRefused},
		"another server": {answer(404, "<html>"), fault.ReasonRegistryAnswer, fault.KindRefused},
		"HTML":           {answer(200, "<html>"), fault.ReasonRegistryAnswer, fault.KindRefused},
		"id 0":           {answer(200, `{"subject": "s", "version": 1, "id": 0, "schema": "{}"}`), fault.ReasonRegistryAnswer, fault.KindRefused},
		"id of 33 bits":  {answer(200, `{"subject": "s", "version": 1, "id": 4294967296, "schema": "{}"}`), fault.ReasonRegistryAnswer, fault.KindRefused},
		"no schema":      {answer(200, `{"subject": "s", "version": 1, "id": 7}`), fault.ReasonRegistryAnswer, fault.KindRefused},
		"endless":        {endless, fault.ReasonRegistryAnswer, fault.KindRefused},
		"redirect":       {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, fault.ReasonRegistryAnswer, fault.KindRefused},
		"slow":           {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, fault.ReasonRegistryUnreachable, fault.KindRetry},
		"endless, packed": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			defer packed.Close()
			endless(writer{w, packed}, r)
		}, fault.ReasonRegistryAnswer, fault.KindRefused},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			_, _ = w.Write([]byte("{"))
		}, fault.ReasonRegistryUnreachable, fault.KindRetry},
		"refers to itself": {answer(200, `{"subject": "s", "version": 1, "id": 7, "schema": "{}", "references": [{"name": "a", "subject": "s", "version": 1}]}`), fault.ReasonRegistryAnswer, fault.KindRefused},
	} {
		url := closed.URL
		if c.handler != nil {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			url = server.URL
		}
		timeout := 10 * time.Second
		if name == "slow" {
			timeout = 200 * time.Millisecond
		}
		client := New(Config{URLs: []string{url}, Timeout: timeout, Username: "relay", Password: func(context.Context) (string, error) { return secret, nil }})
		_, err := client.Schema(t.Context(), "s", 0)
		failure, ok := errors.AsType[*fault.Error](err)
		if !ok || failure.Reason != c.reason || failure.Kind != c.kind || failure.Hint == "" {
			t.Errorf("%s: %v is %+v, want reason %s", name, err, failure, c.reason)
			continue
		}
		if name == "redirect" && !strings.Contains(err.Error(), "is not followed") {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(name, "endless") && !strings.Contains(err.Error(), "is longer than") {
			t.Errorf("it is read to its end: %v", err)
		}
		if strings.Contains(err.Error(), secret) || strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// writer packs an answer.
type writer struct {
	http.ResponseWriter
	packed io.Writer
}

func (w writer) Write(p []byte) (int, error) { return w.packed.Write(p) }

// Any name is a subject, and is asked for as it is: with contexts, slashes, and what else topics and
// columns have.
func TestSchema_AsksForAnySubject(t *testing.T) {
	for _, subject := range []string{":.shop:orders-value", "a/b", "a b", "ä€", "a%2Fb", "?x=1", "#"} {
		var asked string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			asked = req.URL.EscapedPath() + "?" + req.URL.RawQuery
			_, _ = fmt.Fprintf(w, `{"subject": "s", "version": 3, "id": 7, "schema": %q}`, text)
		}))
		c := New(Config{URLs: []string{server.URL + "/apis/ccompat/v7"}})
		if _, err := c.Schema(t.Context(), subject, 3); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
		if want := "/apis/ccompat/v7/subjects/" + url.PathEscape(subject) + "/versions/3?"; asked != want {
			t.Errorf("%s: asked for %s, want %s", subject, asked, want)
		}
		server.Close()
	}
}

// Where one address does not answer the next one is asked, which gets the credentials too; one that
// answers that it cannot is not the first one of the next try.
func TestSchema_AsksTheNextAddress(t *testing.T) {
	r := fake(t, srfake.WithAuth("Basic cmVsYXk6"))
	register(t, r, "s", sr.Schema{Schema: text})
	var asked atomic.Int64
	r.Intercept(func(http.ResponseWriter, *http.Request) bool { asked.Add(1); return false })
	closed := httptest.NewServer(nil)
	closed.Close()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	defer silent.Close()
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer unwell.Close()
	for name, first := range map[string]string{"away": closed.URL, "silent": silent.URL, "unwell": unwell.URL} {
		timeout := time.Minute
		if name == "silent" {
			timeout = time.Second
		}
		c := New(Config{URLs: []string{first, r.URL()}, Timeout: timeout, Username: "relay"})
		if c.forgets = 0; name == "unwell" {
			if _, err := c.Schema(t.Context(), "s", 0); reasonOf(err) != fault.ReasonRegistryUnreachable {
				t.Errorf("%s: %v", name, err)
			}
		}
		for version := range 2 { // the latest one, and the first
			before, end := asked.Load(), time.Now().Add(time.Minute)
			s, err := c.Schema(t.Context(), "s", version)
			for err != nil && name == "silent" && asked.Load() > before && time.Now().Before(end) {
				s, err = c.Schema(t.Context(), "s", version) // the next one was asked, on a machine that stood still for a second
			}
			if err != nil || s.Version != 1 {
				t.Errorf("%s: %+v, %v", name, s, err)
			}
		}
	}
}

// An address that does not answer costs its time once, as long as another one answers.
func TestSchema_BeginsWithTheAddressThatAnswered(t *testing.T) {
	r := fake(t)
	register(t, r, "s", sr.Schema{Schema: text})
	var asked atomic.Int32
	gone := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler) //nolint:forbidigo // it hangs up
	}))
	defer gone.Close()
	c := New(Config{URLs: []string{gone.URL, r.URL()}, Timeout: time.Minute})
	for range 3 {
		if _, err := c.Schema(t.Context(), "s", 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the address that does not answer was asked %d times", n)
	}
}

// Look-ups that fail together, of two subjects or two shards, have the next ones begin with the next
// address, and not with the one after that.
func TestSchema_AsksTheNextAddressAfterFailuresTogether(t *testing.T) {
	r := fake(t)
	register(t, r, "s", sr.Schema{Schema: text})
	register(t, r, "t", sr.Schema{Schema: text})
	var both sync.WaitGroup
	both.Add(2)
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		both.Done()
		both.Wait()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer unwell.Close()
	c := New(Config{URLs: []string{unwell.URL, r.URL()}, Timeout: 10 * time.Second})
	c.forgets = 0
	var asking sync.WaitGroup
	for _, subject := range []string{"s", "t"} {
		asking.Go(func() {
			if _, err := c.Schema(t.Context(), subject, 0); reasonOf(err) != fault.ReasonRegistryUnreachable {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	both.Add(1)
	if s, err := c.Schema(t.Context(), "s", 0); err != nil || s.Version != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A rotated secret applies without a restart, and one that cannot be read is named in the error.
func TestSchema_ReadsSecretsAtEachRequest(t *testing.T) {
	r := fake(t, srfake.WithAuth("Bearer new"))
	register(t, r, "s", sr.Schema{Schema: text})
	token, problem := "old", error(nil)
	c := New(Config{URLs: []string{r.URL()}, Token: func(context.Context) (string, error) { return token, problem }})
	c.forgets = 0
	if _, err := c.Schema(t.Context(), "s", 0); reasonOf(err) != fault.ReasonRegistryRefused {
		t.Errorf("the old token: %v", err)
	}
	token = "new"
	if _, err := c.Schema(t.Context(), "s", 0); err != nil {
		t.Errorf("the new token: %v", err)
	}
	problem = errors.New("read /run/token: no such file")
	if _, err := c.Schema(t.Context(), "s", 0); reasonOf(err) != fault.ReasonRegistryRefused || !strings.Contains(err.Error(), "/run/token") {
		t.Errorf("without a file: %v", err)
	}
}

// Many that need a schema at once ask once, and a failure is the answer for a while.
func TestSchema_IsAskedForOnce(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	r := fake(t)
	register(t, r, "s", sr.Schema{Schema: text})
	r.Intercept(func(http.ResponseWriter, *http.Request) bool {
		asked.Add(1)
		<-release
		return false
	})
	c := New(Config{URLs: []string{r.URL()}})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := c.Schema(t.Context(), "s", 1); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	all.Wait()
	if _, err := c.Schema(t.Context(), "s", 1); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for one version", n)
	}
	for range 3 {
		if _, err := c.Schema(t.Context(), "nobody", 0); err == nil {
			t.Error("found")
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, want 2: a failure is remembered", n)
	}
	at := time.Now().Add(remembers)
	c.now = func() time.Time { return at }
	register(t, r, "nobody", sr.Schema{Schema: text})
	if _, err := c.Schema(t.Context(), "nobody", 0); err != nil {
		t.Errorf("it is not asked again: %v", err)
	}
}

// An answer on its way may be from before a version was registered, so who asks for the latest one
// afterwards does not get that, and it does not end the later question.
func TestSchema_OfTheLatestVersionIsNoEarlierAnswer(t *testing.T) {
	r := fake(t)
	register(t, r, "s", sr.Schema{Schema: text})
	c := New(Config{URLs: []string{r.URL()}})
	var asked atomic.Int64
	answered, release := make(chan struct{}), make(chan struct{})
	r.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		if asked.Add(1) > 1 {
			return false
		}
		close(answered)
		<-release // with the answer of now
		_, _ = fmt.Fprintf(w, `{"subject": "s", "version": 1, "id": 1, "schema": %q}`, text)
		return true
	})
	var early sync.WaitGroup
	early.Go(func() {
		if s, err := c.Schema(t.Context(), "s", 0); err != nil || s.Version != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
	<-answered
	register(t, r, "s", sr.Schema{Schema: `"string"`})
	if s, err := c.Schema(t.Context(), "s", 0); err != nil || s.Version != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	close(release)
	early.Wait()
}

func TestCheckURL_RefusesWhatWouldShowASecret(t *testing.T) {
	for address, want := range map[string]string{
		"registry:8081":               "is no URL",
		"ftp://registry":              "is no URL",
		"https://a:b@registry":        "has credentials in it",
		"https://registry/?x=1":       "has a query",
		"http://registry.example.com": "shows the password",
		"https://registry/api":        "",
		"http://localhost:8081":       "",
	} {
		err := CheckURL(address, true, false)
		if got := fmt.Sprint(err); err != nil && (want == "" || !strings.Contains(got, want)) || err == nil && want != "" {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "a:b") {
			t.Errorf("%v", err)
		}
	}
	if err := CheckURL("http://registry.example.com", false, false); err != nil {
		t.Errorf("without credentials: %v", err)
	}
}

func reasonOf(err error) string {
	if failure, ok := errors.AsType[*fault.Error](err); ok {
		return failure.Reason
	}
	return ""
}
