package retention

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/retention/export"
)

// fileRows is how many rows are exported together, at most.
const fileRows = 50_000

// exporter writes rows into files. Its caller deletes the versions that it returns, and no others.
type exporter struct {
	found *found
	of    *leaf // that has the rows
	slots []string
	bytes int64 // of the files
}

// write returns those of the rows that are in a file. Rows that somebody changed meanwhile are in
// none.
func (e *exporter) write(ctx context.Context, session *maintenance.Session, rows []proof.Row) (written []proof.Row, err error) {
	f := e.found
	slices, err := session.Slices(ctx, rows, "extract(epoch FROM "+f.policy.slice(f.by, wal.QuoteIdentifier(f.by.Name))+")::bigint")
	if err != nil {
		return nil, err
	}
	position, err := session.Fence(ctx)
	if err != nil {
		return nil, err
	}
	all := e.of.survey.Columns
	columns := make([]export.Column, len(all))
	for i, c := range all {
		columns[i] = export.Column{Name: c.Name, Type: c.Type}
	}
	for _, s := range slices {
		begin := time.Unix(s.Begin, 0).UTC()
		header := &export.Header{
			Table: f.policy.Table.String(), Slice: begin.Format(time.RFC3339), Columns: columns, Slots: e.slots, Position: position.String(), Repeats: !e.of.survey.Unique,
		}
		_, size, err := f.store.Write(ctx, export.Slice{Table: header.Table, Begin: begin}, header, func(row func([]export.Value) error) error {
			there, err := session.Contents(ctx, s.Rows, all, func(values []*string) error { return row(exported(columns, values)) })
			written = append(written, there...)
			return err
		})
		if err != nil {
			return nil, exportFailed(f.policy, err)
		}
		e.bytes += size
	}
	return written, nil
}

// exported is a row as a file has it: bytes are in base64.
func exported(columns []export.Column, values []*string) []export.Value {
	row := make([]export.Value, len(values))
	for i, v := range values {
		row[i] = v
		if v == nil || columns[i].Type != "bytea" {
			continue
		}
		if plain, err := hex.DecodeString(strings.TrimPrefix(*v, `\x`)); err == nil {
			text := base64.StdEncoding.EncodeToString(plain)
			row[i] = &text
		}
	}
	return row
}

// exportFailed keeps what a server said as it is.
func exportFailed(p *Policy, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	e := &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonExportFailed, Op: "export rows of", Subject: "table " + p.Table.String(), Err: err, Hint: "no row was deleted for which there is no file; it is tried again"}
	if refused, ok := errors.AsType[*export.Refusal](err); ok {
		if refused.Key != "" {
			return p.Mistake("export."+refused.Key, refused.Hint, "%w", err)
		}
		e.Kind, e.Hint = fault.KindRefused, refused.Hint
	}
	return e
}

// store opens where files go. What was opened for a table serves again: a bucket's credentials and
// connections last.
func (s *Service) store(ctx context.Context, p *Policy) (export.Store, error) {
	if p.Export.Bucket == "" {
		folder, err := export.OpenFolder(p.Export.Folder)
		if err != nil {
			return nil, p.Mistake("export.to", "name a directory that exists", "%v", err)
		}
		return folder, nil
	}
	if opened, ok := s.buckets[p.Path]; ok {
		return opened, nil
	}
	bucket, err := export.OpenBucket(ctx, p.Export.Place)
	if err != nil {
		return nil, exportFailed(p, err)
	}
	if s.buckets == nil {
		s.buckets = make(map[string]*export.Bucket)
	}
	s.buckets[p.Path] = bucket
	return bucket, nil
}
