package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// judge reads what became of the rows.
func (o *stepTable) judge(ctx context.Context) error {
	h := &o.history
	h.stepCase, h.exactly, h.upTo = o.c, o.w.plan.ExactlyOnce, o.first
	if err := errors.Join(o.readTables(ctx), o.readFiles(), o.readRecords(ctx)); err != nil {
		return err
	}
	for _, text := range h.wrong() {
		o.w.problem("steps: %s: %s", o.c.name, text)
	}
	return nil
}

func (o *stepTable) readTables(ctx context.Context) error {
	h := &o.history
	return o.w.session(ctx, func(conn *pgx.Conn) error {
		var row stepRow
		var gone Gone
		var id string
		var n int
		h.archived = map[string]int{}
		for _, each := range []struct {
			sql  string
			into []any
			add  func()
		}{
			{"SELECT w.id::text, w.key, w.bad, w.part, t.id IS NOT NULL, t.published_at IS NOT NULL, coalesce(t.retry_count, 0), t.last_error IS NOT NULL FROM %[1]s_written w LEFT JOIN %[1]s t USING (id) ORDER BY w.id",
				[]any{&row.id, &row.key, &row.bad, &row.part, &row.there, &row.marked, &row.attempts, &row.said}, func() { h.rows = append(h.rows, row) }},
			{"SELECT id::text, how, at FROM %s_gone ORDER BY at", []any{&gone.ID, &gone.How, &gone.At}, func() { h.gone = append(h.gone, gone) }},
			{"SELECT id::text, count(*) FROM %s_archive GROUP BY 1", []any{&id, &n}, func() { h.archived[id] = n }},
		} {
			rows, err := conn.Query(ctx, fmt.Sprintf(each.sql, o.name))
			if err != nil {
				return err
			}
			if _, err := pgx.ForEachRow(rows, each.into, func() error { each.add(); return nil }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *stepTable) readFiles() error {
	h := &o.history
	h.exported = map[string][]string{}
	if o.store != nil {
		for name, body := range o.store.Objects() {
			h.file(name, bytes.NewReader(body))
		}
		return nil
	}
	return filepath.WalkDir(o.folder(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !strings.HasSuffix(path, ".zst") {
			h.broken = append(h.broken, d.Name()+" was left behind")
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		h.file(d.Name(), file)
		return nil
	})
}

func (o *stepTable) readRecords(ctx context.Context) (err error) {
	h, read := &o.history, func(topic string) ([]*kgo.Record, error) {
		return sandbox.ReadTopics(ctx, o.w.kafka.Addrs(), []string{topic}, o.w.reads()...)
	}
	if h.records, err = read(o.topic); err != nil {
		return err
	}
	if h.letters, err = read(o.letters()); err != nil || !o.c.toTopic {
		return err
	}
	h.copies, err = read(o.topic + "-again")
	return err
}
