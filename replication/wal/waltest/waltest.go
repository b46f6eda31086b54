// Package waltest makes relations and rows for tests, in short.
package waltest

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// OIDs are those of PostgreSQL's types by name.
var OIDs = map[string]uint32{
	"bool": 16, "bytea": 17, "name": 19, "int8": 20, "int2": 21, "int4": 23, "text": 25, "oid": 26, "json": 114,
	"xml": 142, "point": 600, "lseg": 601, "path": 602, "box": 603, "polygon": 604, "line": 628, "float4": 700,
	"float8": 701, "circle": 718, "_bool": 1000, "_bytea": 1001, "_int2": 1005, "_int4": 1007, "_text": 1009,
	"_varchar": 1015, "_int8": 1016, "_float4": 1021, "_float8": 1022, "bpchar": 1042, "varchar": 1043, "date": 1082,
	"timestamp": 1114, "timestamptz": 1184, "_timestamp": 1115, "_date": 1182, "_timestamptz": 1185, "interval": 1186,
	"_numeric": 1231, "numeric": 1700, "uuid": 2950, "_uuid": 2951, "tsvector": 3614, "tsquery": 3615, "_jsonb": 3807,
	"_json": 199, "int4range": 3904, "numrange": 3906, "tsrange": 3908, "tstzrange": 3910, "daterange": 3912,
	"int8range": 3926, "int4multirange": 4451, "nummultirange": 4532, "tsmultirange": 4533, "tstzmultirange": 4534,
	"datemultirange": 4535, "int8multirange": 4536, "jsonb": 3802,
}

// Table is the relation public.outbox: `name type` for each column. A type that OIDs lacks is one of
// the database's own.
func Table(columns ...string) *wal.Relation {
	rel := &wal.Relation{OID: 16384, Namespace: "public", Name: "outbox"}
	for _, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		col := wal.Column{Name: name, TypeMod: -1, Type: 99999, TypeName: typ}
		if oid, known := OIDs[typ]; known {
			col.Type, col.TypeName = oid, ""
		}
		rel.Columns = append(rel.Columns, col)
	}
	return rel
}

// Null is NULL among the values of TextRow.
const Null = "\x00null"

// TextRow is a row as the server sends it in text.
func TextRow(rel *wal.Relation, values ...string) *wal.Row {
	row := &wal.Row{
		Txn:      &wal.Txn{XID: 7, Commit: 0x1_0000_0028},
		LSN:      0x1_0000_0010,
		Ordinal:  3,
		Relation: rel,
	}
	for _, v := range values {
		if v == Null {
			row.Values = append(row.Values, wal.Value{Kind: wal.Null})
			continue
		}
		row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(v)})
	}
	return row
}
