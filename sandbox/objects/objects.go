// Package objects is a store with the protocol of S3, in memory, as far as exports use it. It checks
// what it is sent, and fails on request.
package objects

import (
	"crypto/md5" //nolint:gosec // what a store names a version by
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Fault is what becomes of one request.
type Fault int

// Faults.
const (
	None     Fault = iota
	Cut            // the connection ends in the middle of the body; nothing is stored
	Lost           // it is done, and the connection ends before the answer
	Silent         // the connection stays open, and nothing is answered
	Denied         // 403
	Broken         // 503
	WrongSum       // it is done, and the object's checksum shown as another one
	NoSum          // as by a store that keeps no checksums
	NoSums         // nor an ETag that says something
	Unknown        // 501: a store that does not know the operation
	Conflict       // 409
	Over           // it is written over what is there, as by a store that does not look at the condition
)

// Request is what a fault is decided by.
type Request struct {
	Op  string // as the protocol calls it
	Key string
	N   int // of that operation, from 1 on
}

// Store answers for one bucket.
type Store struct {
	Bucket, AccessKey string

	mu      sync.Mutex
	fault   func(Request) Fault // nil: none
	objects map[string]object
	count   map[string]int
	gone    chan struct{}
}

type object struct {
	body []byte
	meta http.Header
}

// New is an empty bucket.
func New(bucket, accessKey string) *Store {
	return &Store{Bucket: bucket, AccessKey: accessKey, objects: map[string]object{}, count: map[string]int{}, gone: make(chan struct{})}
}

// Fail has requests end in faults; nil: in none.
func (s *Store) Fail(fault func(Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Close ends what is silent.
func (s *Store) Close() { close(s.gone) }

// Objects are the bodies of what is stored, by key.
func (s *Store) Objects() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]byte, len(s.objects))
	for key, o := range s.objects {
		all[key] = slices.Clone(o.body)
	}
	return all
}

// Alter replaces the bytes of an object, or makes one, past the protocol.
func (s *Store) Alter(key string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = object{body, s.objects[key].meta}
}

// Empty removes all objects.
func (s *Store) Empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects)
}

// Count is how many requests of an operation there were.
func (s *Store) Count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[op]
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.StdEncoding.EncodeToString(sum[:])
}

func etag(body []byte) string {
	sum := md5.Sum(body) //nolint:gosec // what a store names a version by
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func operation(r *http.Request, key string) string {
	q := r.URL.Query()
	switch {
	case key == "" && q.Get("list-type") == "2":
		return "ListObjectsV2"
	case key == "":
		return r.Method
	case r.Method == http.MethodPut:
		return "PutObject"
	case r.Method == http.MethodHead:
		return "HeadObject"
	}
	return r.Method
}

// ServeHTTP implements http.Handler, with the bucket in the path.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	op := operation(r, key)
	s.mu.Lock()
	s.count[op]++
	n, decide := s.count[op], s.fault
	s.mu.Unlock()
	fault := None
	if decide != nil {
		fault = decide(Request{op, key, n})
	}
	switch fault {
	case Cut:
		_, _ = io.CopyN(io.Discard, r.Body, max(1, r.ContentLength/2))
		panic(http.ErrAbortHandler) //nolint:forbidigo // how a handler of net/http ends its connection
	case Silent:
		select {
		case <-s.gone:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler) //nolint:forbidigo // how a handler of net/http ends its connection
	case Denied:
		refuse(w, http.StatusForbidden, "AccessDenied", "Access Denied")
		return
	case Broken:
		refuse(w, http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
		return
	case Unknown:
		refuse(w, http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented.")
		return
	case Conflict:
		refuse(w, http.StatusConflict, "ConditionalRequestConflict", "The conditional request cannot succeed due to a conflicting operation.")
		return
	case None, Lost, WrongSum, NoSum, NoSums, Over:
	}
	switch {
	case bucket != s.Bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
		return
	case !strings.Contains(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="+s.AccessKey+"/"):
		refuse(w, http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if problem := intact(r, body); problem != "" {
		refuse(w, http.StatusBadRequest, "BadDigest", problem)
		return
	}
	if fault == Lost {
		w = &lost{w}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve(w, r, op, key, body, fault)
	if fault == Lost {
		panic(http.ErrAbortHandler) //nolint:forbidigo // how a handler of net/http ends its connection
	}
}

// lost takes an answer that nobody gets.
type lost struct{ http.ResponseWriter }

func (lost) Header() http.Header         { return http.Header{} }
func (lost) WriteHeader(int)             {}
func (lost) Write(p []byte) (int, error) { return len(p), nil }

// intact compares a body with what the request says of it.
func intact(r *http.Request, body []byte) string {
	sum := sha256.Sum256(body)
	if said := r.Header.Get("X-Amz-Content-Sha256"); said != hex.EncodeToString(sum[:]) {
		return "the body is not what was signed"
	}
	if said := r.Header.Get("X-Amz-Checksum-Sha256"); said != "" && said != digest(body) {
		return "the body has another SHA-256"
	}
	return ""
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message><RequestId>1</RequestId></Error>", code, message)
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(body)
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request, op, key string, body []byte, fault Fault) {
	q := r.URL.Query()
	switch op {
	case "ListObjectsV2":
		s.list(w, q.Get("prefix"), q.Get("continuation-token"))
	case "PutObject":
		s.store(w, r, key, body, fault)
	case "HeadObject":
		s.show(w, key, fault)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed", op)
	}
}

func (s *Store) store(w http.ResponseWriter, r *http.Request, key string, body []byte, fault Fault) {
	switch _, there := s.objects[key]; {
	case r.Header.Get("If-None-Match") != "*" || r.Header.Get("X-Amz-Checksum-Sha256") == "":
		refuse(w, http.StatusBadRequest, "InvalidRequest", "an export is written with a condition and a checksum")
	case there && fault != Over:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
	default:
		meta := http.Header{}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Amz-Meta-") {
				meta[name] = values
			}
		}
		s.objects[key] = object{body, meta}
		w.Header().Set("ETag", etag(body))
	}
}

func (s *Store) show(w http.ResponseWriter, key string, fault Fault) {
	o, there := s.objects[key]
	if !there {
		refuse(w, http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
		return
	}
	h := w.Header()
	maps.Copy(h, o.meta)
	h.Set("ETag", etag(o.body))
	h.Set("Content-Length", strconv.Itoa(len(o.body)))
	switch fault {
	case NoSum:
	case NoSums:
		h.Set("ETag", `"1-of-many"`)
	case WrongSum:
		h.Set("X-Amz-Checksum-Sha256", digest([]byte("another")))
	default:
		h.Set("X-Amz-Checksum-Sha256", digest(o.body))
	}
}

// pageKeys is how many keys a list has at once: few, so that there are several pages.
const pageKeys = 3

func (s *Store) list(w http.ResponseWriter, prefix, after string) {
	type content struct {
		Key, ETag string
		Size      int
	}
	page := struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []content
	}{Name: s.Bucket, Prefix: prefix}
	var keys []string
	for key := range s.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i == pageKeys {
			page.IsTruncated, page.NextContinuationToken = true, keys[i-1]
			break
		}
		page.Contents = append(page.Contents, content{key, etag(s.objects[key].body), len(s.objects[key].body)})
	}
	answer(w, page)
}
