package pgoutput

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// relate takes a Relation message. The server repeats it after any change near
// the table; the pointer stays the same while the shape does.
func (d *Decoder) relate(f *fields) error {
	rel := wal.Relation{OID: f.uint32(), Namespace: f.string(), Name: f.string(), Table: -1}
	if rel.Namespace == "" {
		rel.Namespace = "pg_catalog"
	}
	identity, n := f.byte(), f.uint16()
	if f.err != nil {
		return f.err
	}
	if identity != 'd' && identity != 'n' && identity != 'f' && identity != 'i' {
		return fmt.Errorf("replica identity %q", identity)
	}
	for range n { // a false count sizes nothing
		_, name := f.byte(), f.string()
		c := wal.Column{Name: name, Type: f.uint32(), TypeMod: int32(f.uint32())}
		if f.err != nil {
			return f.err
		}
		c.TypeName = d.types[c.Type]
		rel.Columns = append(rel.Columns, c)
	}
	if err := f.done(); err != nil {
		return err
	}
	if err := d.enrich(&rel); err != nil {
		return err
	}
	if old := d.relations[rel.OID]; old != nil && sameShape(old.Relation, &rel) {
		return nil
	}
	d.latest = nil
	r := d.identify(&rel)
	d.relations[rel.OID] = r
	if r.Table >= 0 && d.wants[r.Table].Commit {
		d.atCommit = r.Relation
	}
	return nil
}

func sameShape(a, b *wal.Relation) bool {
	return a.OID == b.OID && a.Namespace == b.Namespace && a.Name == b.Name &&
		slices.Equal(a.Columns, b.Columns) && slices.Equal(a.Meta, b.Meta)
}

// identify decides which configured table rel is. A contradiction between name and
// OID matters only when somebody inserts: the leaves of a partitioned table are
// announced too.
//
// In WAL from before the stream was opened another name is no contradiction: the
// table was renamed before somebody started us with the configuration and the
// catalog as they are. Otherwise a rename that was undone, or that the
// configuration has followed, could never be got past. A table that was replaced
// is one all the same: the new one may have been written to before it was published.
func (d *Decoder) identify(rel *wal.Relation) *relation {
	named, isNamed := d.byName[wal.Table{Schema: rel.Namespace, Name: rel.Name}]
	known, isKnown := d.expected[rel.OID]
	switch {
	case d.open && d.txn.Commit < d.walEnd && isKnown:
		rel.Table = known
	case isKnown && (!isNamed || named != known):
		t := d.tables[known]
		return &relation{Relation: rel, drift: &drift{
			table:   known,
			subject: t.Schema + "." + t.Name,
			err: fmt.Errorf("the table with OID %d is called %q.%q at this position, and was %q.%q when the session began",
				rel.OID, rel.Namespace, rel.Name, t.Schema, t.Name),
			hint: "the table was renamed: configure the name it has now, or rename it back, and restart",
		}}
	case isNamed && !isKnown && d.oids[named] != 0:
		return &relation{Relation: rel, drift: &drift{
			table:   named,
			subject: rel.Qualified(),
			err:     fmt.Errorf("its OID is %d at this position, and was %d when the session began", rel.OID, d.oids[named]),
			hint:    "another table replaced it under the same name, and rows of the old one are still to be sent. If the old one exists, under another name, configure both: this name, and a second entry of outbox with the same mapping for the name that the old one has now; make sure that the publication has both, and restart. Remove the second entry when the old rows are sent",
		}}
	case isNamed:
		rel.Table = named
	}
	return &relation{Relation: rel}
}

// enrich adds the metadata that the table of an announced relation asks for.
func (d *Decoder) enrich(rel *wal.Relation) error {
	if d.describe == nil {
		return nil
	}
	table, ok := d.expected[rel.OID]
	if !ok {
		if table, ok = d.byName[wal.Table{Schema: rel.Namespace, Name: rel.Name}]; !ok {
			return nil
		}
	}
	if !d.wants[table].Meta {
		return nil
	}
	var err error
	rel.Meta, err = d.describe(rel)
	return err
}
