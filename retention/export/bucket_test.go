package export

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/cdc-relay/cdc-relay/sandbox/objects"
)

const secret = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"

// hasty tries again as often as usual, and at once.
func hasty(o *s3.Options) {
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

// bucket is an empty one, and a client of it.
func bucket(t *testing.T, fault func(objects.Request) objects.Fault) (*Bucket, *objects.Store) {
	t.Helper()
	return bucketWithin(t, silence, fault)
}

// bucketWithin has a client that waits so long for a byte.
func bucketWithin(t *testing.T, silence time.Duration, fault func(objects.Request) objects.Fault) (*Bucket, *objects.Store) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": secret, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
	} {
		t.Setenv(name, value)
	}
	store := objects.New("events", "AKIDEXAMPLE")
	store.Fail(fault)
	server := httptest.NewServer(store)
	t.Cleanup(func() { store.Close(); server.Close() })
	b, err := openBucket(t.Context(), Place{Bucket: "events", Prefix: "outbox", Endpoint: server.URL, PathStyle: true}, silence, hasty)
	if err != nil {
		t.Fatal(err)
	}
	return b, store
}

func export(ctx context.Context, s Store, values ...Value) (string, int64, error) {
	header := &Header{Table: "public.outbox", Columns: []Column{{"id", "text"}}}
	return s.Write(ctx, slice, header, func(row func([]Value) error) error {
		for _, v := range values {
			if err := row([]Value{v}); err != nil {
				return err
			}
		}
		return nil
	})
}

// large does not get smaller by compression: it takes parts.
func large(parts int) []Value { return lines()[:parts*11] }

var lines = sync.OnceValue(func() (values []Value) {
	random := rand.New(rand.NewPCG(1, 2))
	const signs = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	for range 2 * 11 {
		line := make([]byte, 1<<20)
		for i := range line {
			line[i] = signs[random.IntN(len(signs))]
		}
		values = append(values, text(string(line)))
	}
	return values
})

func always(op string, fault objects.Fault) func(objects.Request) objects.Fault {
	return func(r objects.Request) objects.Fault {
		if r.Op == op {
			return fault
		}
		return objects.None
	}
}

func once(op string, fault objects.Fault) func(objects.Request) objects.Fault {
	return func(r objects.Request) objects.Fault {
		if r.Op == op && r.N == 1 {
			return fault
		}
		return objects.None
	}
}

// second is what becomes of each write but the first one.
func second(fault objects.Fault) func(objects.Request) objects.Fault {
	return func(r objects.Request) objects.Fault {
		if r.Op == "PutObject" && r.N > 1 {
			return fault
		}
		return objects.None
	}
}

func TestBucket_NeverWritesOverAFile(t *testing.T) {
	b, store := bucket(t, nil)
	for i, tt := range []struct {
		values []Value
		want   string
	}{
		{[]Value{text("a"), nil}, "07-0"},
		{[]Value{text("a"), nil}, "07-0"}, // they were not deleted
		{[]Value{text("a"), text("b")}, "07-1"},
		{[]Value{text("a")}, "07-2"},
		{[]Value{text("a"), text("b")}, "07-1"},
		{[]Value{text("c")}, "07-3"},
		{[]Value{text("d")}, "07-4"}, // which is on the second page of a list
	} {
		got, _, err := export(t.Context(), b, tt.values...)
		if want := "s3://events/outbox/public.outbox/2026/11/25/" + tt.want + ".ndjson.zst"; err != nil || got != want {
			t.Errorf("%d: %s, want %s (%v)", i, got, want, err)
		}
	}
	all := store.Objects()
	if len(all) != 5 {
		t.Errorf("%d objects", len(all))
	}
	holds(t, store)
	again, err := openBucket(t.Context(), b.place, silence) // as after a kill between the write and the delete
	if err != nil {
		t.Fatal(err)
	}
	if got, size, err := export(t.Context(), again, text("d")); err != nil || !strings.HasSuffix(got, "07-4.ndjson.zst") || size != 0 || len(store.Objects()) != 5 {
		t.Errorf("%s, %d bytes, %v: rows that are in a file were written again", got, size, err)
	}
}

// Many bytes make several files, of which none is much in memory.
func TestBucket_DividesWhatIsLarge(t *testing.T) {
	b, store := bucket(t, nil)
	values := large(2)
	key, size, err := export(t.Context(), b, values...)
	if err != nil {
		t.Fatal(err)
	}
	rows, bytes := holds(t, store)
	if len(store.Objects()) != 3 || !strings.HasSuffix(key, "07-2.ndjson.zst") || rows != len(values) || bytes != size {
		t.Errorf("%s: %d rows of %d in %d objects of %d bytes, said %d", key, rows, len(values), len(store.Objects()), bytes, size)
	}
	for name, body := range store.Objects() {
		if len(body) > fileBytes+2<<20 {
			t.Errorf("%s has %d bytes", name, len(body))
		}
	}
	again, err := openBucket(t.Context(), b.place, silence) // as after a kill between the last write and the delete
	if err != nil {
		t.Fatal(err)
	}
	if got, size, err := export(t.Context(), again, values...); err != nil || got != key || size != 0 || len(store.Objects()) != 3 {
		t.Errorf("%s, %d bytes, %v: %d objects", got, size, err, len(store.Objects()))
	}
}

// holds reads every object.
func holds(t *testing.T, store *objects.Store) (rows int, size int64) {
	t.Helper()
	for name, body := range store.Objects() {
		trailer, err := read(bytes.NewReader(body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rows, size = rows+trailer.Rows, size+int64(len(body))
	}
	return rows, size
}

// What an object says of itself may be wrong: what the store says of its bytes counts.
func TestBucket_TakesNothingForWrittenThatWasAltered(t *testing.T) {
	b, store := bucket(t, nil)
	key, _, err := export(t.Context(), b, text("a"))
	if err != nil {
		t.Fatal(err)
	}
	key = strings.TrimPrefix(key, "s3://events/")
	store.Alter(key, store.Objects()[key][:20])
	if got, _, err := export(t.Context(), b, text("a")); err != nil || !strings.HasSuffix(got, "07-1.ndjson.zst") {
		t.Errorf("%s, %v: a file that was cut short passes for one with the row", got, err)
	}
}

// Whatever becomes of a request: Write succeeds when the object is there and whole, and says so
// otherwise. In each case the next one succeeds.
func TestBucket_SaysWrittenOnlyOfWhatIsThere(t *testing.T) {
	rows := []Value{text("a"), text("b")}
	for name, tt := range map[string]struct {
		fault func(objects.Request) objects.Fault
		want  string // of the error; empty: none
	}{
		"cut in the middle, once":   {once("PutObject", objects.Cut), ""},
		"cut in the middle, always": {always("PutObject", objects.Cut), "PutObject: "},
		"answer lost, once":         {once("PutObject", objects.Lost), ""},
		"silent":                    {always("PutObject", objects.Silent), "i/o timeout"},
		"overloaded":                {always("PutObject", objects.Broken), "PutObject: SlowDown: Please reduce your request rate. (503)"},
		"denied":                    {always("PutObject", objects.Denied), "PutObject: AccessDenied: Access Denied (403)"},
		"list denied":               {always("ListObjectsV2", objects.Denied), "ListObjectsV2: AccessDenied"},
		"no condition":              {always("PutObject", objects.Unknown), "PutObject: NotImplemented"},
		"another write at once":     {always("PutObject", objects.Conflict), "ConditionalRequestConflict"},
		"another checksum":          {always("HeadObject", objects.WrongSum), "its SHA-256 is another one"},
		"locked once it is there":   {second(objects.Denied), ""},
		"in conflict once there":    {second(objects.Conflict), ""},
		"overloaded once there":     {second(objects.Broken), "SlowDown"},
		"not to be seen":            {always("HeadObject", objects.Denied), "HeadObject: "},
		"no sum at all":             {always("HeadObject", objects.NoSums), "the store shows no SHA-256 of it, and an ETag"},
		"no checksum":               {always("HeadObject", objects.NoSum), ""},
	} {
		t.Run(name, func(t *testing.T) {
			patience := silence
			if name == "silent" {
				patience = 2 * time.Second
			}
			b, store := bucketWithin(t, patience, tt.fault)
			key, size, err := export(t.Context(), b, rows...)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			if err != nil && (key != "" || size != 0 || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "Signature=")) {
				t.Errorf("%q, %d bytes, %v", key, size, err)
			}
			store.Fail(nil)
			key, _, err = export(t.Context(), b, rows...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(bytes.NewReader(store.Objects()[strings.TrimPrefix(key, "s3://events/")]))
			if err != nil || got.Rows != len(rows) || len(store.Objects()) != 1 {
				t.Errorf("%+v in %d objects, %v", got, len(store.Objects()), err)
			}
		})
	}
}

// A process that was given up for dead goes on, after another one has written that name.
func TestBucket_DoesNotReplaceWhatAnotherProcessWrote(t *testing.T) {
	b, store := bucket(t, nil)
	theirs, body := "outbox/public.outbox/2026/11/25/07-0.ndjson.zst", []byte("of another process")
	store.Fail(func(r objects.Request) objects.Fault {
		if r.Op == "PutObject" { // after the list
			store.Alter(theirs, body)
		}
		return objects.None
	})
	_, _, err := export(t.Context(), b, text("a"))
	if err == nil || !strings.Contains(err.Error(), "appeared while its rows were on the way") {
		t.Error(err)
	}
	if got := store.Objects(); len(got) != 1 || !bytes.Equal(got[theirs], body) {
		t.Errorf("%d objects; the other's file is %q", len(got), got[theirs])
	}
}

// A store that knows no conditions, and does not say so, would let one process replace what another wrote.
// A file that is there already is no way around.
func TestBucket_RefusesAStoreThatWritesOverAFile(t *testing.T) {
	b, store := bucket(t, always("PutObject", objects.Over))
	for range 3 {
		_, _, err := export(t.Context(), b, text("a"))
		if refused, ok := errors.AsType[*Refusal](err); !ok || !strings.Contains(refused.Hint, "If-None-Match") {
			t.Fatalf("%v, want a refusal", err)
		}
	}
	if rows, _ := holds(t, store); rows != 1 || len(store.Objects()) != 1 {
		t.Errorf("%d rows in %d objects", rows, len(store.Objects()))
	}
	store.Fail(nil)
	for _, value := range []string{"a", "b", "c"} {
		if _, _, err := export(t.Context(), b, text(value)); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.Count("PutObject"); n != 4+1+2 {
		t.Errorf("%d writes: it is to be found out once", n)
	}
}

// Rows that could not be read make no object.
func TestBucket_LeavesNothingOfRowsThatEndEarly(t *testing.T) {
	b, store := bucket(t, nil)
	lost := errors.New("connection to the database was lost")
	_, _, err := b.Write(t.Context(), slice, &Header{Columns: []Column{{"id", "text"}}}, func(row func([]Value) error) error {
		if err := row([]Value{text("a")}); err != nil {
			return err
		}
		return lost
	})
	if !errors.Is(err, lost) || len(store.Objects()) != 0 {
		t.Errorf("%v: %d objects", err, len(store.Objects()))
	}
}

func TestBucket_ProbeTellsWhatIsMissingAndLeavesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		fault          func(objects.Request) objects.Fault
		bucket, key    string
		want, wantHint string
	}{
		"nothing":     {nil, "events", "", "", ""},
		"no bucket":   {nil, "evnets", "to", "bucket evnets does not exist (ListObjectsV2: NoSuchBucket", "create it"},
		"no list":     {always("ListObjectsV2", objects.Denied), "events", "", "ListObjectsV2: AccessDenied", "s3:ListBucket"},
		"no read":     {always("HeadObject", objects.Denied), "events", "", "HeadObject: ", "s3:GetObject"},
		"no write":    {always("PutObject", objects.Denied), "events", "", "PutObject: AccessDenied", "s3:PutObject"},
		"unreachable": {always("ListObjectsV2", objects.Cut), "events", "", "ListObjectsV2: EOF", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, store := bucket(t, tt.fault)
			b.place.Bucket = tt.bucket
			err := b.Probe(t.Context())
			if tt.want == "" {
				if err != nil || len(store.Objects()) != 0 || store.Count("PutObject") != 1 {
					t.Errorf("%v: %d objects", err, len(store.Objects()))
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Fatalf("%v, want %s", err, tt.want)
			}
			refused, is := errors.AsType[*Refusal](err)
			if is != (tt.wantHint != "") || is && (refused.Key != tt.key || !strings.Contains(refused.Hint, tt.wantHint)) {
				t.Errorf("%+v", refused)
			}
		})
	}
}

func TestOpenBucket_WantsARegionOfAWS(t *testing.T) {
	b, _ := bucket(t, nil)
	place := b.place
	place.Endpoint = ""
	_, err := OpenBucket(t.Context(), place)
	if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Key != "region" {
		t.Error(err)
	}
	place.Region = "eu-central-1"
	if _, err := OpenBucket(t.Context(), place); err != nil {
		t.Error(err)
	}
}

// A store that takes connections and never answers is found out soon, and named.
func TestBucket_NamesAStoreThatIsSilent(t *testing.T) {
	b, store := bucketWithin(t, 2*time.Second, always("ListObjectsV2", objects.Silent))
	b.answer = 50 * time.Millisecond
	want := "bucket events at " + b.place.Endpoint + " does not answer (ListObjectsV2: canceled, context deadline exceeded)"
	if err := b.Probe(t.Context()); err == nil || err.Error() != want {
		t.Errorf("a probe says %v, want %s", err, want)
	}
	if _, _, err := export(t.Context(), b, text("a")); err == nil || err.Error() != want {
		t.Errorf("a write says %v, want %s", err, want)
	}
	if n := store.Count("ListObjectsV2"); n != 2 {
		t.Errorf("%d requests, want one for each", n)
	}
}

func TestBucket_AFileMayTakeLongerThanALook(t *testing.T) {
	b, store := bucket(t, nil)
	b.answer = 0 // whatever it bounds has no time at all
	if _, err := b.list(t.Context(), slice); err == nil {
		t.Error("the list has no bound")
	}
	if _, err := b.put(t.Context(), "key", []byte("file"), Trailer{}); err != nil || len(store.Objects()) != 1 {
		t.Errorf("%v: the bound of a look ends an upload", err)
	}
}
