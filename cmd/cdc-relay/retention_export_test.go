package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// exportedIDs are how often each row is in a file of a folder, read by code of the test alone.
func exportedIDs(t *testing.T, folder string) map[string]int {
	t.Helper()
	ids := map[string]int{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".ndjson.zst") || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		z, err := zstd.NewReader(file)
		if err != nil {
			return err
		}
		defer z.Close()
		var header struct{ Table string }
		var trailer struct {
			Rows   int
			SHA256 string
		}
		rows := 0
		for lines := bufio.NewScanner(z); lines.Scan(); {
			var row struct{ ID string }
			switch {
			case header.Table == "":
				err = json.Unmarshal(lines.Bytes(), &header)
			case strings.HasPrefix(lines.Text(), `{"rows":`):
				err = json.Unmarshal(lines.Bytes(), &trailer)
			default:
				err = json.Unmarshal(lines.Bytes(), &row)
				rows++
				ids[row.ID]++
			}
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		if rows != trailer.Rows || trailer.SHA256 == "" {
			t.Errorf("%s: %d rows, trailer %d", path, rows, trailer.Rows)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// exports is a keeper whose delivered rows go to files.
func exports(t *testing.T, rows int) (k *keeper, folder string, stop func()) {
	t.Helper()
	folder = t.TempDir()
	k, stop = exportsTo(t, rows, "{to: "+folder+", slice: 1h}")
	return k, folder, stop
}

// exportsTo is a keeper whose delivered rows, of two past hours, go where export says.
func exportsTo(t *testing.T, rows int, export string) (k *keeper, stop func()) {
	t.Helper()
	k = newKeeper(t, keeping["detect_moved_slot"])
	k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, retention: {keep: 1h, then: export, export: %s}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0, batch_rows: 50}\n", export))
	k.setUp(t, "")
	url, stop := k.streams(t)
	k.insert(t, rows)
	k.published(t, url, rows)
	k.db.Exec(t, `UPDATE outbox SET created_at = date_trunc('hour', now()) - interval '3 hours' + ((payload->>'n')::int % 120) * interval '1 minute'`)
	return k, stop
}

func TestRetention_ExportsBeforeItDeletes(t *testing.T) {
	t.Parallel()
	k, folder, stop := exports(t, 240)
	defer stop()
	k.db.Exec(t, `UPDATE outbox SET created_at = now() - interval '61 minutes' WHERE (payload->>'n')::int <= 2`) // of a slice that is not over
	ids := queryText(t, k.db, `SELECT string_agg(id::text, ' ') FROM outbox WHERE created_at < date_trunc('hour', now() - interval '1 hour')`)
	want := strings.Fields(ids)
	invoke(t, k.env, "retention").want(t, exitOK, "public.outbox: export to "+folder+" and delete rows older than 1h\n", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, fmt.Sprintf("exported and deleted %d rows\n", len(want)), "")
	got := exportedIDs(t, folder)
	for _, id := range want {
		if got[id] != 1 {
			t.Fatalf("row %s is %d times in files", id, got[id])
		}
	}
	if left := k.rows(t); len(got) != len(want) || left != int64(240-len(want)) {
		t.Errorf("%d rows in files, %d left", len(got), left)
	}
	files, _ := filepath.Glob(folder + "/public.outbox/*/*/*/*-0.ndjson.zst")
	if len(files) != 2 {
		t.Errorf("%v, want a file for each hour", files)
	}
	k.configure(t, "outbox: [{table: public.outbox, retention: {keep: 1h, then: export, export: {to: "+folder+"/none}}}]\nmaintenance: {in_run: false, wait: 20s}\n")
	invoke(t, k.env, "retention", "--once").want(t, exitUsage, "", "outbox[0].retention.export.to")
	invoke(t, k.env, "retention", "--once").want(t, exitUsage, "", "name a directory that exists")
}

// allInFiles returns a look at whether each deleted row is in a file below a folder. The look
// returns how many rows are left.
func (k *keeper) allInFiles(t *testing.T, folder func() string) func() int {
	t.Helper()
	all := strings.Fields(queryText(t, k.db, "SELECT string_agg(id::text, ' ') FROM outbox"))
	return func() int {
		t.Helper()
		got, left := exportedIDs(t, folder()), map[string]bool{}
		for _, id := range strings.Fields(harness.Query[string](t, k.db, "SELECT coalesce(string_agg(id::text, ' '), '') FROM outbox")) {
			left[id] = true
		}
		for _, id := range all {
			if !left[id] && got[id] == 0 {
				t.Fatalf("row %s is deleted, and in no file", id)
			}
		}
		return len(left)
	}
}

// A run may be cut anywhere: whatever is deleted is in a file that is whole.
func TestExport_EveryDeletedRowIsInAFile(t *testing.T) {
	t.Parallel()
	k, folder, stop := exports(t, 3000)
	defer stop()
	whole := k.allInFiles(t, func() string { return folder })
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	invokeWithin(ctx, t, k.env, "retention")
	cancel()
	round := time.Since(began)
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), round/2+round*time.Duration(i)/8)
		invokeWithin(ctx, t, k.env, "retention", "--once")
		cancel()
		unlocked(t, k.db)
		if whole() == 0 {
			break
		}
	}
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "exported and deleted", "")
	if left := whole(); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}
