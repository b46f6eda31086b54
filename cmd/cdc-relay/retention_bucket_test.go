package main

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/sandbox/objects"
)

const bucketSecret = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"

// bucketStore is a store with an empty one, and the export that goes there.
func bucketStore(t *testing.T) (store *objects.Store, export string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": bucketSecret, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	store = objects.New("events", "AKIDEXAMPLE")
	server := httptest.NewServer(store)
	t.Cleanup(func() { store.Close(); server.Close() })
	return store, "{to: s3://events/shop/outbox, endpoint: '" + server.URL + "', path_style: true}"
}

// folderOf has the objects of a store in a folder.
func folderOf(t *testing.T, store *objects.Store) string {
	t.Helper()
	folder := t.TempDir()
	for key, body := range store.Objects() {
		path := filepath.Join(folder, filepath.FromSlash(key))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestRetention_ExportsToABucket(t *testing.T) {
	store, export := bucketStore(t)
	k, stop := exportsTo(t, 240, export)
	defer stop()
	whole := k.allInFiles(t, func() string { return folderOf(t, store) })
	checkUp(t, k.env).want(t, "table.retention", advice.OK, "delivered rows of public.outbox go after 1h: export")
	invoke(t, k.env, "retention").want(t, exitOK, "public.outbox: export to s3://events/shop/outbox and delete rows older than 1h\n", "")
	if n := len(store.Objects()); n != 0 {
		t.Errorf("a plan and a check left %d objects", n)
	}
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "exported and deleted 240 rows\n", "")
	if left := whole(); left != 0 {
		t.Errorf("%d rows are left", left)
	}
	for key := range store.Objects() {
		if ok, _ := filepath.Match("shop/outbox/public.outbox/*/*/*/*-0.ndjson.zst", key); !ok || len(store.Objects()) != 2 {
			t.Errorf("object %s of %d, want one for each hour", key, len(store.Objects()))
		}
	}
}

// What a person has to correct is named before a row goes, with its key.
func TestRetention_NamesWhatIsWrongWithABucket(t *testing.T) {
	store, export := bucketStore(t)
	k, stop := exportsTo(t, 10, export)
	defer stop()
	refuse := func(op string, fault objects.Fault) {
		store.Fail(func(r objects.Request) objects.Fault {
			if r.Op == op {
				return fault
			}
			return objects.None
		})
	}
	refuse("PutObject", objects.Denied)
	for _, got := range []result{invoke(t, k.env, "retention"), invoke(t, k.env, "retention", "--once")} {
		got.want(t, exitRefused, "", "")
		if !strings.Contains(got.stdout+got.stderr, "PutObject: AccessDenied") {
			t.Errorf("%s%s", got.stdout, got.stderr)
		}
		if strings.Contains(got.stdout+got.stderr, bucketSecret) {
			t.Error("the secret is in the output")
		}
	}
	checkUp(t, k.env).want(t, "table.retention", advice.Fail, "export_failed", "s3:PutObject")
	refuse("PutObject", objects.Unknown)
	invoke(t, k.env, "retention", "--once").want(t, exitRefused, "", "If-None-Match")
	refuse("HeadObject", objects.WrongSum)
	invoke(t, k.env, "retention", "--once").want(t, exitFailed, "", "its SHA-256 is another one")
	store.Fail(nil)
	store.Bucket = "another"
	invoke(t, k.env, "retention").want(t, exitUsage, "outbox[0].retention.export.to", "")
	invoke(t, k.env, "retention", "--once").want(t, exitUsage, "", "outbox[0].retention.export.to")
	checkUp(t, k.env).want(t, "table.retention", advice.Fail, "bucket events does not exist", "create it")
	if left := k.rows(t); left != 10 {
		t.Errorf("%d rows are left of 10", left)
	}
}

// The store fails in every way, and runs are cut: whatever is deleted is in an object that is whole.
func TestExport_EveryDeletedRowIsInABucket(t *testing.T) {
	store, export := bucketStore(t)
	k, stop := exportsTo(t, 2000, export)
	defer stop()
	whole := k.allInFiles(t, func() string { return folderOf(t, store) })
	for name, fault := range map[string]struct {
		op    string
		fault objects.Fault
		cut   bool // the run is stopped when that request comes
	}{
		"cut in the middle":          {"PutObject", objects.Cut, false},
		"overloaded":                 {"PutObject", objects.Broken, false},
		"stopped while writing":      {"PutObject", objects.None, true},
		"stopped before it was seen": {"HeadObject", objects.None, true},
		"answer lost":                {"PutObject", objects.Lost, true},
		"looks like another":         {"HeadObject", objects.WrongSum, false},
	} {
		store.Empty() // no row of them is deleted
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		store.Fail(func(r objects.Request) objects.Fault {
			if r.Op != fault.op {
				return objects.None
			}
			if fault.cut {
				cancel()
			}
			return fault.fault
		})
		got := invokeWithin(ctx, t, k.env, "retention", "--once")
		cancel()
		unlocked(t, k.db)
		if left := whole(); got.code == exitOK || left != 2000 {
			t.Errorf("%s: exit code %d, %d rows left", name, got.code, left)
		}
	}
	store.Empty()
	// Between the object and the delete: the rows are there when the run is stopped.
	ctx, cancel := context.WithCancel(t.Context())
	store.Fail(func(r objects.Request) objects.Fault {
		if r.Op == "ListObjectsV2" && len(store.Objects()) > 0 { // of the second hour, after the first was written
			cancel()
		}
		return objects.None
	})
	invokeWithin(ctx, t, k.env, "retention", "--once")
	unlocked(t, k.db)
	written := len(store.Objects())
	if left := whole(); left != 2000 || written == 0 {
		t.Errorf("%d rows left, %d objects", left, written)
	}
	store.Fail(nil)
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "exported and deleted 2000 rows\n", "")
	if left := whole(); left != 0 || len(store.Objects()) != 2 {
		t.Errorf("%d rows are left, %d objects: rows that were there were written again", left, len(store.Objects()))
	}
}
