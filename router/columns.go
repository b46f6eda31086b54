package router

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// PublishedColumns are the columns of rel that the mapping reads, in table order: a publication
// with these alone gives the same records. A connector may read all of them.
func (r *Router) PublishedColumns(rel *wal.Relation) ([]string, error) {
	p, e, err := r.compile(rel, newest)
	if err != nil {
		return nil, err
	}
	all := p.connector != nil && p.connector.ReadsAll()
	rest := *rel
	rest.Columns, rest.Meta, rest.Hidden = nil, nil, maps.Clone(rel.Hidden)
	if rest.Hidden == nil {
		rest.Hidden = make(map[string]string)
	}
	var read []string
	for i, c := range rel.Columns {
		key := p.connector != nil && rel.Meta != nil && rel.Meta[i].Key > 0
		if !all && !key && slices.Contains(e.Ignored, c.Name) {
			rest.Hidden[c.Name] = "is not published"
			continue
		}
		read = append(read, c.Name)
		rest.Columns = append(rest.Columns, c)
		if rel.Meta != nil {
			rest.Meta = append(rest.Meta, rel.Meta[i])
		}
	}
	return read, r.sameWithout(&rest, e)
}

// sameWithout returns an error if the mapping would change without the columns that it
// does not read: preset auto recognises some tables by such columns.
func (r *Router) sameWithout(rest *wal.Relation, want *Explanation) error {
	_, got, err := r.compile(rest, newest)
	switch {
	case err != nil:
		return fmt.Errorf("a publication with only the mapped columns would change the mapping: %w; name the preset (preset: %s) or the columns", err, want.Preset)
	case got.Preset != want.Preset, got.Topic != want.Topic, got.Value != want.Value, !maps.Equal(got.Roles, want.Roles), !slices.Equal(got.Headers, want.Headers):
		return fmt.Errorf("with only the mapped columns in the publication, table %s would be taken for %s and not for %s; name the preset (preset: %s) or the columns", want.Table, got.Preset, want.Preset, want.Preset)
	}
	return nil
}
