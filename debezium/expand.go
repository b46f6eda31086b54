package debezium

import (
	"github.com/cdc-relay/cdc-relay/debezium/connect"
)

// expander is table.expand.json.payload.
type expander struct{ *connect.Expander }

func newExpander(root string, nullBytes, emptyArrays bool) *expander {
	return &expander{connect.NewExpander(connect.ExpandOptions{Root: root, NullBytes: nullBytes, EmptyAsString: emptyArrays})}
}

// expand gives what goes on: the struct, or the text as it was. Poison is a text
// under a schema that it does not have: what a converter will say of it, if it
// looks at schemas, is better said in words.
func (e *expander) expand(f dbzField) (out dbzField, poison error) {
	x := e.Expand(f.schema, f.value)
	if x.Outcome == connect.Poison {
		poison = x.Reason
	}
	return dbzField{x.Schema, x.Value}, poison
}
