package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"
)

// Gone is a row that the relay deleted, exported or marked.
type Gone struct {
	ID, How string
	At      time.Time
}

// readGone reads what the trigger noted, and adds deleted rows to those of the table.
func (w *world) readGone(ctx context.Context, h *History) error {
	if w.plan.Jobs == nil {
		return nil
	}
	conn, err := pgx.Connect(ctx, w.pg.URL(w.database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT id::text, aggregate_type, aggregate_id, event_type, payload, how, at FROM gone")
	if err != nil {
		return err
	}
	var g Gone
	var aggregate, key, kind, value string
	if _, err := pgx.ForEachRow(rows, []any{&g.ID, &aggregate, &key, &kind, &value, &g.How, &g.At}, func() error {
		h.Gone = append(h.Gone, g)
		if g.How == "DELETE" {
			h.Rows[g.ID] = Row{Topic: aggregate + "-events", Key: key, Type: kind, Value: value}
		}
		return nil
	}); err != nil {
		return err
	}
	switch {
	case w.store != nil:
		h.Exported = map[string]bool{}
		for key, body := range w.store.Objects() {
			if err := addExported(h.Exported, bytes.NewReader(body)); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	case w.plan.Jobs.exports():
		h.Exported, err = readExported(w.exported())
	}
	return err
}

// readExported reads every complete file with code of its own.
func readExported(folder string) (ids map[string]bool, err error) {
	ids = map[string]bool{}
	return ids, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".zst") {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := addExported(ids, file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

func addExported(ids map[string]bool, file io.Reader) error {
	z, err := zstd.NewReader(file)
	if err != nil {
		return err
	}
	defer z.Close()
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var row struct{ ID string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return err
		}
		ids[row.ID] = true
	}
	return lines.Err()
}

// clockSlack is between the clocks of a record and of a row's removal, which are those of one
// machine in milliseconds.
const clockSlack = 5 * time.Millisecond

// upkeep is P14: what was deleted, exported or marked had been given to the brokers before, or set
// aside; and what was exported and deleted is in a file.
func (j *judgement) upkeep() {
	early, unfiled := 0, 0
	if j.Plan.Jobs != nil && len(j.Gone) == 0 {
		j.fail("P14: no row was removed or marked, so nothing is proven")
	}
	for _, g := range j.Gone {
		at := j.arrived(g.ID)
		if at.IsZero() || at.After(g.At.Add(clockSlack)) {
			if early++; early == 1 {
				j.fail("P14: %s of %s at %s, which was not delivered by then", g.How, j.describe(g.ID), g.At.Format("15:04:05.000"))
			}
		}
		if g.How == "DELETE" {
			j.Removed++
			if j.Plan.Jobs.exports() && !j.Exported[g.ID] {
				if unfiled++; unfiled == 1 {
					j.fail("P14: %s is deleted, and in no file", j.describe(g.ID))
				}
			}
		} else {
			j.Marked++
		}
	}
}
