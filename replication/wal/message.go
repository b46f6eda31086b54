package wal

// AnyPrefix is an entry of Config.Messages that stands for every prefix. Its rows
// have the prefix as their second column.
const AnyPrefix = "*"

// textOID is the type of the prefix column.
const textOID = 25

// jsonOID is the type of a logical message's body, as the router shall read it.
const jsonOID = 114

// MessageRelation is the shape of logical messages with a prefix; table is their
// Relation.Table.
func MessageRelation(prefix string, table int) *Relation {
	rel := &Relation{
		Namespace: "message", Name: prefix, Table: table,
		Columns: []Column{{Name: "body", Type: jsonOID, TypeMod: -1, TypeName: "json"}},
	}
	if rel.Name == AnyPrefix {
		rel.Columns = append(rel.Columns, Column{Name: "prefix", Type: textOID, TypeMod: -1, TypeName: "text"})
	}
	return rel
}
