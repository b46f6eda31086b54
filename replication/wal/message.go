package wal

// AnyPrefix is an entry of postgres.Config.Messages that stands for every prefix. Its
// rows have the prefix as their second column.
const AnyPrefix = "*"

// textOID is the type of the prefix column.
const textOID = 25

// jsonOID is the type of a logical message's body, as the router shall read it.
const jsonOID = 114

// IsMessages distinguishes logical messages from a table, which has an OID.
func (r *Relation) IsMessages() bool { return r.OID == 0 && r.Namespace == "message" }

// Body is the whole body of a row that is a logical message.
func (r *Row) Body() []byte { return r.Values[0].Data }

// Prefix is that of a row that is a logical message.
func (r *Row) Prefix() string {
	if len(r.Values) > 1 { // see AnyPrefix
		return string(r.Values[1].Data)
	}
	return r.Relation.Name
}

// NewMessage makes the row of a logical message with one of the shapes of MessageRelation.
func NewMessage(rel *Relation, prefix string, body []byte) *Row {
	row := &Row{Txn: new(Txn), Relation: rel, Values: []Value{{Kind: Text, Data: body}}}
	if rel.Name == AnyPrefix {
		row.Values = append(row.Values, Value{Kind: Text, Data: []byte(prefix)})
	}
	return row
}

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
